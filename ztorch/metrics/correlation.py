"""Metrics of the correlation of targets and predictions."""

from __future__ import annotations

from ztorch.config import whole
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.metrics.metric import Metric, alike


class PearsonCorrelation(Metric, names=("pearson_correlation",)):
    """The mean correlation of targets and predictions along an axis, from -1 to 1.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.
        axis: The axis along which to correlate; axis 0 is the batch. Default: `-1`.

    Examples:
        >>> PearsonCorrelation().axis
        -1
    """

    def __init__(self, name: str | None = None, axis: int = -1):
        super().__init__(name)
        self.axis = whole(f"{type(self).__name__}(axis=...)", axis, least=-(1 << 31))

    def values(self, y_true: Value, y_pred: Value) -> Value:
        y, p = (self._centered(x)[1] for x in (alike(self.name, y_true, y_pred), y_pred))
        spread = OPS.sqrt(self._mean(y * y) * self._mean(p * p))
        return self._mean(y * p) / spread

    def _mean(self, x: Value) -> Value:
        return OPS.mean(x, axis=self.axis)

    def _centered(self, x: Value) -> tuple[Value, Value]:
        """The means, and the deviations from them."""
        means = OPS.mean(x, axis=self.axis, keepdims=True)
        return OPS.squeeze(means, self.axis), x - means


class ConcordanceCorrelation(PearsonCorrelation, names=("concordance_correlation",)):
    """The correlation of targets and predictions, reduced if their means or spreads differ.

    Args:
        name: Name in the history. `None` uses the metric's own name. Default: `None`.
        axis: The axis along which to correlate; axis 0 is the batch. Default: `-1`.

    Examples:
        >>> ConcordanceCorrelation().name
        'concordance_correlation'
    """

    def values(self, y_true: Value, y_pred: Value) -> Value:
        (mean, y), (predicted, p) = (self._centered(x) for x in (
            alike(self.name, y_true, y_pred), y_pred))
        gap = OPS.square(mean - predicted)
        return self._mean(y * p) * 2.0 / (self._mean(y * y) + self._mean(p * p) + gap + 1e-7)
