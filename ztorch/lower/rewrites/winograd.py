"""Winograd convolutions F(4 x 4, 3 x 3), with a quarter of the multiplications.

A tile of 6 x 6 elements of an image gives 4 x 4 results. Tile and kernel are transformed to the
same 36 points. At each point the convolution is a matrix product over channels:

    result = inverse(transform(tile) @ transform(kernel))

The gradient of the kernel takes the same steps backwards, with transposed matrices:

    slope of the kernel = transposed(transform)(transform(tile).T @ transposed(inverse)(slopes))

The points of each axis are 0, +-3/4, +-3/2 and infinity. With 0, +-1, +-2 the constants would be
integers, but errors four times as large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ztorch.dtypes import DType, f32
from ztorch.graph.op import OPS
from ztorch.graph.value import Op, Value, not_evaluated
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.cpu.tiling import product_cycles
from ztorch.lower.cpu.winograd_time import transforms_cycles
from ztorch.lower.grid.split_k import short_parts
from ztorch.lower.grid.winograd_time import pays
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import flatten
from ztorch.lower.region import COPY, is_view, view_of, without_copies
from ztorch.lower.tuning import (
    BLOCK_ITERATIONS,
    BLOCK_SUMS_BYTES,
    L2_SHARE,
    PAGE_BYTES,
    TRANSFORM_CHANNELS,
    TRANSFORM_GAIN,
    TRANSFORM_KERNEL_SHARE,
    TRANSFORM_RESULTS,
    TRANSFORM_SLOTS,
    TRANSFORM_TILES,
)

Shape = tuple[int, ...]
Sizes = tuple[int, int, int]  # of a product: m, n, k
Prepared = Callable[[Value, bool], Value]  # a product for tiles; whether its right operand is fixed

WINDOW, RESULTS = 3, TRANSFORM_RESULTS  # elements of a window, results of a tile: along each axis
TILE = WINDOW + RESULTS - 1  # elements of a tile, and points, along each axis
POINTS = TILE * TILE
IMAGE = ("batch", "rows", "columns", "channels")  # its axes
KIND = "winograd"  # of the ops below, and of their regions


def _kernel_shape(kernel: Value, rows: int) -> tuple[Shape, DType]:
    return (POINTS, rows, kernel.shape[1]), kernel.dtype


def _tiles_shape(image: Value, rows: int, **attrs: Any) -> tuple[Shape, DType]:
    return (POINTS, rows, image.shape[-1]), image.dtype


def _convolved_shape(image: Value, kernel: Value, shape: Shape, **attrs: Any
                     ) -> tuple[Shape, DType]:
    return shape, image.dtype


def _results_shape(products: Value, shape: Shape) -> tuple[Shape, DType]:
    return shape, products.dtype


def _slope_shape(products: Value) -> tuple[Shape, DType]:
    _, channels, filters = products.shape
    return (WINDOW ** 2 * channels, filters), products.dtype


# The transformed kernel (9 * channels, filters): (points, rows, filters). Extra rows are padding.
AT_POINTS = Op("at_points", KIND, _kernel_shape, not_evaluated, cost=TRANSFORM_SLOTS)
# The transformed tiles of an image: (points, rows, channels). Extra rows are padding.
TILES = Op("tiles", KIND, _tiles_shape, not_evaluated, cost=TRANSFORM_SLOTS)
# The inverse transform of products (points, tiles, filters) to an image.
RESULTS_OF = Op("results", KIND, _results_shape, not_evaluated, cost=TRANSFORM_SLOTS)
# An image convolved with a kernel at all points, block by block of tiles.
CONVOLVED_TILES = Op("convolved_tiles", KIND, _convolved_shape, not_evaluated, cost=TRANSFORM_SLOTS)
# The transformed tiles of the slopes of results: (points, rows, filters). Extra rows are padding.
SLOPES = Op("slopes", KIND, _tiles_shape, not_evaluated, cost=TRANSFORM_SLOTS)
# The gradient of the kernel, (9 * channels, filters), from that at points.
KERNEL_SLOPES = Op("kernel_slopes", KIND, _slope_shape, not_evaluated, cost=TRANSFORM_SLOTS)


@dataclass(frozen=True)
class _Convolution:
    """A convolution that may be transformed."""

    image: Value
    filters: int

    @property
    def shape(self) -> Shape:
        """The shape of its result."""
        batch, height, width, _ = self.image.shape
        return batch, height - WINDOW + 1, width - WINDOW + 1, self.filters

    @property
    def places(self) -> tuple[int, int]:
        """The numbers of tiles along both axes of an image."""
        _, height, width, _ = self.shape
        return math.ceil(height / RESULTS), math.ceil(width / RESULTS)

    @property
    def tiles(self) -> int:
        """The tiles of all images."""
        return self.shape[0] * math.prod(self.places)

    def block(self, limits: Limits) -> int:
        """The tiles of a block that goes on from the image to the results in the L2 cache, with the
        kernel at all points; 0 if there is none. More blocks than one let workers share them."""
        channels, l2_bytes = self.image.shape[-1], limits.processor.l2_bytes
        if POINTS * f32.bytes * channels * self.filters > l2_bytes * TRANSFORM_KERNEL_SHARE:
            return 0
        tile = POINTS * f32.bytes * (channels + self.filters)
        most = min(int(l2_bytes * L2_SHARE), BLOCK_SUMS_BYTES) // tile
        sizes = [n for n in range(min(TRANSFORM_TILES, max(1, self.tiles // 2)), most + 1)
                 if self.tiles % n == 0]
        shared = [n for n in sizes if self.tiles // n >= BLOCK_ITERATIONS]
        return max(shared, default=min(sizes, default=0))

    def pays(self, plain: Sizes, at_point: Sizes, fixed: bool, limits: Limits) -> bool:
        """Whether its transform is faster: a product m x n x k becomes one `at_point` each."""
        channels = self.image.shape[-1]
        if min(channels, self.filters) < TRANSFORM_CHANNELS:
            return False
        if limits.grid is not None:
            return self._pays_on_grid(plain, at_point, fixed, limits.grid)
        products = POINTS * product_cycles(*at_point, limits, f32)
        after = products + transforms_cycles(POINTS, self.tiles, channels, self.filters,
                                             1 if fixed else WINDOW, limits)
        return after <= TRANSFORM_GAIN * product_cycles(*plain, limits, f32)

    def _pays_on_grid(self, plain: Sizes, at_point: Sizes, fixed: bool, grid: GridLimits) -> bool:
        """The same on a grid, whose buffers hold all points of the image and of the result."""
        channels, kernel = self.image.shape[-1], self.image.shape[-1] * self.filters
        if not _fits(max(self.tiles * max(channels, self.filters), kernel), grid):
            return False
        untransformed = self.image.size + math.prod(self.shape) + (not fixed) * WINDOW**2 * kernel
        transformed = POINTS * (self.tiles * (channels + self.filters) + kernel)
        return pays(plain, at_point, POINTS, untransformed, transformed, 2 + (not fixed), grid)


def _fits(elements: int, grid: GridLimits) -> bool:
    """Whether a buffer can hold some elements at each point."""
    most = min(grid.max_buffer_elements, grid.max_buffer_bytes // f32.bytes)
    return POINTS * elements <= most


def transformed(v: Value, fixed: bool, limits: Limits, prepared: Prepared,
                deep: Prepared) -> Value | None:
    """A convolution, or the gradient of its kernel, as products of transformed operands; None if it
    is another product, or if the transforms do not pay.

    Args:
        v: A product, which may be one of windows and a kernel, or of transposed windows and slopes.
        fixed: Whether the right operand is the same in every call.
        limits: The limits of the machine.
        prepared: Prepares the product at all points.
        deep: Prepares one of many steps along k, as a sum of parts.
    """
    if (product := transformed_slope(v, limits)) is not None:
        return KERNEL_SLOPES(deep(product, False))
    image = _image_of(v, without_copies(v.args[0]), limits)
    return None if image is None else _results(v, image, fixed, limits, prepared)


def transformed_slope(v: Value, limits: Limits) -> Value | None:
    """The gradient of a kernel as a product of transformed operands; None if v is no such product,
    or if the transforms do not pay.

    Args:
        v: A product, which may be one of transposed windows and slopes.
        limits: The limits of the machine.
    """
    left = without_copies(v.args[0])
    image = _image_of(v, OPS.transpose(left), limits) if v.rank == 2 else None
    if image is None:
        return None
    (m, filters), depth, channels = v.shape, left.shape[1], image.shape[-1]
    convolution = _Convolution(image, filters)
    if not convolution.pays((m, filters, depth), (channels, filters, convolution.tiles), False,
                            limits):
        return None
    slopes, (down, across) = OPS.reshape(v.args[1], convolution.shape), convolution.places
    at_points = SLOPES(slopes if _is_channels_last(slopes) else COPY(slopes), low=(0, 0), down=down,
                       across=across, rows=_padded_rows(convolution.tiles, filters, limits))
    tiles = OPS.transpose(_tiles(image, down, across, limits), (0, 2, 1))
    product, grid = v.op(tiles, _first_rows(at_points, convolution.tiles)), limits.grid
    parts = 1 if grid is None else short_parts(product, grid)
    fits = grid is None or _fits(parts * channels * filters, grid)
    return product if parts and fits else None


def _results(v: Value, image: Value, fixed: bool, limits: Limits,
             prepared: Prepared) -> Value | None:
    """A convolution of an image by transforms, if they pay."""
    (m, filters), depth, channels = v.shape, v.args[0].shape[1], image.shape[-1]
    convolution = _Convolution(image, filters)
    if not convolution.pays((m, filters, depth), (convolution.tiles, filters, channels), fixed,
                            limits):
        return None
    kernel, rows = _by_positions(v.args[1]), _padded_rows(channels, filters, limits)
    at_points = _first_rows(AT_POINTS(kernel, rows=rows), channels)
    down, across = convolution.places
    if limits.grid is None and (block := convolution.block(limits)):
        source, low = _stored_image(image)
        flops = 2 * POINTS * convolution.tiles * channels * filters
        y = CONVOLVED_TILES(source, at_points, shape=convolution.shape, low=low, down=down,
                            across=across, block=block, flops=flops)
    else:
        products = prepared(v.op(_tiles(image, down, across, limits), at_points), fixed)
        y = RESULTS_OF(products, shape=convolution.shape)
    return OPS.reshape(y, v.shape)


def _padded_rows(rows: int, columns: int, limits: Limits) -> int:
    """The rows at each point, padded on a processor so that the stride between points is not a
    multiple of the page size, which would cause conflict misses."""
    return rows + (limits.grid is None and rows * columns * f32.bytes % PAGE_BYTES == 0)


def _first_rows(at_points: Value, rows: int) -> Value:
    *outer, stored, columns = at_points.shape
    shape = (*outer, rows, columns)
    return at_points if rows == stored else OPS.slice(
        at_points, (0,) * len(shape), (1,) * len(shape), shape)


def _image_of(v: Value, left: Value, limits: Limits) -> Value | None:
    """The image whose 3 x 3 windows with stride 1 are the left operand of a product in float32;
    None if it is another, or if the user forbids transforms."""
    if not limits.transforms or v.dtype is not f32 or v.rank != 2:
        return None
    rows, depth = left.shape
    first = view_of(left, (Index(), Index()))
    if first is None or first[0].rank != len(IMAGE) or any(a.dtype is not f32 for a in v.args):
        return None
    image = first[0]
    batch, height, width, channels = image.shape
    down, across = height - WINDOW + 1, width - WINDOW + 1
    if rows != batch * down * across or depth != WINDOW ** 2 * channels:
        return None
    n, y, x = (Index.of(Var(f"r{k}", s)) for k, s in enumerate((batch, down, across)))
    i, j, c = (Index.of(Var(f"k{k}", s)) for k, s in enumerate((WINDOW, WINDOW, channels)))
    view = view_of(left, (flatten((n, y, x), (batch, down, across)),
                          flatten((i, j, c), (WINDOW, WINDOW, channels))))
    return image if view == (image, flatten((n, y + i, x + j, c), image.shape)) else None


def _by_positions(kernel: Value) -> Value:
    """The kernel, copied unless its filters are contiguous in memory."""
    position, column = Var("position", kernel.shape[0]), Var("column", kernel.shape[1])
    base = view_of(kernel, (Index.of(position), Index.of(column)))
    contiguous = base is not None and base[1].is_affine and base[1].factor(column) == 1
    return kernel if contiguous or not is_view(kernel) else COPY(kernel)


def _stored_image(image: Value) -> tuple[Value, Shape]:
    """An image in memory without the zeros around it, and how many are before each side."""
    low = (0,) * len(IMAGE)
    if image.op.name == "pad" and not is_view(image) and not image.attrs["value"] and (
            image.shape[::len(IMAGE) - 1] == image.args[0].shape[::len(IMAGE) - 1]):
        [image], low = image.args, image.attrs["low"]
    return image if _is_channels_last(image) else COPY(image), low[1:-1]


def _tiles(image: Value, down: int, across: int, limits: Limits) -> Value:
    """The transformed tiles of an image. Elements outside the image are zeros."""
    tiles, (source, low) = image.shape[0] * down * across, _stored_image(image)
    at_points = TILES(source, low=low, down=down, across=across,
                      rows=_padded_rows(tiles, image.shape[-1], limits))
    return _first_rows(at_points, tiles)


def _is_channels_last(image: Value) -> bool:
    """Whether an image is in memory with contiguous channels."""
    axes = [Var(name, n) for name, n in zip(IMAGE, image.shape, strict=True)]
    base = view_of(image, [Index.of(a) for a in axes])
    return base is not None and base[1].is_affine and base[1].factor(axes[-1]) == 1
