"""Convolutions of float32 in parts (`grid/parts.py`). The leading bits and the rest of their right
operand are written to memory, in lines along k, as asynchronous matrix instructions read float32.
For the gradient of a kernel k are positions in images, of which those in one place of all images
are made neighbors.
"""

from __future__ import annotations

import math

from ztorch.dtypes import f32
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.kernel import PART_BITS, SWIZZLE_LINE
from ztorch.ir.limits import Limits
from ztorch.lower.grid import mma
from ztorch.lower.grid.parts import EVEN_FIRST, IN_PARTS
from ztorch.lower.grid.window_axes import windows_of
from ztorch.lower.region import COPY
from ztorch.lower.rewrites.split_floats import leading

Parts = tuple[Value, ...]


class SplitWindows:
    """The products of one graph. Products share a right operand that was split."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.made: dict[tuple[Value, int], Parts] = {}  # by operand and number of images, or 0

    def __call__(self, v: Value) -> Value:
        """The product of a right operand in parts, if it is a convolution of float32 whose parts
        machines multiply while they copy."""
        grid = self.limits.grid
        assert grid is not None
        if not (grid.tile_copies and grid.asynchronous_products) or v.rank != 2 or any(
                x.dtype is not f32 for x in (v, *v.args)) or v.op is IN_PARTS:
            return v
        shape = mma.shape_for(v, self.limits)
        windows = windows_of(v) if shape and shape.split else None
        if windows is None or not windows.slides:
            return v
        (left, right), (m, n), k = v.args, v.shape, v.args[0].shape[-1]
        if not windows.contiguous[0]:
            return IN_PARTS(left, *map(OPS.transpose, self._parts(right, 0)))
        images, *places = [x.extent for x in windows.k]
        if not places or images % (SWIZZLE_LINE // f32.bytes):
            return v
        order = (0, *range(2, len(places) + 2), 1)
        left = OPS.reshape(OPS.transpose(OPS.reshape(left, (m, images, *places)), order), (m, k))
        turned = (OPS.transpose(OPS.reshape(x, (k // images, n, images)), (0, 2, 1))
                  for x in self._parts(right, images))
        return IN_PARTS(left, *(OPS.reshape(x, (k, n)) for x in turned), even_first=True)

    def _parts(self, operand: Value, images: int) -> Parts:
        """The parts of an operand (k, n): its columns as rows, or those of each place in images."""
        key = operand, images
        if key not in self.made:
            k, n = operand.shape
            rows = images or k
            x = OPS.transpose(OPS.reshape(operand, (rows, k // rows * n)))
            if images:
                pairs = OPS.reshape(x, (x.shape[0], images // EVEN_FIRST, EVEN_FIRST // 2, 2))
                x = OPS.reshape(OPS.swapaxes(pairs, -2, -1), x.shape)
            first = leading(x, PART_BITS)
            whole = OPS.equal(OPS.abs(x), math.inf)
            one = OPS.where(OPS.greater(x, 0.0), 1.0, -1.0)
            self.made[key] = (COPY(OPS.where(whole, one, first)),
                              COPY(OPS.where(whole, x, OPS.sub(x, first))))
        return self.made[key]
