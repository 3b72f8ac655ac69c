"""Losses of embeddings, which compare each row of a batch with all others."""

from __future__ import annotations

import math

from ztorch import dtypes
from ztorch.config import flag, number
from ztorch.dtypes import DType
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.losses.loss import Loss, Shape, TargetSpec


class Circle(Loss, names=("circle",)):
    """Pulls embeddings of the same class together and pushes others apart.

    Predictions are vectors of length 1, such as those of `UnitNormalization`. Targets hold int32
    class numbers; rows with a number below zero are left out. Each row is compared with the other
    rows of its batch.

    Args:
        gamma: Weight of hard pairs. Default: `80.0`.
        margin: Distance to reach within a class, and to keep between classes. Default: `0.4`.
        remove_diagonal: Whether to exclude pairs of a row with itself. Default: `True`.

    Examples:
        >>> Circle(margin=0.25).margin
        0.25
    """

    compares_rows = True

    def __init__(self, gamma: float = 80.0, margin: float = 0.4, remove_diagonal: bool = True):
        self.gamma = number("Circle(gamma=...)", gamma)
        self.margin = number("Circle(margin=...)", margin)
        self.remove_diagonal = flag("Circle(remove_diagonal=...)", remove_diagonal)

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        if len(shape) != 2:
            raise shape_error(f"loss {self.name!r} compares vectors, one per row, not", shape[1:])
        return TargetSpec(shape[:1], dtypes.i32)

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        margin = self.margin
        far = OPS.relu(1.0 - y_pred @ OPS.transpose(y_pred))  # 0 for equal vectors
        alike, others = self._pairs(y_true)
        pull = OPS.relu(margin + far) * (far - margin) * self.gamma
        push = OPS.relu(1.0 + margin - far) * (1.0 - margin - far) * self.gamma
        return OPS.softplus(_log_of_sum(pull, alike) + _log_of_sum(push, others))

    def counted(self, y_true: Value) -> Value:
        """The rows with both a row of the same class and a row of another one, as in Keras."""
        alike, others = self._pairs(y_true)
        return OPS.logical_and(OPS.any(alike, axis=1), OPS.any(others, axis=1))

    def _pairs(self, y_true: Value) -> tuple[Value, Value]:
        """For each row, the rows of the same class, and those of other classes."""
        count = y_true.shape[0]
        row, column = (OPS.iota((count, count), axis, "int32") for axis in (0, 1))
        alike = OPS.equal(OPS.reshape(y_true, (-1, 1)), OPS.reshape(y_true, (1, -1)))
        known = OPS.reshape(y_true, (1, -1)) >= 0
        others = OPS.logical_and(known, OPS.logical_not(alike))
        alike = OPS.logical_and(known, alike)
        if self.remove_diagonal:
            alike = OPS.logical_and(alike, OPS.not_equal(row, column))
        return alike, others


def _log_of_sum(x: Value, counts: Value) -> Value:
    """The logarithm of the sum of the exponentials that count; minus infinity if none does."""
    some = OPS.any(counts, axis=1)
    shown = OPS.where(OPS.logical_or(counts, OPS.logical_not(OPS.expand_dims(some, 1))), x, -1e30)
    return OPS.where(some, OPS.logsumexp(shown, axis=1), -math.inf)
