"""Penalties on absolute values and squares."""

from __future__ import annotations

from ztorch import ops
from ztorch.config import number
from ztorch.graph.value import Value
from ztorch.regularizers.regularizer import Regularizer


class L1L2(Regularizer, names=("l1_l2",)):
    """The sum of absolute values times `l1`, and of squares times `l2`.

    Args:
        l1: The factor of absolute values. Default: `0.0`.
        l2: The factor of squares. Default: `0.0`.

    Examples:
        >>> import ztorch as zt
        >>> L1L2(l1=0.5, l2=0.1)(zt.tensor([3.0, -1.0])).item()
        3.0
    """

    def __init__(self, l1: float = 0.0, l2: float = 0.0):
        self.l1 = number("L1L2(l1=...)", l1, least=0)
        self.l2 = number("L1L2(l2=...)", l2, least=0)

    def __call__(self, x: Value) -> Value:
        return _penalty(x, self.l1, self.l2, None)

    def of_rows(self, x: Value) -> Value:
        return _penalty(x, self.l1, self.l2, tuple(range(1, x.rank)))


class L1(Regularizer, names=("l1",)):
    """The sum of absolute values times `l1`.

    Args:
        l1: The factor. Default: `0.01`.

    Examples:
        >>> import ztorch as zt
        >>> L1(0.5)(zt.tensor([3.0, -1.0])).item()
        2.0
    """

    def __init__(self, l1: float = 0.01):
        self.l1 = number("L1(l1=...)", l1, least=0)

    def __call__(self, x: Value) -> Value:
        return _penalty(x, self.l1, 0.0, None)

    def of_rows(self, x: Value) -> Value:
        return _penalty(x, self.l1, 0.0, tuple(range(1, x.rank)))


class L2(Regularizer, names=("l2",)):
    """The sum of squares times `l2`.

    Args:
        l2: The factor. Default: `0.01`.

    Examples:
        >>> import ztorch as zt
        >>> L2(0.5)(zt.tensor([3.0, -1.0])).item()
        5.0
    """

    def __init__(self, l2: float = 0.01):
        self.l2 = number("L2(l2=...)", l2, least=0)

    def __call__(self, x: Value) -> Value:
        return _penalty(x, 0.0, self.l2, None)

    def of_rows(self, x: Value) -> Value:
        return _penalty(x, 0.0, self.l2, tuple(range(1, x.rank)))


def _penalty(x: Value, l1: float, l2: float, axis: tuple[int, ...] | None) -> Value:
    """The penalty, summed over these axes; None: over all."""
    if not l2:
        return l1 * ops.sum(ops.abs(x), axis=axis)
    squares = l2 * ops.sum(ops.square(x), axis=axis)
    return l1 * ops.sum(ops.abs(x), axis=axis) + squares if l1 else squares
