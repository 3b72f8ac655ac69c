"""Losses of segmentation: how little predicted and true regions overlap."""

from __future__ import annotations

from ztorch.config import number
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.losses.loss import EPSILON, Loss


class Tversky(Loss, names=("tversky",)):
    """1 - the Tversky index of the regions of a row: `both / (both + alpha * a + beta * b)`.

    `both` is the sum of `y_true * y_pred`, `a` that of `y_true * (1 - y_pred)` and `b` that of
    `(1 - y_true) * y_pred`. Each row counts by itself, as with Keras' `axis=(1, 2, 3)`.

    Args:
        alpha: Weight of what is true and not predicted. Default: `0.5`.
        beta: Weight of what is predicted and not true. Default: `0.5`.

    Examples:
        >>> Tversky(alpha=0.3, beta=0.7)
        Tversky(alpha=0.3, beta=0.7)
    """

    def __init__(self, alpha: float = 0.5, beta: float = 0.5):
        self.alpha = number("Tversky(alpha=...)", alpha, least=0)
        self.beta = number("Tversky(beta=...)", beta, least=0)

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        axes = tuple(range(1, y_pred.rank))
        both = OPS.sum(y_true * y_pred, axis=axes)
        missed = OPS.sum(y_true * (1.0 - y_pred), axis=axes)
        more = OPS.sum((1.0 - y_true) * y_pred, axis=axes)
        return 1.0 - both / (both + missed * self.alpha + more * self.beta + EPSILON)


class Dice(Loss, names=("dice",)):
    """1 - the Dice coefficient of the regions of a row: twice their overlap over their sum.

    Each row counts by itself, as with Keras' `axis=(1, 2, 3)`.

    Args:
        name: Name of the loss. `None` uses that of its class. Default: `None`.

    Examples:
        >>> from ztorch import losses
        >>> losses.get("dice")
        Dice()
    """

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        axes = tuple(range(1, y_pred.rank))
        both = OPS.sum(y_true * y_pred, axis=axes)
        total = OPS.sum(y_true, axis=axes) + OPS.sum(y_pred, axis=axes)
        return 1.0 - both * 2.0 / (total + EPSILON)
