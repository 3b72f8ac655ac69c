"""Replacements of asynchronous copies for machines without them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ztorch.ir.kernel import Instr, Operand

LANES = 4  # elements that are moved at once


def at_once(b: Any, instr: Instr) -> Operand:
    """The copy as loads and stores, of vectors where the condition is known."""
    attrs, (to, origin, inside) = instr.attrs, instr.args
    target, count = b.memories[attrs["mem"]], attrs["elements"]
    certain = inside.is_const
    lanes = math.gcd(count, LANES) if certain else 1
    align = min(attrs["align"], lanes * target.dtype.bytes) if lanes > 1 else 0
    origin = origin if certain else b.select(inside, origin, 0)
    for k in range(0, count, lanes):
        x = b.load(attrs["source"], origin, off=attrs["source_off"] + k, lanes=lanes, align=align)
        x = x if certain else b.select(inside, x, 0)
        b.store(attrs["mem"], to, x, off=attrs["off"] + k, align=align)
    return instr.dest


def nothing(b: Any, instr: Instr) -> Operand:
    """No operation: copies that are not asynchronous need no wait."""
    return instr.dest
