"""Convolutions of images with few channels, such as colors, by matrix instructions. A row of a
window is contiguous, but starts anywhere, and asynchronous copies take aligned chunks. So images
are written once with wider pixels, with the zeros around them, in the dtype of products, and
windows are read from those: never stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.lower.grid.mma import shape_for
from ztorch.lower.grid.operands import is_copied
from ztorch.lower.grid.window_axes import Parts, base_of, digits_of, whole
from ztorch.lower.index import Index, Var
from ztorch.lower.region import COPY
from ztorch.lower.tuning import COPY_BYTES, PIXEL_DEPTH, PIXEL_GAIN

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ImageWindows:
    """The windows of an image, which are the rows of a matrix."""

    image: Value  # (batch, *axes, channels)
    positions: Shape  # of windows, along each axis
    size: Shape  # of a window
    stride: Shape
    dilation: Shape
    low: Shape  # zeros before each axis

    @property
    def channels(self) -> int:
        return self.image.shape[-1]

    @property
    def reach(self) -> Shape:
        """The elements along each axis that windows read, with the zeros around them."""
        return tuple((n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(
            self.positions, self.stride, self.size, self.dilation, strict=True))


@dataclass(frozen=True)
class Pixels:
    """How wider pixels are read: in chunks that asynchronous copies take."""

    channels: int  # of a pixel
    across: int  # pixels of a row of a window

    def depth(self, w: ImageWindows) -> int:
        """Elements of a window."""
        return math.prod(w.size[:-1]) * self.across * self.channels


class FewChannels:
    """The products of one graph, which share images with wider pixels."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.images: dict[tuple[Value, DType, Shape, Shape, int], Value] = {}

    def __call__(self, v: Value, prepared: Callable[[Value], Value]) -> Value | None:
        """The product of windows with wider pixels, or the gradient of a kernel; None if none of
        its operands is windows of few channels, or if that gains nothing.

        Args:
            v: A product whose operands are views of tensors in memory.
            prepared: Finishes a product whose operands threads can copy.
        """
        grid, (a, b) = self.limits.grid, v.args
        shape = shape_for(v, self.limits)
        if grid is None or not grid.asynchronous_copies or shape is None or v.rank != 2 or any(
                x.dtype is not shape.of for x in v.args) or is_copied(v, 0, shape.of):
            return None
        for matrix, is_gradient in ((a, False), (OPS.transpose(a), True)):
            windows = windows_of_image(matrix)
            pixels = wider(windows) if windows else None
            if windows is None or pixels is None:
                continue
            left = self._rows(windows, pixels)
            if is_gradient:
                return _narrower(prepared(_product(v, OPS.transpose(left), b)), windows, pixels)
            return prepared(_product(v, left, _wider_kernel(b, windows, pixels)))
        return None

    def _rows(self, w: ImageWindows, pixels: Pixels) -> Value:
        """Windows of an image with wider pixels as rows of a matrix."""
        *outer, across = w.reach
        used = (*outer, across + pixels.across - w.size[-1])
        chunk = COPY_BYTES[0] // w.image.dtype.bytes
        room = (*outer, used[-1] + -used[-1] % (chunk // math.gcd(chunk, pixels.channels)))
        image = self._image(w, room, pixels.channels)
        last, size = image.rank - 1, (*w.size[:-1], pixels.across)
        if used != room:
            image = OPS.slice(image, (0,) * image.rank, (1,) * image.rank,
                              (image.shape[0], *used, pixels.channels))
        windows = OPS.windows(image, tuple(range(1, last)), size, w.stride, w.dilation)
        order = (*range(last), *range(last + 1, windows.rank), last)
        return OPS.reshape(OPS.transpose(windows, order),
                           (math.prod(windows.shape[:last]), pixels.depth(w)))

    def _image(self, w: ImageWindows, room: Shape, channels: int) -> Value:
        """The image in memory, with zeros in the other channels and around it. An image that was
        rounded to the dtype of products is rounded on its way."""
        source = w.image.args[0] if w.image.op.name == "cast" else w.image
        key = source, w.image.dtype, w.low, room, channels
        if key not in self.images:
            batch, *sizes, _ = source.shape
            sizes = [min(n, r - a) for n, r, a in zip(sizes, room, w.low, strict=True)]
            inner = OPS.slice(source, (0,) * source.rank, (1,) * source.rank,
                              (batch, *sizes, w.channels))
            high = (r - a - n for r, a, n in zip(room, w.low, sizes, strict=True))
            padded = OPS.pad(inner, (0, *w.low, 0), (0, *high, channels - w.channels))
            self.images[key] = COPY(padded) if source is w.image else (
                OPS.cast(padded, w.image.dtype))
        return self.images[key]


def windows_of_image(rows: Value) -> ImageWindows | None:
    """The windows that are the rows of a matrix; None if it is another.

    >>> import ztorch.ops
    >>> from ztorch.dtypes import bf16
    >>> from ztorch.graph.op import leaf
    >>> windows = OPS.windows(leaf("input", "x", (4, 9, 9, 3), bf16), (1, 2), 3, 2)
    >>> rows = OPS.reshape(OPS.transpose(windows, (0, 1, 2, 4, 5, 3)), (64, 27))
    >>> w = windows_of_image(rows)
    >>> w.positions, w.size, w.stride, w.reach
    ((4, 4), (3, 3), (2, 2), (9, 9))
    """
    row, column = (Var(name, n) for name, n in zip("rc", rows.shape, strict=True))
    base = base_of(rows, (Index.of(row), Index.of(column)))
    positions, taps = (digits_of(v, base[1]) if base else None for v in (row, column))
    if base is None or positions is None or taps is None or base[0].rank <= 2:
        return None
    image, full = base[0], {row: whole(positions), column: whole(taps)}
    parts = (_moved(i.replace(full), positions, taps) for i in base[1])
    moved = [m for m in parts if m is not None]
    if len(moved) < image.rank or _long(m.position for m in moved) != _long(positions) or (
            _long(m.tap for m in moved) != _long(taps)):
        return None
    batch, *axes, channel = moved
    if batch.position.extent != image.shape[0] or batch.stride > 1 or batch.low or (
            channel.tap.extent != image.shape[-1] or channel.dilation > 1 or channel.low or
            batch.tap.extent * channel.position.extent > 1):
        return None
    w = ImageWindows(image, *zip(*((m.position.extent, m.tap.extent, m.stride, m.dilation, m.low)
                              for m in axes), strict=True))
    return w if all(0 <= low < reach for low, reach in zip(w.low, w.reach, strict=True)) else None


@dataclass(frozen=True)
class _Moved:
    """How positions of windows, and elements of a window, move along an axis of an image."""

    position: Var
    stride: int
    tap: Var
    dilation: int
    low: int


def _moved(at: Index, positions: Parts, taps: Parts) -> _Moved | None:
    """The movement along an axis whose index is `at`; None if there is another part in it."""
    steps, places = ([(v, f) for v, f in at.terms if v in parts] for parts in (positions, taps))
    if max(len(steps), len(places)) > 1 or len(steps) + len(places) < len(at.terms) or any(
            f < 1 for _, f in at.terms):
        return None
    [(position, stride)], [(tap, dilation)] = steps or [_STILL], places or [_STILL]
    return _Moved(position, stride, tap, dilation, -at.const)


_STILL = Var("still", 1), 1  # where nothing moves


def _long(parts: Iterable[Var]) -> list[Var]:
    """Those with several values, in their order."""
    return [v for v in parts if v.extent > 1]


def wider(w: ImageWindows) -> Pixels | None:
    """Pixels whose windows are read in chunks, the widest of those for which they are not much
    deeper; None if there are none, or if the image is not much smaller than its windows."""
    if w.dilation[-1] != 1:
        return None
    depth, positions = math.prod(w.size) * w.channels, w.image.shape[0] * math.prod(w.positions)
    for nbytes in COPY_BYTES:
        chunk = nbytes // w.image.dtype.bytes
        channels = next(n for n in range(w.channels, w.channels + chunk)
                        if w.stride[-1] * n % chunk == 0)
        step = chunk // math.gcd(chunk, channels)
        pixels = Pixels(channels, w.size[-1] + -w.size[-1] % step)
        image = w.image.shape[0] * math.prod(w.reach) * channels
        if pixels.depth(w) <= PIXEL_DEPTH * depth and PIXEL_GAIN * image <= positions * depth:
            return pixels
    return None


def _wider_kernel(kernel: Value, w: ImageWindows, pixels: Pixels) -> Value:
    """A kernel, as a matrix, with zeros for what pixels have more."""
    filters, places = kernel.shape[-1], len(w.size) - 1
    x = OPS.reshape(kernel, (*w.size, w.channels, filters))
    high = pixels.across - w.size[-1], pixels.channels - w.channels
    x = COPY(OPS.pad(x, (0,) * x.rank, (*(0,) * places, *high, 0)))
    return OPS.reshape(x, (pixels.depth(w), filters))


def _narrower(slope: Value, w: ImageWindows, pixels: Pixels) -> Value:
    """The gradient of a kernel, from that of a kernel for wider pixels."""
    filters = slope.shape[-1]
    x = OPS.reshape(slope, (*w.size[:-1], pixels.across, pixels.channels, filters))
    x = OPS.slice(x, (0,) * x.rank, (1,) * x.rank, (*w.size, w.channels, filters))
    return OPS.reshape(x, (math.prod(w.size) * w.channels, filters))


def _product(v: Value, left: Value, right: Value) -> Value:
    return v.op(left, right, **v.attrs)
