"""The colors of images: brightness, hue and saturation."""

from __future__ import annotations

from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, shape_error
from ztorch.graph.value import Value
from ztorch.ops.images import GRAY, on_images


def colors(x: Value) -> list[Value]:
    """Red, green and blue, each with an axis of channels."""
    if x.shape[-1] != 3:
        raise shape_error("color images have the channels red, green and blue, not",
                          x.shape[1:])
    return [x[..., k:k + 1] for k in range(3)]


def gray(x: Value) -> Value:
    """The brightness of each pixel, in one channel."""
    red, green, blue = (channel * share for channel, share in zip(colors(x), GRAY, strict=True))
    return red + green + blue


def hue_and_saturation(x: Value) -> tuple[Value, Value, Value]:
    """Hue and saturation, from 0 to 1, and value, the maximum of the colors."""
    red, green, blue = colors(x)
    value, low = OPS.max(x, -1, True), OPS.min(x, -1, True)
    span = value - low
    is_gray, is_black = span <= 0.0, value <= 0.0
    saturation = OPS.where(is_black, 0.0, span / OPS.where(is_black, 1.0, value))
    sixth = 1.0 / (6.0 * OPS.where(is_gray, 1.0, span))
    hue = OPS.where(OPS.equal(value, red), sixth * (green - blue), OPS.where(
        OPS.equal(value, green), sixth * (blue - red) + 2 / 6, sixth * (red - green) + 4 / 6))
    return OPS.where(is_gray, 0.0, hue) + OPS.cast(hue < 0.0, x.dtype), saturation, value


def from_hue(hue: Value, saturation: Value, value: Value) -> Value:
    """The image with this hue, saturation and value."""
    sector = OPS.remainder(hue, 1.0) * 6.0
    shares = (OPS.clip(OPS.abs(sector - 3.0) - 1.0, 0.0, 1.0),
              OPS.clip(2.0 - OPS.abs(sector - 2.0), 0.0, 1.0),
              OPS.clip(2.0 - OPS.abs(sector - 4.0), 0.0, 1.0))
    return OPS.concat(*(value * (1.0 - saturation + saturation * share) for share in shares),
                      axis=-1)


@composition(Sample(((2, 3, 4, 3),)))
def rgb_to_grayscale(images: Value, data_format: str | None = None) -> Value:
    """Converts RGB images to grayscale.

    Args:
        images: An image `(rows, columns, 3)`, or a batch of them.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        Images with one channel.
    """
    return on_images("rgb_to_grayscale", images, data_format, gray)


@composition(Sample(((2, 3, 4, 3),)))
def rgb_to_hsv(images: Value, data_format: str | None = None) -> Value:
    """Converts RGB images to hue, saturation and value.

    Args:
        images: An image `(rows, columns, 3)` of numbers from 0 to 1, or a batch of them.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        The images, with numbers from 0 to 1.
    """
    return on_images("rgb_to_hsv", images, data_format,
                     lambda x: OPS.concat(*hue_and_saturation(x), axis=-1))


@composition(Sample(((2, 3, 4, 3),)))
def hsv_to_rgb(images: Value, data_format: str | None = None) -> Value:
    """Converts images of hue, saturation and value to RGB.

    Args:
        images: An image `(rows, columns, 3)` of numbers from 0 to 1, or a batch of them.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        The images, with numbers from 0 to 1.
    """
    return on_images("hsv_to_rgb", images, data_format, lambda x: from_hue(*colors(x)))
