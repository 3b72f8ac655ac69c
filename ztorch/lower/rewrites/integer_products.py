"""Integer products by instructions that multiply several steps along k at once.

    uint8 @ int8 in int32: words of four bytes, and a quarter of the steps along k

Words hold four bytes where the machine multiplies those, else two numbers of 16 bits. Operands
count if so many bits hold their numbers: they were widened from them, perhaps with a zero point
subtracted. Sums are those of int32, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ztorch.dtypes import i8, i16, i32, u8
from ztorch.graph.op import OPS, first_value
from ztorch.graph.rewrite import filled
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.ir.ranges import limits as range_of
from ztorch.lower.index import Index, Var
from ztorch.lower.region import COPY, view_of
from ztorch.lower.rewrites.split_reductions import split_reduction
from ztorch.lower.rewrites.window_words import windows_of_words

Shape = tuple[int, ...]
Bounds = tuple[int, int]  # the least number and the largest
_PAIR, _SIGNED, _UNSIGNED = map(range_of, (i16, i8, u8))


def bounds(v: Value) -> Bounds:
    """The range of the numbers of an integer tensor, as its ops show it.

    >>> from ztorch.graph.op import leaf
    >>> x = OPS.cast(leaf("input", "x", (4,), "uint8"), "int32")
    >>> bounds(x), bounds(x - 128)
    ((0, 255), (-128, 127))
    """
    low, high = limits = range_of(v.dtype)
    if v.op.name == "full":
        return (int(v.attrs["value"]),) * 2
    if v.op.kind == "leaf" and v.attrs["role"] == "constant" and v.size:
        numbers = first_value(v)
        return int(numbers.min()), int(numbers.max())
    args = [bounds(a) for a in v.args if a.dtype.is_int]
    if not args or len(args) < len(v.args):
        return limits
    (a, z), *others = args
    if v.op.opcode == "sub":
        a, z = a - others[0][1], z - others[0][0]
    elif v.op.opcode == "add":
        a, z = a + others[0][0], z + others[0][1]
    elif v.op.name == "pad" and int(v.attrs["value"]) == 0:
        a, z = min(a, 0), max(z, 0)
    elif not (v.op.opcode == "cast" or v.op.movement or v.op is COPY) or others:
        return limits
    return (a, z) if low <= a and z <= high else limits


def in_words(v: Value, limits: Limits, prepared: Callable[[Value], Value]) -> Value | None:
    """An integer product by dot products of words; None if it has to be one of single numbers.

    Args:
        v: A product.
        limits: The machine, a processor.
        prepared: Prepares the operands of the product of words.
    """
    if v.dtype is not i32 or v.attrs or limits.lanes(i32) == 1:
        return None
    if limits.byte_dots and (y := _by_bytes(v, prepared)) is not None:
        return y
    if all(_PAIR[0] <= low and high <= _PAIR[1] for low, high in map(bounds, v.args)):
        return prepared(_product(v, v.args[0], v.args[1], "dot2", 2))
    return None


def _by_bytes(v: Value, prepared: Callable[[Value], Value]) -> Value | None:
    """The product of bytes, unsigned times signed; None if bytes do not hold the operands.

        (a + c) @ (b + d) = a @ b + c * (sums of columns of b) + d * (sums of rows of a) + k * c * d
    """
    left, right = _bytes(v.args[0], -1, _UNSIGNED), _bytes(v.args[1], -2, _SIGNED)
    if left is None or right is None:
        return None
    (a, c), (b, d) = left, right
    y = prepared(_product(v, a, b, "dot4", i32.bytes))
    if c is not None:
        y = y + split_reduction(OPS.sum(b, axis=-2, keepdims=True), None) * c
    if d is not None:
        y = y + split_reduction(OPS.sum(a, axis=-1, keepdims=True), None) * d
    return y if c is None or d is None else y + c * d * v.args[0].shape[-1]


def _bytes(x: Value, axis: int, byte: Bounds) -> tuple[Value, Value | None] | None:
    """An operand as bytes and what was subtracted from it, which does not vary along an axis, if
    anything was; None if bytes do not hold such differences."""
    low, high = bounds(x)
    if byte[0] <= low and high <= byte[1]:
        return x, None
    if high - low <= _UNSIGNED[1]:
        return x - (low - byte[0]), OPS.full((), low - byte[0], i32)
    zero = unvaried(x.args[1], axis) if x.op.opcode == "sub" else None
    if zero is None or (codes := _bytes(x.args[0], axis, byte)) is None:
        return None
    return codes[0], -zero if codes[1] is None else codes[1] - zero


def unvaried(v: Value, axis: int) -> Value | None:
    """A tensor that does not vary along an axis, with one element along it; None if it may vary.

    >>> from ztorch.graph.op import leaf
    >>> x = leaf("input", "x", (3, 1), "float32")
    >>> unvaried(OPS.broadcast_to(x, (3, 4)), -1).shape, unvaried(OPS.broadcast_to(x, (3, 4)), 0)
    ((3, 1), None)
    """
    axis = range(v.rank)[axis]
    along = [Var(f"d{k}", n) for k, n in enumerate(v.shape)]
    base = view_of(v, [Index.of(var) for var in along])
    if base is not None and base[1].mentions(along[axis]):
        return None
    size = tuple(1 if k == axis else n for k, n in enumerate(v.shape))
    return v if v.shape == size else OPS.slice(v, (0,) * v.rank, (1,) * v.rank, size)


def _product(v: Value, a: Value, b: Value, dot: str, parts: int) -> Value:
    """The product of words of so many parts, by an opcode."""
    rows = windows_of_words(a, parts, lambda x, axis: _words(x, axis, parts))
    words = COPY(_words(a, -1, parts)) if rows is None else rows, _words(b, -2, parts)
    return Value(v.op, words, {"dot": dot}, v.shape, v.dtype)


def _words(x: Value, axis: int, parts: int) -> Value:
    """Neighbors along an axis as words, the first in the lowest bits. The last word is filled up
    with zeros."""
    axis, bits = range(x.rank)[axis], i32.bits // parts
    count = math.ceil(x.shape[axis] / parts)
    if rest := count * parts - x.shape[axis]:
        x = OPS.pad(x, (0,) * x.rank, tuple(rest * (k == axis) for k in range(x.rank)))
    size = tuple(count if k == axis else n for k, n in enumerate(x.shape))
    step = tuple(parts if k == axis else 1 for k in range(x.rank))
    words: Value | None = None
    for part in range(parts):
        start = tuple(part * (k == axis) for k in range(x.rank))
        number = _sliced(x, start, step, size)
        if part < parts - 1:
            number = OPS.bitwise_and(number, (1 << bits) - 1)
        number = OPS.shift_left(number, bits * part) if part else number
        words = number if words is None else OPS.bitwise_or(words, number)
    assert words is not None
    return words


def _sliced(x: Value, start: Shape, step: Shape, size: Shape) -> Value:
    """A slice of integers that were widened and shifted, as a slice of the narrow ones: else they
    would be stored, because several slices read them."""
    if filled(x):
        return OPS.full(size, x.attrs["value"], x.dtype)
    widens = x.op.opcode == "cast" and x.args[0].dtype.bits <= x.dtype.bits
    if widens or (x.op.opcode in ("add", "sub") and any(map(filled, x.args))):
        args = tuple(_sliced(a, start, step, size) for a in x.args)
        return Value(x.op, args, x.attrs, size, x.dtype)
    return OPS.slice(x, start, step, size)
