"""The mean and the sum of numbers, over the steps of an epoch in a custom `train_step`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch import ops
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.metrics.metric import Metric


class Mean(Metric, abstract=True):
    """The mean of the arguments of `update_state`, as in Keras: within steps over all steps of an
    epoch, elsewhere since `reset_state`.

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
        self.total = self.add_weight("total")
        self.count = self.add_weight("count")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:  # type: ignore[override]
        """Adds the values of a batch.

        Args:
            values: An array, a tensor or a number.
            sample_weight: The weight of each value; None weights all equally. Default: `None`.
        """
        total, count = _sums(values, sample_weight)
        self.total.assign_add(total)
        self.count.assign_add(count)

    def result(self) -> Any:
        """The mean; 0 before the first value, as in Keras."""
        return self.total / ops.where(ops.equal(self.count, 0.0), 1.0, self.count)

    def __call__(self, values: Any, sample_weight: Any = None) -> Any:  # type: ignore[override]
        """Adds values, and returns the mean so far."""
        self.update_state(values, sample_weight)
        return self.result()


class Sum(Metric, abstract=True):
    """The sum of the arguments of `update_state`, as in Keras: within steps over all steps of an
    epoch, elsewhere since `reset_state`.

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
        self.total = self.add_weight("total")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:  # type: ignore[override]
        """Adds values.

        Args:
            values: An array, a tensor or a number.
            sample_weight: The weight of each value; None weights all equally. Default: `None`.
        """
        self.total.assign_add(_sums(values, sample_weight)[0])

    def result(self) -> Any:
        """The sum."""
        return self.total + 0.0

    def __call__(self, values: Any, sample_weight: Any = None) -> Any:  # type: ignore[override]
        """Adds values, and returns the sum so far."""
        self.update_state(values, sample_weight)
        return self.result()


def _sums(values: Any, weights: Any) -> tuple[Any, Any]:
    """The sum of weighted values, and the sum of the weights; in a graph or as numbers."""
    weights = 1.0 if weights is None else weights
    if not isinstance(values, Value):
        numbers = np.asarray(values, np.float64)
        counted = np.asarray(weights, np.float64)
        more = (1,) * (numbers.ndim - counted.ndim)
        shares = np.broadcast_to(counted.reshape((*counted.shape, *more)), numbers.shape)
        return (numbers * shares).sum(), shares.sum()
    values = values if values.dtype.is_float else OPS.cast(values, "float32")
    if isinstance(weights, Value):
        more = (1,) * (values.rank - weights.rank)  # rows may have several values
        weights = OPS.cast(OPS.reshape(weights, (*weights.shape, *more)), values.dtype)
    shares = OPS.ones_like(values) * weights
    return OPS.sum(values * shares), OPS.sum(shares)
