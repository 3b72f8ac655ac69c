"""`==` and `!=` of the tensors that users declare models with.

In the code of users, `x == 0` and `a == b` compare element by element, as in Keras. In the package,
where values are the keys of tables and members of lists, a value equals itself alone.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import numpy as np

from ztorch.graph.operators import Operators

EQUALITIES = {"eq": "equal", "ne": "not_equal"}  # Python's name -> the op
_PACKAGE = __name__.partition(".")[0]
_C = TypeVar("_C", bound=type)


def elementwise_equality(cls: _C) -> _C:
    """Decorates a class of tensors, whose `==` and `!=` then are ops where users write them."""
    for python, op in EQUALITIES.items():
        setattr(cls, f"__{python}__", _comparison(op))
    cls.__hash__ = object.__hash__  # type: ignore[assignment, method-assign]
    return cls


def _comparison(op: str) -> Any:
    def compare(self: Any, other: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if not is_operand(other) or caller.partition(".")[0] == _PACKAGE:
            return NotImplemented  # then Python compares identities
        tensor = self.symbol if hasattr(type(self), "symbol") else self  # of an Input
        return tensor.apply_op(op, tensor, other)

    return compare


def is_operand(x: Any) -> bool:
    """Whether x may be compared with a tensor.

    >>> is_operand(0), is_operand(None), is_operand("same")
    (True, False, False)
    """
    return isinstance(x, (int, float, np.generic, np.ndarray, Operators)) or hasattr(
        type(x), "symbol")
