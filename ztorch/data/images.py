"""Images in folders, one for each class. Pillow decodes them; its one door is here."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import positive
from ztorch.data.batches import Batches
from ztorch.data.registry import Pair
from ztorch.errors import ConfigError, DataError, Unsupported

MOST_PIXELS = 1 << 26  # of one image: a small file can claim to be a huge one
# Only these decoders of Pillow read files; others run programs or are rarely looked after.
_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".gif": "GIF",
            ".webp": "WEBP", ".tif": "TIFF", ".tiff": "TIFF", ".ppm": "PPM", ".pgm": "PPM"}
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@checked
def image_folder(path: str | os.PathLike[str], size: tuple[int, int], *, channels: int = 3,
                 batch_size: int = 32, seed: int | None = None) -> ImageFolder:
    """Batches of the images in a folder, in which each folder is a class: x in 0..1 of shape
    (height, width, channels), y the number of the class in `classes`.

        images = zt.data.image_folder("flowers", size=(64, 64), seed=0)
        program.fit(images, epochs=5)

    Needs `pip install ztorch[images]`. Folders and files come in the order of their names, and are
    read when their batch comes; `images.arrays()` reads all at once.
    """
    return ImageFolder(path, size, channels, batch_size, seed)


class ImageFolder(Batches):
    """What `image_folder` gives. `classes` are the names of the folders, `files` all images and
    `labels` their classes."""

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
            found = _images(root / name)
            self.files += found
            labels += [label] * len(found)
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
        """The bytes of one image in the wanted size, or an error that names the file."""
        file = self.files[row]
        try:
            pixels = self.decode(file, (self.width, self.height), _MODES[self.channels])
        except DataError:
            raise
        except Exception as error:  # decoders raise what they like
            raise DataError(f"{file} cannot be read as an image ({error}); repair or remove "
                            "it") from None
        return pixels.reshape(self.height, self.width, self.channels)


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
