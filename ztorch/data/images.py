"""Images in folders, one for each class. The only module that imports Pillow."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ztorch.arguments import checked
from ztorch.config import positive
from ztorch.data.batches import Batches
from ztorch.data.class_folders import LabeledFiles, files_in, labeled_files
from ztorch.data.registry import Pair
from ztorch.errors import ConfigError, DataError, Unsupported
from ztorch.files.parsing import parsing

MOST_PIXELS = 1 << 26  # of an image, since a small file may declare a huge one
# Pillow's decoders by suffix. Its other ones run programs, or are hardly maintained.
IMAGES = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".gif": "GIF",
          ".webp": "WEBP", ".tif": "TIFF", ".tiff": "TIFF", ".ppm": "PPM", ".pgm": "PPM"}
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_FILTERS = {"bilinear": "BILINEAR", "nearest": "NEAREST", "bicubic": "BICUBIC", "area": "BOX",
            "lanczos3": "LANCZOS"}  # Pillow's names


class Fitting(NamedTuple):
    """How images of any size are resized to one."""

    filter: str = "bilinear"  # the interpolation
    keeps: str = ""  # how to keep the aspect ratio: "crop" or "pad"; empty: images are stretched

    def need_known(self) -> None:
        """Raises a ConfigError if there is no such filter."""
        if self.filter not in _FILTERS:
            raise ConfigError(f"interpolation={self.filter!r} must be one of "
                              f"{', '.join(map(repr, _FILTERS))}")

    def box(self, size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int, int, int]:
        """The centered box with the aspect ratio of the target: the largest one inside the image,
        or the smallest one around it. Sizes are (width, height).

        >>> Fitting(keeps="crop").box((8, 4), (2, 2)), Fitting(keeps="pad").box((8, 4), (2, 2))
        ((2, 0, 6, 4), (0, -2, 8, 6))
        """
        width, height = size
        other_width, other_height = height * target[0] // target[1], width * target[1] // target[0]
        pick = min if self.keeps == "crop" else max
        width, height = max(pick(width, other_width), 1), max(pick(height, other_height), 1)
        left, top = int((size[0] - width) / 2), int((size[1] - height) / 2)
        return left, top, left + width, top + height


STRETCHED = Fitting()


@checked
def image_folder(path: str | os.PathLike[str], size: tuple[int, int], *, channels: int = 3,
                 batch_size: int = 32, seed: int | None = None) -> ImageFolder:
    """Reads batches of images from a folder, in which each folder is a class.

    A file is read with its batch. Files are in the order of their names, unless there is a seed.

    Args:
        path: The folder. Its folders are the classes, in the order of their names.
        size: (height, width) to resize images to.
        channels: 1 (gray), 3 (RGB) or 4 (RGB with transparency). Default: `3`.
        batch_size: The images of a batch. Default: `32`.
        seed: Shuffles the images in each epoch; None keeps their order. Default: `None`.

    Returns:
        An ImageFolder: iterates over (x, y), x of shape (batch_size, height, width, channels) in
        float32, 0 to 1, y the number of the class.

    Raises:
        DataError: There is no such folder, or no image in it, or a file cannot be read.
        Unsupported: Pillow is not installed: pip install ztorch[images].

    Examples:
        ```python
        images = zt.data.image_folder("flowers", size=(64, 64), seed=0)
        program.fit(images, epochs=5)
        ```
    """
    return ImageFolder(path, size, channels, batch_size, seed)


class ImageFolder(Batches):
    """The batches of a folder of images, as `image_folder` returns them.

    `classes` are the names of the folders, `files` the images, `labels` the class of each image.
    """

    def __init__(self, path: str | os.PathLike[str], size: tuple[int, int], channels: int,
                 batch_size: int, seed: int | None, labeled: LabeledFiles | None = None,
                 fitting: Fitting = STRETCHED):
        if not isinstance(size, (list, tuple)) or len(size) != 2:
            raise ConfigError(f"image_folder(size={size!r}) must be (height, width)")
        self.height, self.width = (positive("image_folder(size=...)", n) for n in size)
        if not isinstance(channels, int) or channels not in _MODES:
            raise ConfigError(f"image_folder(channels={channels!r}) must be 1 (gray), 3 (RGB) or 4 "
                              "(with transparency)")
        self.channels = channels
        self.decode = _decoder()
        self.files, self.labels, self.classes = labeled or labeled_files(path, IMAGES, "image")
        self.fitting = fitting
        super().__init__(len(self.files), batch_size, seed)

    def read(self, rows: np.ndarray) -> Pair:
        x = np.empty((len(rows), self.height, self.width, self.channels), np.float32)
        for k, row in enumerate(rows):
            np.divide(self.image(int(row)), np.float32(255), out=x[k])
        return x, self.labels[rows]

    def image(self, row: int) -> np.ndarray:
        """The pixels of an image, resized, as bytes."""
        return _pixels(self.decode, self.files[row], (self.height, self.width), self.channels,
                       self.fitting)


def read_images(paths: Sequence[str], size: tuple[int, int],
                channels: int) -> tuple[np.ndarray, list[Path]]:
    """Reads images from files, and from folders at any depth, as float32 from 0 to 1.

    Args:
        paths: Files and folders.
        size: (height, width) to resize images to.
        channels: 1, 3 or 4.

    Returns:
        An array of shape (images, height, width, channels), and the files.
    """
    decode = _decoder()
    files = files_in(paths, IMAGES, "image")
    x = np.empty((len(files), *size, channels), np.float32)
    for k, file in enumerate(files):
        np.divide(_pixels(decode, file, size, channels), np.float32(255), out=x[k])
    return x, files


def is_image(path: str) -> bool:
    """Whether a path has the suffix of an image, or is a folder."""
    suffix = Path(path).suffix.lower()
    if not path:
        return False
    return suffix in IMAGES or (not suffix and Path(path).is_dir())


def _pixels(decode: Callable[..., np.ndarray], file: Path, size: tuple[int, int],
            channels: int, fitting: Fitting = STRETCHED) -> np.ndarray:
    """The pixels of a file, resized, as bytes of shape (height, width, channels)."""
    if not file.is_file():
        raise DataError(f"there is no file {file}")
    with parsing(str(file), DataError, "cannot be read as an image", "repair or remove it"):
        pixels = decode(file, size[::-1], _MODES[channels], fitting)
    return pixels.reshape(*size, channels)


def pillow() -> Any:
    """Pillow's module of images. Raises an error that says how to install it."""
    try:
        from PIL import Image
    except ImportError:
        raise Unsupported("reading images needs Pillow: pip install ztorch[images]") from None
    return Image


