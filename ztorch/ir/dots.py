"""Dot products of short vectors that a word holds: rows of the table of opcodes, their meaning, and
their rewriting.

    dot2: 0x0003_0002 times 0xffff_0005 is 3 * -1 + 2 * 5
    dot4: 0xff_00_00_02 times 0xff_00_00_05 is 255 * -1 + 2 * 5

Integer products of matrices add up several steps along k at once with them
(`lower/rewrites/integer_products.py`). The first part of a word is in its lowest bits. Parts have
half or a quarter of the bits of a word, whatever its dtype, and sums wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ztorch.ir.arithmetic import Arithmetic
    from ztorch.ir.kernel import Operand


def _part(x: np.ndarray, k: int, parts: int, signed: bool) -> np.ndarray:
    """Part k of each word."""
    bits = x.dtype.itemsize * 8 // parts
    part = (x >> (k * bits)) & ((1 << bits) - 1)
    return np.where(part >> (bits - 1) > 0, part - (1 << bits), part) if signed else part


def _meaning(parts: int, signed: bool) -> Callable[..., Any]:
    """c plus the products of all parts of a and b. Those of b are signed, those of a if `signed`
    is."""
    def dot(a: Any, b: Any, c: Any) -> Any:
        a, b, c = (np.asarray(x) for x in (a, b, c))
        total = c.astype(np.int64)
        for k in range(parts):
            total = total + _part(a, k, parts, signed).astype(np.int64) * (
                _part(b, k, parts, True).astype(np.int64))
        return total.astype(c.dtype)

    return dot


def _rewriting(parts: int, signed: bool) -> Callable[..., Any]:
    """The same by shifts and products of whole words."""
    def dot(b: Arithmetic, x: Operand, y: Operand, total: Operand) -> Operand:
        bits = x.dtype.bits // parts
        above = x.dtype.bits - bits
        for k in range(parts):
            shift = above - k * bits
            right = b.shr(b.shl(y, shift) if shift else y, above)
            if signed:
                left = b.shr(b.shl(x, shift) if shift else x, above)
            else:
                left = b.and_(b.shr(x, k * bits) if k else x, (1 << bits) - 1)
            total = b.add(total, b.mul(left, right))
        return total

    return dot


# Of each opcode: operands, meaning, attributes, and other fields of its row.
_FIELDS = {"kinds": "s", "result": "same", "cost": 2, "words": True}
ROWS: dict[str, tuple[int, str, tuple[str, ...], dict[str, Any]]] = {
    "dot2": (3, "c + the products of the two halves of a and b, signed; wraps", (), {
        **_FIELDS, "meaning": _meaning(2, True), "via": _rewriting(2, True)}),
    "dot4": (3, "c + the products of the quarters of a, unsigned, and of b, signed; wraps", (), {
        **_FIELDS, "meaning": _meaning(4, False), "via": _rewriting(4, False)}),
}
