"""Comparison, scaling, perspective and edges of images, and patches of volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, constant, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.images import kernel_of, on_images
from ztorch.ops.reduction import widened

_SQUARE = np.array([[0.0, 0.0], [0.0, 4.0], [5.0, 0.0], [5.0, 4.0]])
_BENT = np.array([[0.5, 0.0], [0.0, 3.5], [5.0, 0.5], [4.5, 4.0]])
_METHODS = {**dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), "bilinear"),
            **dict.fromkeys(("cubic", "bicubic", "tricubic"), "bicubic"),
            "lanczos3": "lanczos3", "lanczos5": "lanczos5"}
_SOBEL = np.array([[-1.0, -2.0, -1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 1.0]])
_LEAST_SHARE = 1000 * 2.0 ** -23  # smaller sums of weights count as zero, as in Keras


@composition(Sample(((2, 5, 4, 3),)))
def sobel_edges(images: Value, data_format: str | None = None) -> Value:
    """Sobel edges: the change of each pixel along rows and along columns.

    Args:
        images: Images `(batch, rows, columns, channels)`.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        The differences along rows and along columns, in a last axis of 2.
    """
    def change(x: Value) -> Value:
        kernel = np.stack([_SOBEL, _SOBEL.T], axis=-1)[:, :, None]
        kernel = np.tile(kernel, (1, 1, x.shape[-1], 1))
        return OPS.depthwise_conv(x, constant(kernel, x.dtype), padding="same")

    y = on_images("sobel_edges", images, data_format, change)
    if data_format == "channels_first":
        channels = y.shape[-3] // 2
        y = OPS.reshape(y, (*y.shape[:-3], channels, 2, *y.shape[-2:]))
        return OPS.moveaxis(y, -3, -1)
    return OPS.reshape(y, (*y.shape[:-1], y.shape[-1] // 2, 2))


@composition(Sample(((2, 12, 12, 3), (2, 12, 12, 3)), low=0.0, high=1.0))
def ssim(image1: Value, image2: Value, max_val: float = 1.0, filter_size: int = 11,
         filter_sigma: float = 1.5, k1: float = 0.01, k2: float = 0.03,
         data_format: str | None = None) -> Value:
    """The structural similarity of images, which is 1 for equal images.

    Args:
        image1: An image `(rows, columns, channels)`, or a batch of them.
        image2: Images of the same shape.
        max_val: The largest value of a pixel. Default: `1.0`.
        filter_size: Rows and columns of the comparison window. Default: `11`.
        filter_sigma: The standard deviation of the window's weights. Default: `1.5`.
        k1: Stabilizer of the comparison of brightness. Default: `0.01`.
        k2: Stabilizer of the comparison of contrast. Default: `0.03`.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        A number for each image.
    """
    if image1.shape != image2.shape:
        raise shape_error("ops.ssim compares images of one shape, not", image1.shape, image2.shape)
    axis = np.exp(-((np.arange(filter_size) - (filter_size - 1) / 2) / filter_sigma) ** 2 / 2)
    window = np.multiply.outer(axis, axis) / axis.sum() ** 2
    c1, c2 = (k1 * max_val) ** 2, (k2 * max_val) ** 2

    def change(pair: Value) -> Value:
        kernel = constant(np.tile(window[..., None, None], (1, 1, pair.shape[-1], 1)), pair.dtype)
        count = pair.shape[-1] // 2

        def mean(x: Value) -> Value:
            return OPS.depthwise_conv(x, kernel[:, :, :x.shape[-1]])

        x, y = pair[..., :count], pair[..., count:]
        means = mean(pair)
        mx, my = means[..., :count], means[..., count:]
        squares = mean(pair * pair) - means * means
        covariance = mean(x * y) - mx * my
        likeness = (2.0 * mx * my + c1) * (2.0 * covariance + c2) / (
            (mx * mx + my * my + c1) * (squares[..., :count] + squares[..., count:] + c2))
        return OPS.mean(likeness, axis=(1, 2, 3), keepdims=True)

    channel = -3 if data_format == "channels_first" else -1
    y = on_images("ssim", OPS.concat(*map(_float, (image1, image2)), axis=channel), data_format,
                  change)
    return OPS.reshape(y, image1.shape[:-3])


def _float(x: Value) -> Value:
    [x] = as_floats(x)
    return x


@composition(Sample(((2, 5, 4, 6, 2),), {"size": 2}))
def extract_patches_3d(volumes: Value, size: int | Sequence[int],
                       strides: int | Sequence[int] | None = None,
                       dilation_rate: int | Sequence[int] = 1, padding: str = "valid",
                       data_format: str | None = None) -> Value:
    """Extracts patches of volumes, each as a vector of its depth, rows, columns and channels.

    Args:
        volumes: A volume `(depth, rows, columns, channels)`, or a batch of them.
        size: Depth, rows and columns of a patch, or one number for all.
        strides: Distance between patches; `None` means `size`. Default: `None`.
        dilation_rate: Distance between the elements of a patch. Default: `1`.
        padding: "valid" or "same". Default: `"valid"`.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        `(batch, depth, rows, columns, size of a patch)`.
    """
    if volumes.rank not in (4, 5):
        raise shape_error("ops.extract_patches_3d takes a volume or a batch of volumes, not",
                          volumes.shape)
    [x] = as_floats(volumes)
    single, first = x.rank == 4, data_format == "channels_first"
    x = OPS.expand_dims(x, 0) if single else x
    x = OPS.moveaxis(x, 1, -1) if first else x
    sizes = (size,) * 3 if isinstance(size, int) else tuple(map(int, size))
    count = int(np.prod(sizes)) * x.shape[-1]
    kernel = constant(np.eye(count).reshape(*sizes, x.shape[-1], count), x.dtype)
    y = OPS.conv(x, kernel, strides or sizes, padding, dilation_rate)
    y = OPS.moveaxis(y, -1, 1) if first else y
    return OPS.reshape(y, y.shape[1:]) if single else y


@composition(Sample(((2, 4, 5, 3), _SQUARE, _BENT)))
def perspective_transform(images: Value, start_points: Value, end_points: Value,
                          interpolation: str = "bilinear", fill_value: float = 0.0,
                          data_format: str | None = None) -> Value:
    """Applies a perspective transform that moves four points of each image to four others.

    Args:
        images: An image `(rows, columns, channels)`, or a batch of them.
        start_points: Points (x, y) of an image, `(4, 2)`, or four per image.
        end_points: Their positions in the result.
        interpolation: "nearest" or "bilinear". Default: `"bilinear"`.
        fill_value: The value outside the image. Default: `0.0`.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        The images.
    """
    for points in (start_points, end_points):
        if points.rank not in (2, 3) or points.shape[-2:] != (4, 2):
            raise shape_error("ops.perspective_transform takes four points (x, y), not",
                              points.shape)
    [x] = as_floats(images)
    start, end = (OPS.cast(p if p.rank == 3 else OPS.expand_dims(p, 0), widened(x).dtype)
                  for p in (start_points, end_points))
    # Eight equations: where each end point samples the image.
    ones, zeros = OPS.ones_like(end[..., :1]), OPS.zeros_like(end)
    place = OPS.concat(end, ones, axis=-1)
    nothing = OPS.concat(zeros, zeros[..., :1], axis=-1)
    rows = [OPS.concat(*terms, -start[..., k:k + 1] * end, axis=-1)
            for k, terms in enumerate(((place, nothing), (nothing, place)))]
    equations = OPS.concat(*rows, axis=-2)
    values = OPS.concat(start[..., :1], start[..., 1:], axis=-2)
    transform = OPS.squeeze(OPS.solve(equations, values), -1)
    return OPS.affine_transform(x, transform, interpolation, "constant", fill_value, data_format)


@composition(Sample(((3, 4),), {"output_shape": (5, 6), "scale": (2.0, 1.5),
                                "translation": (-0.5, 0.25), "spatial_dims": (0, 1),
                                "method": "linear"}))
def scale_and_translate(images: Value, output_shape: Sequence[int], scale: Any, translation: Any,
                        spatial_dims: Sequence[int], method: str, antialias: bool = True) -> Value:
    """Scales and translates images by any amount, with zeros outside.

    Args:
        images: Numbers.
        output_shape: The shape of the result.
        scale: The factor along each of `spatial_dims`, as numbers, not as a tensor of a model.
        translation: The shift along each, in pixels of the result.
        spatial_dims: The axes to scale.
        method: "linear", "cubic", "lanczos3" or "lanczos5".
        antialias: Whether shrinking averages all pixels that an output pixel covers. Default:
            `True`.

    Returns:
        The images.
    """
    if method not in _METHODS:
        raise shape_error(f"ops.scale_and_translate(method={method!r}) must be one of "
                          f"{', '.join(_METHODS)}")
    [x] = as_floats(images)
    kernel = kernel_of(_METHODS[method])
    factors, moves = (np.broadcast_to(np.asarray(v, np.float64), (len(spatial_dims),))
                      for v in (scale, translation))
    for axis, factor, moved in zip(spatial_dims, factors, moves, strict=True):
        n, size = x.shape[axis], int(output_shape[axis])
        places = (np.arange(size) + 0.5 - moved) / factor - 0.5
        width = max(1.0 / factor, 1.0) if antialias else 1.0
        weights = kernel((np.arange(n) - places[:, None]) / width)
        total = weights.sum(1, keepdims=True)
        weights = np.where(abs(total) > _LEAST_SHARE, weights / np.where(total, total, 1.0), 0.0)
        weights[(places < -0.5) | (places > n - 0.5)] = 0.0
        along = OPS.moveaxis(x, axis, -1)
        y = OPS.matmul(OPS.reshape(along, (-1, n)), constant(weights.T, x.dtype))
        x = OPS.moveaxis(OPS.reshape(y, (*along.shape[:-1], size)), -1, axis)
    if x.shape != tuple(output_shape):
        raise shape_error(f"ops.scale_and_translate: output_shape={tuple(output_shape)} differs "
                          f"beyond the axes {tuple(spatial_dims)} of", x.shape)
    return OPS.cast(OPS.round(x), images.dtype) if images.dtype.is_int else x
