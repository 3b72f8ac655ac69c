"""Images sampled at fractional positions: translated, rotated, blurred."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, constant, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.images import on_images

FILL_MODES = ("reflect", "wrap", "constant", "nearest", "mirror")
FARTHEST = 1e6  # pixels from the image; farther positions are clipped, so they fit in int32


def neighbors(position: Value, interpolation: str) -> list[tuple[Value, Value]]:
    """The elements to read along one axis, and the weight of each."""
    position = OPS.clip(position, -FARTHEST, FARTHEST)
    if interpolation == "nearest":
        return [(OPS.cast(OPS.round(position), "int32"), OPS.ones_like(position))]
    low = OPS.floor(position)
    index, share = OPS.cast(low, "int32"), position - low
    return [(index, 1.0 - share), (index + 1, share)]


def inside(index: Value, size: int, fill_mode: str) -> Value:
    """The element that replaces one outside an axis."""
    if fill_mode == "wrap":
        return OPS.remainder(index, size)
    if fill_mode == "reflect":
        index = OPS.remainder(index, 2 * size)
        return OPS.where(index < size, index, 2 * size - 1 - index)
    if fill_mode == "mirror":
        index = OPS.remainder(index, max(2 * size - 2, 1))
        return OPS.where(index < size, index, 2 * size - 2 - index)
    return OPS.clip(index, 0, size - 1)


def read_at(x: Value, row: Value, column: Value, interpolation: str, fill_mode: str,
            fill_value: float) -> Value:
    """Samples images at positions that may be fractional or outside.

    Args:
        x: Images `(batch, rows, columns, channels)`.
        row: Position of each output pixel, `(batch, rows, columns, 1)`, 0 for the first row.
        column: The same along the columns.
        interpolation: "nearest" or "bilinear".
        fill_mode: How to fill pixels from outside the image; one of FILL_MODES.
        fill_value: The fill value for "constant".
    """
    batch, rows, columns, channels = x.shape
    flat = OPS.reshape(x, (batch, rows * columns, channels))
    total = None
    for (i, row_share), (j, column_share) in itertools.product(
            neighbors(row, interpolation), neighbors(column, interpolation)):
        at = inside(i, rows, fill_mode) * columns + inside(j, columns, fill_mode)
        at = OPS.broadcast_to(OPS.reshape(at, (batch, rows * columns, 1)), flat.shape)
        pixel = OPS.reshape(OPS.take_along_axis(flat, at, 1), x.shape)
        if fill_mode == "constant":
            exists = (i >= 0) & (i < rows) & (j >= 0) & (j < columns)
            pixel = OPS.where(exists, pixel, fill_value)
        part = pixel * (row_share * column_share)
        total = part if total is None else total + part
    assert total is not None
    return total


def pixels(x: Value) -> tuple[Value, Value]:
    """The row and the column of each pixel of images, as `(1, rows, columns, 1)`."""
    grid = (1, x.shape[1], x.shape[2], 1)
    row, column = (OPS.cast(OPS.iota(grid, axis, "int32"), x.dtype) for axis in (1, 2))
    return row, column


def _need_mode(name: str, fill_mode: str) -> None:
    if fill_mode not in FILL_MODES:
        raise shape_error(f"ops.{name}(fill_mode={fill_mode!r}) must be one of "
                          f"{', '.join(FILL_MODES)}")


@composition(Sample(((2, 4, 5, 3), (2, 8))))
def affine_transform(images: Value, transform: Value, interpolation: str = "bilinear",
                     fill_mode: str = "constant", fill_value: float = 0.0,
                     data_format: str | None = None) -> Value:
    """Applies an affine transform: translation, rotation, scaling and shear.

    The pixel (x, y) of the result samples the image at ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2)
    / k), with k = c0 x + c1 y + 1.

    Args:
        images: An image `(rows, columns, channels)`, or a batch of them.
        transform: The numbers a0, a1, a2, b0, b1, b2, c0 and c1, for all images or per image.
        interpolation: "nearest" or "bilinear". Default: `"bilinear"`.
        fill_mode: How to fill pixels from outside the image: "constant", "nearest", "wrap",
            "mirror" or "reflect". Default: `"constant"`.
        fill_value: The fill value for "constant". Default: `0.0`.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        The images.
    """
    _need_mode("affine_transform", fill_mode)

    def change(x: Value) -> Value:
        numbers = OPS.broadcast_to(OPS.cast(transform, x.dtype), (x.shape[0], 8))
        a0, a1, a2, b0, b1, b2, c0, c1 = (
            OPS.reshape(numbers[:, k], (-1, 1, 1, 1)) for k in range(8))
        row, column = pixels(x)
        k = c0 * column + c1 * row + 1.0
        one_channel = (x.shape[0], *x.shape[1:3], 1)
        return read_at(x, OPS.broadcast_to((b0 * column + b1 * row + b2) / k, one_channel),
                       OPS.broadcast_to((a0 * column + a1 * row + a2) / k, one_channel),
                       interpolation, fill_mode, fill_value)

    return on_images("affine_transform", images, data_format, change)


@composition(Sample(((4, 5), (2, 3, 2)), {"order": 1}))
def map_coordinates(inputs: Value, coordinates: Value, order: int, fill_mode: str = "constant",
                    fill_value: float = 0.0) -> Value:
    """Samples a tensor at positions that may be fractional.

    Args:
        inputs: Numbers.
        coordinates: For each axis of `inputs`, the positions along it, `(axes, ...)`.
        order: 0 reads the nearest element, 1 interpolates.
        fill_mode: How to fill elements from outside: "constant", "nearest", "wrap", "mirror" or
            "reflect". Default: `"constant"`.
        fill_value: The fill value for "constant". Default: `0.0`.

    Returns:
        Numbers in the shape of one of the `coordinates`.
    """
    _need_mode("map_coordinates", fill_mode)
    if order not in (0, 1) or coordinates.shape[0] != inputs.rank:
        raise shape_error(f"ops.map_coordinates takes order 0 or 1, and coordinates for each of "
                          f"the {inputs.rank} axes, not", coordinates.shape)
    [x] = as_floats(inputs)
    flat, total = OPS.reshape(x, (-1,)), None
    along = [neighbors(OPS.cast(coordinates[k], x.dtype), "bilinear" if order else "nearest")
             for k in range(x.rank)]
    for corner in itertools.product(*along):
        at, exists, share = None, None, None
        for (index, part), size in zip(corner, x.shape, strict=True):
            place = inside(index, size, fill_mode)
            within = (index >= 0) & (index < size)
            at = place if at is None else at * size + place
            exists = within if exists is None else exists & within
            share = part if share is None else share * part
        number = OPS.take(flat, at, 0)
        if fill_mode == "constant":
            number = OPS.where(exists, number, fill_value)
        total = number * share if total is None else total + number * share
    assert total is not None
    return total


@composition(Sample(((2, 5, 4, 3),)))
def gaussian_blur(images: Value, kernel_size: Sequence[int] = (3, 3),
                  sigma: Sequence[float] = (1.0, 1.0), data_format: str | None = None) -> Value:
    """Applies a Gaussian blur, with zeros outside the images.

    Args:
        images: An image `(rows, columns, channels)`, or a batch of them.
        kernel_size: Rows and columns of the window. Default: `(3, 3)`.
        sigma: Standard deviations of the weights along both. Default: `(1.0, 1.0)`.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        The images.
    """
    def change(x: Value) -> Value:
        weights = np.ones(())
        for n, deviation in zip(kernel_size, sigma, strict=True):
            axis = np.exp(-((np.arange(n) - (n - 1) / 2) / deviation) ** 2 / 2)
            weights = np.multiply.outer(weights, axis / axis.sum())
        kernel = np.tile(weights[..., None, None], (1, 1, x.shape[-1], 1))
        return OPS.depthwise_conv(x, constant(kernel, x.dtype), padding="same")

    return on_images("gaussian_blur", images, data_format, change)
