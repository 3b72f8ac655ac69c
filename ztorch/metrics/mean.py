"""The mean of numbers, over the steps of an epoch in a `train_step` of one's own; their sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.running_step import need_step, running_step
from ztorch.graph.value import Value
from ztorch.metrics.metric import Metric


class Mean(Metric, abstract=True):
    """The mean of what `update_state` is given, as in Keras.

    In a `train_step` or `test_step`, the step computes the mean of a batch, and an epoch averages
    these, each batch by its rows. Outside it is the mean of all numbers since `reset_state`.

    Args:
        name: Name in the history. Default: `"mean"`.

    Examples:
        >>> import ztorch as zt
        >>> losses = zt.metrics.Mean(name="loss")
        >>> losses.update_state([1.0, 2.0])
        >>> losses.update_state(6.0)
        >>> losses.result().item()
        3.0
    """

    def __init__(self, name: str = "mean"):
        super().__init__(name)

    def update_state(self, values: Any, sample_weight: Any = None) -> None:  # type: ignore[override]
        """Takes the values of a batch.

        Args:
            values: A tensor of any shape; outside of a step also an array or a number.
            sample_weight: The weight of each value; None: all count alike. Default: `None`.
        """
        if not isinstance(values, Value):
            numbers = np.asarray(values, np.float64)
            weights = np.broadcast_to(1.0 if sample_weight is None else np.asarray(
                sample_weight, np.float64), numbers.shape)
            self.totals = {"total": self.totals.get("total", 0.0) + (numbers * weights).sum(),
                           "count": self.totals.get("count", 0.0) + weights.sum()}
            return
        step = running_step.get()
        if step is not None:
            each = _spread(1.0 if sample_weight is None else sample_weight, values)
            step.add(self, total=OPS.sum(values * each), count=OPS.sum(each))

    def result(self) -> Any:
        """The mean."""
        if running_step.get() is not None:
            total, count = self._measured().sums.values()
            return total / count
        if self.totals:
            return self._measured()
        raise ConfigError(f"metric {self.name!r} has no result before update_state, which a "
                          "train_step calls for each batch")

    def __call__(self, values: Any, sample_weight: Any = None) -> Any:  # type: ignore[override]
        """Adds values, and gives the mean of all so far."""
        self.update_state(values, sample_weight)
        return self.result()


class Sum(Metric, abstract=True):
    """The sum of what `update_state` is given, as in Keras.

    In a `train_step` or `test_step` it is the sum over the steps of an epoch.

    Args:
        name: Name in the history. Default: `"sum"`.

    Examples:
        >>> import ztorch as zt
        >>> total = zt.metrics.Sum()
        >>> total.update_state([1.0, 2.0])
        >>> total.update_state(6.0)
        >>> total.result().item()
        9.0
    """

    def __init__(self, name: str = "sum"):
        super().__init__(name)

    def update_state(self, values: Any, sample_weight: Any = None) -> None:  # type: ignore[override]
        """Adds values.

        Args:
            values: An array, a tensor or a number.
            sample_weight: The weight of each value; None: all count alike. Default: `None`.
        """
        if isinstance(values, Value):
            counted = values if sample_weight is None else values * _spread(sample_weight, values)
            need_step(f"{type(self).__name__}.update_state").add(self, total=OPS.sum(counted))
            return
        weights = 1.0 if sample_weight is None else np.asarray(sample_weight, np.float64)
        total = (np.asarray(values, np.float64) * weights).sum()
        self.totals = {"total": self.totals.get("total", 0.0) + total}

    def of_sums(self, sums: Mapping[str, Value]) -> Value:
        return sums["total"]

    def result(self) -> Any:
        """The sum."""
        return self._measured()

    def __call__(self, values: Any, sample_weight: Any = None) -> Any:  # type: ignore[override]
        """Adds values, and gives the sum of all so far."""
        self.update_state(values, sample_weight)
        return self.result()


def _spread(weights: Any, values: Value) -> Value:
    """Weights, or one number, for each of the values."""
    each = OPS.ones_like(values)
    return each * (OPS.cast(weights, values.dtype) if isinstance(weights, Value) else weights)
