"""A convolution by another library on a device: one call in place of a launch.

The gradient of images is such a convolution, too: of slopes, with a mirrored window. That of
filters is not: our kernels cut its long sums into parts, and update the filters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.library_products import MANTISSA_BITS
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.contract import product_of
from ztorch.lower.grid.library_product import DTYPES, stored_alone
from ztorch.lower.region import Region
from ztorch.lower.rewrites.library_convolutions import (
    convolves,
    in_memory,
    library_axes,
    windows_of,
)
from ztorch.lower.schedule import Schedule


@dataclass(frozen=True, repr=False)
class CudnnSchedule(Schedule):
    """A convolution by cuDNN, whose rules choose the engine."""

    kind = library = "cudnn"

    def tile(self, lanes: int) -> str:
        return self.kind


def propose(region: Region, limits: Limits) -> CudnnSchedule | None:
    """The call; None if the library is not there or cannot compute the region."""
    s = CudnnSchedule()
    return None if refusal(s, region, limits) else s


def refusal(s: CudnnSchedule, region: Region, limits: Limits) -> str:
    """Why the library cannot compute a region; empty if it can."""
    if not convolves(s.kind, limits):
        return f"{s.kind} is not there"
    product = product_of(region)
    if stored_alone(region) is None:
        return "it computes one convolution alone"
    left, right = (a.dtype for a in product.args)
    if left is not right or left.name not in DTYPES or product.dtype.name not in (left.name, "f32"):
        return f"it does not convolve {left} with {right}"
    if limits.product_mantissa_bits not in MANTISSA_BITS:
        return f"it has no products of {limits.product_mantissa_bits} bits of mantissa"
    windows = windows_of(product)
    if windows is None or in_memory(windows.image) is None or in_memory(
            windows.filters, windows.filters.rank - 2) is None:
        return "the operands are no images and windows, or do not lie along strides"
    return ""


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: CudnnSchedule) -> None:
    """The call."""
    result, windows = stored_alone(region), windows_of(product_of(region))
    assert result is not None and windows is not None  # `refusal`
    x, w = in_memory(windows.image), in_memory(windows.filters, windows.filters.rank - 2)
    assert x is not None and w is not None  # `refusal`
    attrs, shape = windows.attrs, windows.attrs["shape"]
    y_pitches = tuple(math.prod(shape[k + 1:]) for k in range(len(shape)))
    b.library_convolution(
        target[result], 0, memory[x.source], 0, memory[w.source], 0, source_off=x.first,
        right_off=w.first, mirrored=w.mirrored, x=library_axes(windows.image.shape),
        x_pitches=library_axes(x.pitches), w=library_axes(windows.filters.shape, True),
        w_pitches=library_axes(w.pitches, True), y_pitches=library_axes(y_pitches),
        strides=attrs["strides"], dilations=attrs["dilations"], before=attrs["low"],
        after=attrs["high"], library=s.kind)
