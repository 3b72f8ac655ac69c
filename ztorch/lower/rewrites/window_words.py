"""Windows of an image of integers, as windows of an image of words; and transposed operands.

A convolution is a product whose left operand has a window in each row, channels last. Where words
do not cross from one position of a window to the next, the image is packed, which is read in place:
windows overlap, and packed windows would be many times as large. A transposed tensor is packed in
the order of its memory, in which neighbors are one vector; words are transposed, not numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from ztorch.dtypes import i32
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import filled
from ztorch.graph.value import Value
from ztorch.lower.region import COPY

Pack = Callable[[Value, int], Value]  # packs neighbors along an axis


def windows_of_words(x: Value, parts: int, pack: Pack) -> Value | None:
    """The rows of a left operand in words, as views of a packed image; None if it has no windows
    and is not transposed, or if its channels are no whole words.

    Args:
        x: The operand.
        parts: Numbers in a word.
        pack: Packs neighbors along an axis.
    """
    return _packed(x, x.rank - 1, parts, pack, 0, False)


def _packed(x: Value, axis: int, parts: int, pack: Pack, shift: int, seen: bool) -> Value | None:
    """x minus a number, packed along an axis. `seen`: a reader takes windows of x, or x has its
    steps along k as rows."""
    if x.op.opcode == "sub" and filled(x.args[1]):
        return _packed(x.args[0], axis, parts, pack, shift + int(x.args[1].attrs["value"]), seen)
    name, below = x.op.name, x.args[0] if x.args else x
    if name == "pick":
        places = len(x.attrs["axes"])
        if axis >= x.rank - places or axis in x.attrs["axes"]:
            return None
        inner = _packed(below, axis + places, parts, pack, shift, True)
        return None if inner is None else x.op(inner, **x.attrs)
    if name == "broadcast_to":
        inside = axis - (x.rank - below.rank)
        if inside < 0 or below.shape[inside] != x.shape[axis]:
            return None
        inner = _packed(below, inside, parts, pack, shift, seen)
        size = tuple(n // parts if k == axis else n for k, n in enumerate(x.shape))
        return None if inner is None else OPS.broadcast_to(inner, size)
    if seen:
        return _image(x, axis, parts, pack, shift)
    if name == "rows":
        return _packed(below, axis, parts, pack, shift, seen)
    if name == "transpose":
        inside = x.attrs["axes"][axis]
        inner = _packed(below, inside, parts, pack, shift, inside != x.rank - 1)
        return None if inner is None else OPS.transpose(inner, x.attrs["axes"])
    if name == "reshape" and axis == x.rank - 1 and x.shape[-1] % below.shape[-1] == 0:
        inner = _packed(below, below.rank - 1, parts, pack, shift, seen)
        return None if inner is None else OPS.reshape(
            inner, (*x.shape[:-1], x.shape[-1] // parts))
    return None


def _image(x: Value, axis: int, parts: int, pack: Pack, shift: int) -> Value | None:
    """A packed image, perhaps with a border; the number is subtracted from both."""
    if x.shape[axis] % parts:
        return None
    if x.op.name != "pad":
        return COPY(_in_order_of_memory(x, axis, pack, shift))
    low, high = x.attrs["low"], x.attrs["high"]
    if low[axis] or high[axis]:
        return None
    bits = i32.bits // parts
    number = int(x.attrs["value"]) - shift & (1 << bits) - 1
    border = sum(number << k * bits for k in range(parts))
    inner = _in_order_of_memory(x.args[0], axis, pack, shift)
    return COPY(OPS.pad(inner, low, high, border - (border >> i32.bits - 1 << i32.bits)))


def _in_order_of_memory(x: Value, axis: int, pack: Pack, shift: int) -> Value:
    """x minus a number, packed along an axis before it is transposed."""
    if x.op.opcode == "sub" and filled(x.args[1]):
        return _in_order_of_memory(x.args[0], axis, pack, shift + int(x.args[1].attrs["value"]))
    if x.op.name == "transpose":
        axes = x.attrs["axes"]
        return OPS.transpose(COPY(_in_order_of_memory(x.args[0], axes[axis], pack, shift)), axes)
    return pack(x - shift if shift else x, axis)