def read_image(file: Path) -> Any:
    """The image in a file, unchanged."""
    if not file.is_file():
        raise DataError(f"there is no file {file}")
    with parsing(str(file), DataError, "cannot be read as an image", "repair or remove it"), (
            _open(pillow(), file)) as image:
        image.load()
        return image.copy()


def _open(images: Any, file: Path) -> Any:
    """A file of which Pillow has read the header, not the pixels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", images.DecompressionBombWarning)  # refused below
        image = images.open(file, formats=sorted(set(IMAGES.values())))
    if image.width * image.height > MOST_PIXELS:
        raise DataError(f"{file} has {image.width} x {image.height} pixels; ztorch reads images "
                        f"of up to {MOST_PIXELS:,} pixels")
    if image.mode[0] in "IF":
        raise DataError(f"{file} has more than 8 bits per channel ({image.mode}); save it with "
                        "8 bits per channel")
    return image


def _decoder() -> Callable[..., np.ndarray]:
    """The function that decodes one file."""
    images = pillow()
    from PIL import ImageOps

    def decode(file: Path, size: tuple[int, int], mode: str, fitting: Fitting) -> np.ndarray:
        with _open(images, file) as image:
            upright = ImageOps.exif_transpose(image).convert(mode)
            # Pixels outside the image are black.
            shaped = upright.crop(fitting.box(upright.size, size)) if fitting.keeps else upright
            return np.asarray(shaped.resize(size, images.Resampling[_FILTERS[fitting.filter]]))

    return decode
