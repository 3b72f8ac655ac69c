"""Operands and memories as the macros of templates receive them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ztorch.ir.kernel import Fragment


@dataclass(frozen=True)
class OperandView:
    """An operand as macros receive it."""

    r: str  # its text: a register or a literal
    t: str  # its type
    e: str  # the type of one lane
    p: str  # the type of a predicate with as many lanes
    id: str  # its number in the kernel
    dtype: str  # name of its dtype
    lanes: int  # number of lanes
    k: str  # kind of its dtype: f, s, u or b
    bits: int  # bits of one lane
    c: Any  # the value of a constant, else None
    suffix: str  # the target's suffix for its dtype and lanes
    parts: tuple[str, ...]  # its registers: several for a matrix fragment
    fragment: Fragment | None  # the part of a matrix that it holds, if it does
    kind: str  # value, variable, counter, token or const


@dataclass(frozen=True)
class MemoryView:
    """A memory as macros receive it."""

    r: str  # its name in the text
    t: str  # the type of an element
    v: str  # the type of `vec` adjacent elements
    id: str  # its number
    dtype: str  # name of its dtype
    bytes: int  # bytes of an element
    size: int  # number of elements
    vec: int  # elements of the vector type that it is declared as an array of
    space: str  # global, local or shared
    access: str  # r, w or rw
    atomic: bool  # whether elements are updated atomically
    swizzled: bool  # whether the chunks of each line are permuted
    streamed: bool  # whether stores bypass the caches
    is_far: bool  # whether 32 bits do not hold the byte offsets of all elements
