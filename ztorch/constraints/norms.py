"""Constraints on the norms of vectors in a weight, such as the columns of a kernel."""

from __future__ import annotations

from typing import Any

from ztorch import ops
from ztorch.config import fraction, number, whole, whole_numbers
from ztorch.constraints.constraint import Constraint
from ztorch.errors import ConfigError
from ztorch.graph.value import Value

_EPSILON = 1e-7  # added to norms before they divide, as in Keras


class MaxNorm(Constraint, names=("max_norm",)):
    """Limits norms: longer vectors are scaled down.

    Args:
        max_value: The largest norm. Default: `2.0`.
        axis: The axis of a vector, or several: 0 for each unit of a Dense, (0, 1, 2) for each
            filter of a Conv2D. Default: `0`.

    Examples:
        >>> import ztorch as zt
        >>> MaxNorm(1.0)(zt.tensor([[3.0, 0.3], [4.0, 0.4]])).tolist()[0][1] < 0.3001
        True
    """

    def __init__(self, max_value: float = 2.0, axis: Any = 0):
        self.max_value = number("MaxNorm(max_value=...)", max_value, least=0)
        self.axis = _axis("MaxNorm", axis)

    def __call__(self, w: Value) -> Value:
        norms = _norms(w, self.axis)
        return w * (ops.minimum(norms, self.max_value) / (norms + _EPSILON))


class UnitNorm(Constraint, names=("unit_norm",)):
    """Scales all norms to 1.

    Args:
        axis: The axis of a vector, or several. Default: `0`.

    Examples:
        >>> import ztorch as zt
        >>> [round(x, 3) for x in UnitNorm()(zt.tensor([3.0, 4.0])).tolist()]
        [0.6, 0.8]
    """

    def __init__(self, axis: Any = 0):
        self.axis = _axis("UnitNorm", axis)

    def __call__(self, w: Value) -> Value:
        return w / (_norms(w, self.axis) + _EPSILON)


class MinMaxNorm(Constraint, names=("min_max_norm",)):
    """Moves norms into a range.

    Args:
        min_value: The smallest norm. Default: `0.0`.
        max_value: The largest norm. Default: `1.0`.
        rate: The fraction of the distance that a step moves, above 0 and at most 1. Default: `1.0`.
        axis: The axis of a vector, or several. Default: `0`.

    Examples:
        >>> import ztorch as zt
        >>> [round(x, 3) for x in MinMaxNorm(1, 2)(zt.tensor([0.3, 0.4])).tolist()]
        [0.6, 0.8]
    """

    def __init__(self, min_value: float = 0.0, max_value: float = 1.0, rate: float = 1.0,
                 axis: Any = 0):
        self.min_value = number("MinMaxNorm(min_value=...)", min_value, least=0)
        self.max_value = number("MinMaxNorm(max_value=...)", max_value, least=0)
        if self.min_value > self.max_value:
            raise ConfigError(f"MinMaxNorm(min_value={min_value!r}) is above max_value={max_value}")
        self.rate = fraction("MinMaxNorm(rate=...)", rate, below_one=False)
        self.axis = _axis("MinMaxNorm", axis)

    def __call__(self, w: Value) -> Value:
        norms = _norms(w, self.axis)
        target = self.rate * ops.clip(norms, self.min_value, self.max_value)
        return w * ((target + (1.0 - self.rate) * norms) / (norms + _EPSILON))


def _axis(kind: str, axis: Any) -> int | tuple[int, ...]:
    """An axis, or several."""
    if isinstance(axis, (list, tuple)):
        return whole_numbers(f"{kind}(axis=...)", axis)
    return whole(f"{kind}(axis=...)", axis, least=-64)


def _norms(w: Value, axis: int | tuple[int, ...]) -> Value:
    return ops.sqrt(ops.sum(ops.square(w), axis=axis, keepdims=True))
