"""Large products of float32 by asynchronous matrix instructions, which round operands to fewer
mantissa bits (TF32). Other products of float32 are split as they are loaded: `MmaShape.split`.

A number is split into its leading bits, as many as the units keep, and the rest. Three products of
such parts give nearly all bits of the result. They are computed as one product with three times the
k: [first | first | rest] @ [first; rest; first]. The product of both rests is omitted. An infinite
number is only in its first part: times the parts of a number, of which one may be zero or have the
other sign, it would give NaN.
"""

from __future__ import annotations

import math

from ztorch.dtypes import f32, u32
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.lower.index import Index, Var
from ztorch.lower.region import COPY, view_of
from ztorch.lower.tuning import SPLIT_FLOATS_GAIN, SPLIT_FLOATS_LEAST

MANTISSA = 23  # stored mantissa bits of a float32
FIRST, REST = "first bits", "rest"
PARTS = ((FIRST, FIRST, REST), (FIRST, REST, FIRST))  # along k, of either operand


class SplitFloats:
    """The products of one graph. Products share an operand that was split for the same side."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.made: dict[tuple[Value, Index, tuple[int, ...], int], Value] = {}

    def __call__(self, v: Value) -> Value:
        """The product of split operands, if that is precise enough and faster."""
        bits = self._kept(v)
        left, right = (self._split(v.args[side], side, bits) if bits else None for side in (0, 1))
        if left is None or right is None:
            return v
        return v.op(left, OPS.transpose(right), mantissa_bits=bits)

    def _kept(self, v: Value) -> int:
        """The mantissa bits that matrix units keep; 0 if the product should not be split."""
        grid = self.limits.grid
        assert grid is not None
        bits = next((s.mantissa_bits for s in grid.mma_shapes if s.of is f32), 0)
        asked = self.limits.product_mantissa_bits
        if not (grid.asynchronous_products and bits < asked <= 2 * bits) or v.rank != 2 or (
                v.attrs or any(x.dtype is not f32 for x in (v, *v.args))):
            return 0
        gains = grid.unit.tf32 >= len(PARTS[0]) * SPLIT_FLOATS_GAIN * grid.unit.f32
        return bits if gains and min(v.shape) >= SPLIT_FLOATS_LEAST else 0

    def _split(self, operand: Value, side: int, bits: int) -> Value | None:
        """The parts of an operand, concatenated along k, the contiguous axis; None if it is no
        matrix in memory."""
        matrix = OPS.transpose(operand) if side else operand
        rows, columns = (Var(f"d{k}", n) for k, n in enumerate(matrix.shape))
        base = view_of(matrix, (Index.of(rows), Index.of(columns)))
        if base is None or not base[1].is_affine:
            return None
        key = (*base, matrix.shape, side)  # rows may all be one in memory
        if key not in self.made:
            (height, depth), count = matrix.shape, len(PARTS[side])
            x = matrix if base[1].factor(columns) == 1 else COPY(matrix)
            x = OPS.broadcast_to(OPS.reshape(x, (height, 1, depth)), (height, count, depth))
            first = leading(x, bits)
            part = OPS.iota(x.shape, 1)
            parts = OPS.where(OPS.equal(part, PARTS[side].index(REST)), OPS.sub(x, first), first)
            is_whole = OPS.bitwise_and(OPS.greater(part, 0), OPS.equal(OPS.abs(x), math.inf))
            parts = COPY(OPS.where(is_whole, 0.0, parts))
            self.made[key] = OPS.reshape(parts, (height, count * depth))
        return self.made[key]


def leading(x: Value, bits: int) -> Value:
    """Numbers with so many leading bits of their mantissa."""
    mask = (1 << 32) - (1 << MANTISSA - bits)
    return OPS.bitcast(OPS.bitwise_and(OPS.bitcast(x, u32), OPS.full(x.shape, mask, u32)), f32)
