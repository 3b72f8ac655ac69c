"""Penalties on weights and outputs, which are added to the loss.

>>> from ztorch import layers, regularizers
>>> layers.Dense(3, kernel_regularizer=regularizers.L2(1e-4)).kernel_regularizer
L2(l2=0.0001)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztorch.names.member_names import member
from ztorch.regularizers.regularizer import Regularizer, get

if TYPE_CHECKING:  # the files of members load when a member is first named
    from ztorch.regularizers.norms import L1, L1L2, L2
    from ztorch.regularizers.orthogonal import OrthogonalRegularizer

__all__ = ["L1", "L1L2", "L2", "OrthogonalRegularizer", "Regularizer", "get"]


def __getattr__(name: str) -> Any:
    return member(Regularizer, name)


def __dir__() -> list[str]:
    return __all__
