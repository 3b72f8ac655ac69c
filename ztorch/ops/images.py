"""Images: resizing, cropping, padding and colors, with Keras' arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, constant, shape_error
from ztorch.graph.value import Value
from ztorch.ops.blending import blend
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import widened

GRAY = (0.2989, 0.587, 0.114)  # weights of red, green and blue in perceived brightness
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")


def _linear(x: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(x: np.ndarray) -> np.ndarray:
    """The kernel of Keys with a = -1/2."""
    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x * x + 1.0, ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _lanczos(radius: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.where(np.abs(x) < radius, np.sinc(x) * np.sinc(x / radius), 0.0)


_KERNELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "bilinear": _linear, "bicubic": _cubic, "lanczos3": _lanczos(3), "lanczos5": _lanczos(5)}


def kernel_of(interpolation: str) -> Callable[[np.ndarray], np.ndarray]:
    """The weight of an element as a function of its distance."""
    return _KERNELS[interpolation]


def weights_between(length: int, new_length: int, antialias: bool = False,
                    interpolation: str = "bilinear") -> np.ndarray:
    """The matrix that interpolates `length` elements to `new_length` ones. Its rows sum to 1.

    Interpolation is between the centers of elements. With antialias, a new element is a weighted
    mean of all elements that it covers.

    >>> weights_between(4, 2).tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    """
    step = length / new_length
    middles = (np.arange(new_length) + 0.5) * step
    distances = np.arange(length) + 0.5 - middles[:, None]
    weights = _KERNELS[interpolation](distances / (max(step, 1.0) if antialias else 1.0))
    return weights / weights.sum(1, keepdims=True)


def resized(x: Value, height: int, width: int, interpolation: str = "bilinear",
            antialias: bool = False) -> Value:
    """Images (channels last), resized."""
    for axis, size in ((1, height), (2, width)):
        n = x.shape[axis]
        if n == size:
            continue
        if interpolation == "nearest":
            nearest = ((np.arange(size) + 0.5) * (n / size)).astype(np.int32)
            x = OPS.take(x, constant(nearest), axis)
            continue
        x = blend(x, weights_between(n, size, antialias, interpolation), axis)
    return x


def centered(x: Value, height: int, width: int) -> Value:
    """The center of images (channels last), in this size."""
    top, left = (x.shape[1] - height) // 2, (x.shape[2] - width) // 2
    return OPS.slice(x, (0, top, left, 0), (1,) * 4, (x.shape[0], height, width, x.shape[3]))


def same_shape(x: Value, height: int, width: int) -> tuple[int, int]:
    """The largest size within images with the aspect ratio of height and width."""
    rows, columns = x.shape[1], x.shape[2]
    return (max(min(rows, columns * height // width), 1),
            max(min(columns, rows * width // height), 1))


def widened_to(x: Value, height: int, width: int, fill_value: float) -> Value:
    """Images (channels last), padded to the aspect ratio of height and width: by as much on both
    sides, so that an odd number of pixels lacks one, as in Keras."""
    rows, columns = x.shape[1], x.shape[2]
    wide = max(rows, columns * height // width), max(columns, rows * width // height)
    margin = (0, (wide[0] - rows) // 2, (wide[1] - columns) // 2, 0)
    return OPS.pad(x, margin, margin, fill_value)


def on_images(name: str, x: Value, data_format: str | None,
              change: Callable[[Value], Value], floats: bool = True) -> Value:
    """Applies a function of channels-last batches to one image or a batch. If it takes floats, it
    gets those of 16 bits as float32, whose positions and squares they may not hold."""
    if data_format not in (None, "channels_last", "channels_first"):
        raise shape_error(f"ops.{name}(data_format={data_format!r}) must be 'channels_last' or "
                          "'channels_first'")
    if x.rank not in (3, 4):
        raise shape_error(f"ops.{name} takes an image or a batch of images, not", x.shape)
    d = x.dtype
    if floats:
        [x] = as_floats(x)
        x, d = widened(x), x.dtype
    single, first = x.rank == 3, data_format == "channels_first"
    x = OPS.expand_dims(x, 0) if single else x
    y = change(OPS.transpose(x, (0, 2, 3, 1)) if first else x)
    y = OPS.cast(OPS.transpose(y, (0, 3, 1, 2)) if first else y, d)
    return OPS.reshape(y, y.shape[1:]) if single else y


@composition(Sample(((2, 5, 4, 3),), {"size": (3, 6)}))
def resize(images: Value, size: Sequence[int], interpolation: str = "bilinear",
           antialias: bool = False, crop_to_aspect_ratio: bool = False,
           pad_to_aspect_ratio: bool = False, fill_mode: str = "constant",
           fill_value: float = 0.0, data_format: str | None = None) -> Value:
    """Resizes images, as floats.

    Args:
        images: An image `(rows, columns, channels)`, or a batch of them.
        size: The new rows and columns.
        interpolation: "nearest", "bilinear", "bicubic", "lanczos3" or "lanczos5". Default:
            `"bilinear"`.
        antialias: Whether shrinking averages all pixels that an output pixel covers. Default:
            `False`.
        crop_to_aspect_ratio: Whether to first crop images to the new aspect ratio. Default:
            `False`.
        pad_to_aspect_ratio: Whether to first pad images to the new aspect ratio. Default: `False`.
        fill_mode: Only "constant": pads with `fill_value`. Default: `"constant"`.
        fill_value: Value of the padding. Default: `0.0`.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        The images.
    """
    if interpolation not in INTERPOLATIONS:
        raise shape_error(f"ops.resize(interpolation={interpolation!r}) must be one of "
                          f"{', '.join(INTERPOLATIONS)}")
    if fill_mode != "constant" or (crop_to_aspect_ratio and pad_to_aspect_ratio):
        raise shape_error("ops.resize takes fill_mode='constant', and one of crop_to_aspect_ratio "
                          "and pad_to_aspect_ratio")
    height, width = map(int, size)

    def change(x: Value) -> Value:
        if crop_to_aspect_ratio:
            x = centered(x, *same_shape(x, height, width))
        elif pad_to_aspect_ratio:
            x = widened_to(x, height, width, fill_value)
        return resized(x, height, width, interpolation, antialias)

    return on_images("resize", images, data_format, change)


def _edges(name: str, length: int, low: int | None, high: int | None,
           target: int | None, sign: int) -> tuple[int, int]:
    """The number of pixels to cut (sign -1) or add (1) at both ends of an axis."""
    if [low, high, target].count(None) != 1:
        raise shape_error(f"ops.{name} takes two of three numbers per axis: those of both "
                          "ends, and the size of the result")
    change = 0 if target is None else sign * (target - length)
    low = change - (high or 0) if low is None else low
    high = change - low if high is None else high
    if low < 0 or high < 0:
        raise shape_error(f"ops.{name}: cannot use {low} and {high} pixels at the ends of {length}")
    return low, high


@composition(Sample(((2, 5, 4, 3),), {"top_cropping": 1, "left_cropping": 0, "target_height": 3,
                                      "target_width": 2}))
def crop_images(images: Value, top_cropping: int | None = None, left_cropping: int | None = None,
                bottom_cropping: int | None = None, right_cropping: int | None = None,
                target_height: int | None = None, target_width: int | None = None,
                data_format: str | None = None) -> Value:
    """Crops images. Two of three numbers per axis are required.

    Args:
        images: An image `(rows, columns, channels)`, or a batch of them.
        top_cropping: Rows to remove at the top. Default: `None`.
        left_cropping: Columns to remove on the left. Default: `None`.
        bottom_cropping: Rows to remove at the bottom. Default: `None`.
        right_cropping: Columns to remove on the right. Default: `None`.
        target_height: Rows of the result. Default: `None`.
        target_width: Columns of the result. Default: `None`.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        The images.
    """
    def change(x: Value) -> Value:
        top, bottom = _edges("crop_images", x.shape[1], top_cropping, bottom_cropping,
                             target_height, -1)
        left, right = _edges("crop_images", x.shape[2], left_cropping, right_cropping,
                             target_width, -1)
        return x[:, top:x.shape[1] - bottom, left:x.shape[2] - right]

    return on_images("crop_images", images, data_format, change, floats=False)


@composition(Sample(((2, 5, 4, 3),), {"top_padding": 1, "left_padding": 0, "target_height": 7,
                                      "target_width": 6}))
def pad_images(images: Value, top_padding: int | None = None, left_padding: int | None = None,
               bottom_padding: int | None = None, right_padding: int | None = None,
               target_height: int | None = None, target_width: int | None = None,
               data_format: str | None = None) -> Value:
    """Pads images with zeros. Two of three numbers per axis are required.

    Args:
        images: An image `(rows, columns, channels)`, or a batch of them.
        top_padding: Rows to add at the top. Default: `None`.
        left_padding: Columns to add on the left. Default: `None`.
        bottom_padding: Rows to add at the bottom. Default: `None`.
        right_padding: Columns to add on the right. Default: `None`.
        target_height: Rows of the result. Default: `None`.
        target_width: Columns of the result. Default: `None`.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        The images.
    """
    def change(x: Value) -> Value:
        top, bottom = _edges("pad_images", x.shape[1], top_padding, bottom_padding,
                             target_height, 1)
        left, right = _edges("pad_images", x.shape[2], left_padding, right_padding,
                             target_width, 1)
        return OPS.pad(x, (0, top, left, 0), (0, bottom, right, 0))

    return on_images("pad_images", images, data_format, change, floats=False)


@composition(Sample(((2, 5, 4, 3),), {"size": 2}))
def extract_patches(images: Value, size: int | Sequence[int],
                    strides: int | Sequence[int] | None = None,
                    dilation_rate: int | Sequence[int] = 1, padding: str = "valid",
                    data_format: str | None = None) -> Value:
    """Extracts patches of images, each as a vector of its rows, columns and channels.

    Args:
        images: An image `(rows, columns, channels)`, or a batch of them.
        size: Rows and columns of a patch, or one number for both.
        strides: Distance between patches; `None` means `size`. Default: `None`.
        dilation_rate: Distance between the pixels of a patch. Default: `1`.
        padding: "valid" or "same". Default: `"valid"`.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        `(batch, rows, columns, size of a patch)`.
    """
    rows, columns = (size, size) if isinstance(size, int) else map(int, size)

    def change(x: Value) -> Value:
        count = rows * columns * x.shape[-1]
        kernel = constant(np.eye(count).reshape(rows, columns, x.shape[-1], count), x.dtype)
        return OPS.conv(x, kernel, strides or (rows, columns), padding, dilation_rate)

    return on_images("extract_patches", images, data_format, change)
