"""Constraints on weights, applied after each training step.

>>> from ztorch import constraints, layers
>>> layers.Dense(3, kernel_constraint=constraints.MaxNorm(2)).kernel_constraint
MaxNorm(max_value=2.0, axis=0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztorch.constraints.constraint import Constraint, get
from ztorch.names.member_names import member

if TYPE_CHECKING:  # the files of members load when a member is first named
    from ztorch.constraints.norms import MaxNorm, MinMaxNorm, UnitNorm
    from ztorch.constraints.signs import NonNeg

__all__ = ["Constraint", "MaxNorm", "MinMaxNorm", "NonNeg", "UnitNorm", "get"]


def __getattr__(name: str) -> Any:
    return member(Constraint, name)


def __dir__() -> list[str]:
    return __all__
