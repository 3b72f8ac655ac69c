"""The mean of a number over the steps of an epoch, for a `train_step` of one's own."""

from __future__ import annotations

from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.metrics.metric import Metric


class Mean(Metric, abstract=True):
    """The mean of what `update_state` is given, as in Keras, in a `train_step` or `test_step`.

    The step computes the mean of a batch. An epoch averages these, each batch by its rows.

    Args:
        name: Name in the history. Default: `"mean"`.

    Examples:
        ```python
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}
        ```
    """

    def __init__(self, name: str = "mean"):
        super().__init__(name)
        self._mean: Value | None = None  # of the batch that is being traced

    def update_state(self, values: Any, sample_weight: Any = None) -> None:  # type: ignore[override]
        """Takes the values of a batch.

        Args:
            values: A tensor of any shape.
            sample_weight: The weight of each value; None: all count alike. Default: `None`.
        """
        if sample_weight is None:
            self._mean = OPS.mean(values)
        else:
            weights = OPS.broadcast_to(OPS.cast(sample_weight, values.dtype), values.shape)
            self._mean = OPS.sum(values * weights) / OPS.sum(weights)

    def result(self) -> Value:
        """The mean of the batch."""
        if self._mean is None:
            raise ConfigError(f"metric {self.name!r} has no result before update_state, which a "
                              "train_step calls for each batch")
        return self._mean

    def reset_state(self) -> None:
        """Forgets the values."""
        self._mean = None
