"""A convolution by another library on a device: one call in place of a launch.

Gradients are such convolutions, too: that of images of slopes, with a mirrored window; that of
filters of images whose channels take the place of images, with slopes as filters.
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
    ConvolvedWindows,
    Shape,
    StridedOperand,
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
    if windows is None or in_memory(windows.image) is None or _filters(windows) is None:
        return "the operands are no images and windows, or do not lie along strides"
    return ""


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: CudnnSchedule) -> None:
    """The call."""
    result, windows = stored_alone(region), windows_of(product_of(region))
    assert result is not None and windows is not None  # `refusal`
    x, w = in_memory(windows.image), _filters(windows)
    assert x is not None and w is not None  # `refusal`
    b.library_convolution(
        target[result], 0, memory[x.source], 0, memory[w.source], 0, source_off=x.first,
        right_off=w.first, mirrored=w.mirrored, swapped=windows.slopes, library=s.kind,
        **(_of_slopes if windows.slopes else _of_filters)(windows, x, w))


def _filters(windows: ConvolvedWindows) -> StridedOperand | None:
    return in_memory(windows.filters, 0 if windows.slopes else windows.filters.rank - 2)


def _of_filters(windows: ConvolvedWindows, x: StridedOperand,
                w: StridedOperand) -> dict[str, Shape]:
    """The attributes of images convolved with filters."""
    attrs = windows.attrs
    return {
        "x": library_axes(windows.image.shape), "x_pitches": library_axes(x.pitches),
        "w": library_axes(windows.filters.shape, True),
        "w_pitches": library_axes(w.pitches, True),
        "y_pitches": library_axes(_dense(attrs["shape"])), "strides": attrs["strides"],
        "dilations": attrs["dilations"], "before": attrs["low"], "after": attrs["high"]}


def _of_slopes(windows: ConvolvedWindows, x: StridedOperand,
               w: StridedOperand) -> dict[str, Shape]:
    """The attributes of the gradient of filters. Rows that no window reaches are left out, so that
    there are as many results as the window has elements."""
    attrs, (images, *extents, channels) = windows.attrs, windows.image.shape
    window = attrs["window"]
    pitches = _dense((*window, channels, windows.filters.shape[-1]))
    reached = [(n - 1) * s + (k - 1) * d + 1 - low for n, s, k, d, low in zip(
        attrs["shape"][1:-1], attrs["strides"], window, attrs["dilations"], attrs["low"],
        strict=True)]
    inside = [min(n, most) for n, most in zip(extents, reached, strict=True)]
    return {
        "x": (channels, images, *inside), "x_pitches": _channels_first(x.pitches),
        "w": _channels_first(windows.filters.shape),
        "w_pitches": _channels_first(w.pitches),
        "y_pitches": (*pitches[-2:], *pitches[:-2]),
        "strides": attrs["dilations"], "dilations": attrs["strides"], "before": attrs["low"],
        "after": tuple(most - n for most, n in zip(reached, inside, strict=True))}


def _channels_first(along: Shape) -> Shape:
    """What images have along each axis, with channels in the place of images."""
    return (along[-1], *along[:-1])


def _dense(shape: Shape) -> Shape:
    return tuple(math.prod(shape[k + 1:]) for k in range(len(shape)))
