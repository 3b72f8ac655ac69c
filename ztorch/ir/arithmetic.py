"""The part of a builder that rewritings need. It does not import the table of opcodes; the full
builder does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ztorch.dtypes import DType

if TYPE_CHECKING:
    from ztorch.ir.kernel import Operand


class Arithmetic(Protocol):
    """Emits scalar opcodes. Each is a method: `b.add(x, 1.0)`, `b.cast(x, dtype=f32)`."""

    exact: bool  # products and sums round separately

    def const(self, number: Any, dtype: DType, lanes: int = 1) -> Operand:
        """A constant operand."""

    def __getattr__(self, opcode: str) -> Callable[..., Operand]:
        """The method that emits an opcode."""
