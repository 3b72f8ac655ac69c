"""Losses of segmentation, which measure how little predicted and true regions overlap."""

from __future__ import annotations

from typing import Any

from ztorch.config import number, whole_numbers
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.losses.loss import EPSILON, Loss


class _Overlap(Loss):
    """Base class of losses that sum regions along axes."""

    def __init__(self, axis: Any):
        kind = type(self).__name__
        axes = (axis,) if isinstance(axis, int) else axis
        self.axis = None if axes is None else whole_numbers(f"{kind}(axis=...)", axes)
        self.compares_rows = self.axis is None or 0 in self.axis

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        rank = y_pred.rank
        axes = range(rank) if self.axis is None else [n + rank if n < 0 else n for n in self.axis]
        if not all(0 <= n < rank for n in axes):
            raise ConfigError(f"loss {self.name!r}: axis={self.axis}, predictions of rank {rank}")
        if self.compares_rows:  # targets below zero belong to rows that pad a batch
            known = y_true >= 0.0
            y_true, y_pred = (OPS.where(known, v, 0.0) for v in (y_true, y_pred))
        values = self.lack(y_true, y_pred, tuple(sorted(axes)))
        return OPS.mean(values) if self.compares_rows else values

    def lack(self, y_true: Value, y_pred: Value, axes: tuple[int, ...]) -> Value:
        """How little regions overlap. Regions are summed along axes."""
        raise NotImplementedError


class Tversky(_Overlap, names=("tversky",)):
    """1 - the Tversky index of regions: `common / (common + alpha * a + beta * b)`.

    `common` is the sum of `y_true * y_pred`, `a` that of `y_true * (1 - y_pred)` and `b` that of
    `(1 - y_true) * y_pred`.

    Args:
        alpha: Weight of false negatives. Default: `0.5`.
        beta: Weight of false positives. Default: `0.5`.
        axis: The axes of a region, such as `(1, 2, 3)` for one region per row. `None` means all
            axes: one region for the whole batch. Default: `None`.

    Examples:
        >>> Tversky(alpha=0.3, beta=0.7).beta
        0.7
    """

    def __init__(self, alpha: float = 0.5, beta: float = 0.5, axis: Any = None):
        self.alpha = number("Tversky(alpha=...)", alpha, least=0)
        self.beta = number("Tversky(beta=...)", beta, least=0)
        super().__init__(axis)

    def lack(self, y_true: Value, y_pred: Value, axes: tuple[int, ...]) -> Value:
        common = OPS.sum(y_true * y_pred, axis=axes)
        missed = OPS.sum(y_true * (1.0 - y_pred), axis=axes)
        invented = OPS.sum((1.0 - y_true) * y_pred, axis=axes)
        return 1.0 - common / (
            common + missed * self.alpha + invented * self.beta + EPSILON)


class Dice(_Overlap, names=("dice",)):
    """1 - the Dice coefficient of regions: twice their overlap over their sum.

    Args:
        axis: The axes of a region, such as `(1, 2, 3)` for one region per row. `None` means all
            axes: one region for the whole batch. Default: `None`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("dice").axis is None
        True
    """

    def __init__(self, axis: Any = None):
        super().__init__(axis)

    def lack(self, y_true: Value, y_pred: Value, axes: tuple[int, ...]) -> Value:
        common = OPS.sum(y_true * y_pred, axis=axes)
        total = OPS.sum(y_true, axis=axes) + OPS.sum(y_pred, axis=axes)
        return 1.0 - common * 2.0 / (total + EPSILON)
