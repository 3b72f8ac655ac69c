"""Functions of `keras.utils` for single images. Images are objects of Pillow."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.data.images import IMAGES, Fitting, pillow, read_image
from ztorch.errors import ConfigError, DataError

_COLORS = {"grayscale": "L", "rgb": "RGB", "rgba": "RGBA"}
_FILTERS = {"nearest": "NEAREST", "bilinear": "BILINEAR", "bicubic": "BICUBIC",
            "lanczos": "LANCZOS", "box": "BOX", "hamming": "HAMMING"}  # Pillow's names
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@checked
def load_img(path: str | os.PathLike[str], color_mode: str = "rgb",
             target_size: tuple[int, int] | None = None, interpolation: str = "nearest",
             keep_aspect_ratio: bool = False) -> Any:
    """Reads an image.

    Args:
        path: The file.
        color_mode: "grayscale", "rgb" or "rgba". Default: `"rgb"`.
        target_size: (height, width) to resize it to; None: its own size. Default: `None`.
        interpolation: How to resize: "nearest", "bilinear", "bicubic",
            "lanczos", "box" or "hamming". Default: `"nearest"`.
        keep_aspect_ratio: Whether to crop the image around its center to the aspect ratio of
            `target_size` first. Default: `False`.

    Returns:
        An image of Pillow; `img_to_array` converts it to an array.

    Raises:
        DataError: There is no such file, or it cannot be read.
        Unsupported: Pillow is not installed: pip install ztorch[images].

    Examples:
        >>> import tempfile
        >>> path = f"{tempfile.mkdtemp()}/cat.png"
        >>> save_img(path, np.ones((4, 6, 3)))
        >>> img_to_array(load_img(path, target_size=(2, 2))).shape
        (2, 2, 3)
    """
    if color_mode not in _COLORS:
        raise ConfigError(f"color_mode={color_mode!r} must be one of "
                          f"{', '.join(map(repr, _COLORS))}")
    if interpolation not in _FILTERS:
        raise ConfigError(f"interpolation={interpolation!r} must be one of "
                          f"{', '.join(map(repr, _FILTERS))}")
    image = read_image(Path(path)).convert(_COLORS[color_mode])
    if target_size is None or image.size == (target_size[1], target_size[0]):
        return image
    height, width = target_size
    box = None
    if keep_aspect_ratio:
        box = Fitting(keeps="crop").box(image.size, (width, height))
    return image.resize((width, height), pillow().Resampling[_FILTERS[interpolation]], box)


def img_to_array(img: Any, data_format: str | None = None, dtype: str | None = None) -> np.ndarray:
    """An image as an array.

    Args:
        img: An image of Pillow, or an array (height, width) or of three axes.
        data_format: "channels_last" or "channels_first"; None: "channels_last". Default: `None`.
        dtype: The dtype; None: "float32". Default: `None`.

    Returns:
        An array (height, width, channels), of numbers from 0 to 255.

    Examples:
        >>> img_to_array(np.zeros((2, 3), np.uint8)).shape
        (2, 3, 1)
    """
    x = np.asarray(img, dtype or "float32")
    if x.ndim == 2:
        x = x[..., None]
    if x.ndim != 3:
        raise DataError(f"img_to_array takes an image, not an array of shape {x.shape}")
    return x.transpose(2, 0, 1) if _is_channels_first(data_format) else x


def array_to_img(x: Any, data_format: str | None = None, scale: bool = True,
                 dtype: str | None = None) -> Any:
    """An array as an image.

    Args:
        x: An array (height, width, channels) of 1, 3 or 4 channels.
        data_format: "channels_last" or "channels_first"; None: "channels_last". Default: `None`.
        scale: Whether to scale numbers, the smallest to black and the largest to white. Default:
            `True`.
        dtype: The dtype to compute in; None: "float32". Default: `None`.

    Returns:
        An image of Pillow.

    Raises:
        DataError: The array does not have the shape of an image.
        Unsupported: Pillow is not installed: pip install ztorch[images].

    Examples:
        >>> array_to_img(np.ones((4, 6, 3))).size
        (6, 4)
    """
    x = np.array(x, dtype or "float32")
    x = x.transpose(1, 2, 0) if _is_channels_first(data_format) and x.ndim == 3 else x
    if x.ndim != 3 or x.shape[2] not in _MODES:
        raise DataError("array_to_img takes (height, width, channels) with 1, 3 or 4 channels, not "
                        f"{x.shape}")
    if scale:
        x = x - x.min()
        x = x / (x.max() or 1.0) * 255
    pixels = x.astype(np.uint8)
    return pillow().fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def save_img(path: str | os.PathLike[str], x: Any, data_format: str | None = None,
             file_format: str | None = None, scale: bool = True, **kwargs: Any) -> None:
    """Saves an array as an image file.

    Args:
        path: The file; its suffix is the format.
        x: An array (height, width, channels) of 1, 3 or 4 channels.
        data_format: "channels_last" or "channels_first"; None: "channels_last". Default: `None`.
        file_format: The format, such as "png", if the name has no suffix. Default: `None`.
        scale: Whether to scale numbers, the smallest to black and the largest to white. Default:
            `True`.
        **kwargs: Further arguments of Pillow's `save`, such as `quality`.

    Examples:
        >>> import os, tempfile
        >>> path = f"{tempfile.mkdtemp()}/noise.png"
        >>> save_img(path, np.random.rand(32, 32, 3))
        >>> os.path.exists(path)
        True
    """
    suffix = f".{file_format}" if file_format else Path(path).suffix
    kind = IMAGES.get(suffix.lower())
    if kind is None:
        raise ConfigError(f"save_img({str(path)!r}): the name must end in one of "
                          f"{', '.join(IMAGES)}, or file_format= must name the format")
    image = array_to_img(x, data_format, scale)
    if image.mode == "RGBA" and kind == "JPEG":
        warnings.warn("JPEG has no transparency, so it is dropped", stacklevel=2)
        image = image.convert("RGB")
    image.save(path, format=kind, **kwargs)


def _is_channels_first(data_format: str | None) -> bool:
    if data_format not in (None, "channels_last", "channels_first"):
        raise ConfigError(f"data_format={data_format!r} must be 'channels_last' or "
                          "'channels_first'")
    return data_format == "channels_first"
