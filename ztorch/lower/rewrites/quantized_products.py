"""Products of dequantized numbers as integer products.

    (float(a) * s) @ (float(b) * t) = float(a @ b) * (s * t), for integers a and b

Scales do not vary along k: those of a may differ from row to row, those of b from column to column.
The sum of integers is exact, and one rounding replaces those of k floats.
"""

from __future__ import annotations

from collections.abc import Callable

from ztorch.dtypes import f32, i32
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import filled, is_number
from ztorch.graph.value import Value
from ztorch.ir.ranges import limits as range_of
from ztorch.lower.rewrites.integer_products import bounds, unvaried


def of_integers(v: Value, prepared: Callable[[Value], Value]) -> Value | None:
    """A product of float32 as one of int32 times a scale; None if the operands are no dequantized
    numbers, or if sums might not fit.

    Args:
        v: A product.
        prepared: Prepares the product of integers.
    """
    if v.dtype is not f32 or v.attrs:
        return None
    left, right = _dequantized(v.args[0], -1), _dequantized(v.args[1], -2)
    if left is None or right is None:
        return None
    (a, s), (b, t) = left, right
    largest = [max(-low, high) for low, high in map(bounds, (a, b))]
    if v.args[0].shape[-1] * largest[0] * largest[1] > range_of(i32)[1]:
        return None
    return OPS.cast(prepared(v.op(a, b)), f32) * (s * t)


def _dequantized(x: Value, axis: int) -> tuple[Value, Value] | None:
    """The integers and the scale of a dequantized operand, whose sums are along an axis."""
    pair = _parts(x)
    if pair is None:
        return None
    scale = unvaried(pair[1], axis)
    return None if scale is None else (pair[0], scale)


def _parts(x: Value) -> tuple[Value, Value] | None:
    """Integers of 32 bits and the scales of all of them, as their product stands in the graph,
    perhaps moved afterwards."""
    if x.op.opcode == "mul":
        for number, scale in (x.args, x.args[::-1]):
            if number.op.opcode == "cast" and number.args[0].dtype.is_int:
                return OPS.cast(number.args[0], i32), scale
        return None
    zeros = x.op.name == "pad" and is_number(OPS.full((), x.attrs["value"], f32), 0.0)
    if not (x.op.movement or zeros) or len(x.args) != 1 or (pair := _parts(x.args[0])) is None:
        return None
    integers, scale = pair
    moved = Value(x.op, (integers,), x.attrs, x.shape, i32)
    if filled(scale):
        return moved, OPS.full(x.shape, scale.attrs["value"], f32)
    return None if zeros else (moved, Value(x.op, (scale,), x.attrs, x.shape, f32))
