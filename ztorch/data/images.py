"""Images in folders, one for each class. Pillow decodes them; it is imported only here."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import positive
from ztorch.data.batches import Batches
from ztorch.data.registry import Pair
from ztorch.errors import ConfigError, DataError, Unsupported
from ztorch.files.parsing import parsing

MOST_PIXELS = 1 << 26  # of an image; a small file can claim to be huge
# Pillow's decoders that are used. Others run programs, or are hardly maintained.
_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".gif": "GIF",
            ".webp": "WEBP", ".tif": "TIFF", ".tiff": "TIFF", ".ppm": "PPM", ".pgm": "PPM"}
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@checked
def image_folder(path: str | os.PathLike[str], size: tuple[int, int], *, channels: int = 3,
                 batch_size: int = 32, seed: int | None = None) -> ImageFolder:
    """Reads batches of images from a folder, in which each folder is a class.

    Files are read when their batch comes, in the order of their names unless there is a seed.

    Args:
        path: The folder. Its folders are the classes, in the order of their names.
        size: (height, width): images are scaled to it.
        channels: 1 (grey), 3 (RGB) or 4 (RGB with transparency). Default: `3`.
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
    """The batches of a folder of images: what `image_folder` returns.

    `classes` are the names of the folders, `files` all images, `labels` the class of each.
    """

    def __init__(self, path: str | os.PathLike[str], size: tuple[int, int], channels: int,
                 batch_size: int, seed: int | None):
        if not isinstance(size, (list, tuple)) or len(size) != 2:
            raise ConfigError(f"image_folder(size={size!r}) must be (height, width)")
        self.height, self.width = (positive("image_folder(size=...)", n) for n in size)
        if not isinstance(channels, int) or channels not in _MODES:
            raise ConfigError(f"image_folder(channels={channels!r}) must be 1 (grey), 3 (RGB) or 4 "
                              "(with transparency)")
        self.channels = channels
        self.decode = _pillow()
        root = Path(path)
        if not root.is_dir():
            raise DataError(f"there is no folder {root}")
        self.classes = tuple(sorted(p.name for p in root.iterdir()
                                    if p.is_dir() and not p.name.startswith(".")))
        self.files: list[Path] = []
        labels = []
        for label, name in enumerate(self.classes):
            files = _images(root / name)
            self.files += files
            labels += [label] * len(files)
        if not self.files:
            raise DataError(f"{root} should hold a folder of images for each class, such as "
                            f"{root / 'cats' / 'tom.png'}; there are {len(self.classes)} folders "
                            f"without any image ({' '.join(_FORMATS)})")
        self.labels = np.array(labels, np.int32)
        super().__init__(len(self.files), batch_size, seed)

    def read(self, rows: np.ndarray) -> Pair:
        x = np.empty((len(rows), self.height, self.width, self.channels), np.float32)
        for k, row in enumerate(rows):
            np.divide(self.image(int(row)), np.float32(255), out=x[k])
        return x, self.labels[rows]

    def image(self, row: int) -> np.ndarray:
        """The pixels of one image, scaled, as bytes."""
        return _pixels(self.decode, self.files[row], (self.height, self.width), self.channels)


def read_images(paths: Sequence[str], size: tuple[int, int],
                channels: int) -> tuple[np.ndarray, list[Path]]:
    """Images in files, and in folders at any depth, as a model takes them: float32, 0 to 1.

    Args:
        paths: Files and folders.
        size: (height, width): images are scaled to it.
        channels: 1, 3 or 4.

    Returns:
        An array of shape (images, height, width, channels), and the files.
    """
    decode = _pillow()
    files: list[Path] = []
    for path in map(Path, paths):
        below = _images(path) if path.is_dir() else [path]
        if not below:
            raise DataError(f"{path} has no image ({' '.join(_FORMATS)})")
        files += below
    x = np.empty((len(files), *size, channels), np.float32)
    for k, file in enumerate(files):
        np.divide(_pixels(decode, file, size, channels), np.float32(255), out=x[k])
    return x, files


def is_image(path: str) -> bool:
    """Whether a path is named like an image, or is a folder."""
    suffix = Path(path).suffix.lower()
    if not path:
        return False
    return suffix in _FORMATS or (not suffix and Path(path).is_dir())


def _pixels(decode: Callable[..., np.ndarray], file: Path, size: tuple[int, int],
            channels: int) -> np.ndarray:
    """The pixels of a file, scaled, as bytes of shape (height, width, channels)."""
    if not file.is_file():
        raise DataError(f"there is no file {file}")
    with parsing(str(file), DataError, "cannot be read as an image", "repair or remove it"):
        pixels = decode(file, size[::-1], _MODES[channels])
    return pixels.reshape(*size, channels)


def _images(folder: Path) -> list[Path]:
    """All images below a folder, in the order of their paths; links to folders are not followed."""
    return sorted(Path(here, name) for here, _, names in os.walk(folder) for name in names
                  if Path(name).suffix.lower() in _FORMATS and not name.startswith("."))


def _pillow() -> Any:
    """The function that decodes one file."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise Unsupported("reading images needs Pillow: pip install ztorch[images]") from None

    def decode(file: Path, size: tuple[int, int], mode: str) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # refused below
            opened = Image.open(file, formats=sorted(set(_FORMATS.values())))
        with opened as image:
            if image.width * image.height > MOST_PIXELS:
                raise DataError(f"{file} says it is {image.width} x {image.height} pixels large; "
                                f"at most {MOST_PIXELS:,} pixels are read")
            if image.mode[0] in "IF":
                raise DataError(f"{file} has pixels of more than 8 bits ({image.mode}), which are "
                                "not read; save it with 8 bits a channel")
            upright = ImageOps.exif_transpose(image)
            return np.asarray(upright.convert(mode).resize(size, Image.Resampling.BILINEAR))

    return decode
