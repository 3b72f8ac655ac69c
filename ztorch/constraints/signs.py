"""Constraints on single elements."""

from __future__ import annotations

from ztorch import ops
from ztorch.constraints.constraint import Constraint
from ztorch.graph.value import Value


class NonNeg(Constraint, names=("non_neg",)):
    """Replaces negative elements by 0.

    Examples:
        >>> import ztorch as zt
        >>> NonNeg()(zt.tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """

    def __call__(self, w: Value) -> Value:
        return ops.maximum(w, 0.0)
