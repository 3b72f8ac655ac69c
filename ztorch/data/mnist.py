"""MNIST and Fashion-MNIST, from their IDX files on disk."""

from __future__ import annotations

import gzip
import math
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ztorch.data.locations import digest, find_folder
from ztorch.data.registry import Split, data_set
from ztorch.errors import DataError
from ztorch.files.parsing import parsing

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_AXES = 8  # of an IDX file
_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte",
          "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_SOURCES = {
    "mnist": "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
}
# MD5 of the published training images, which tells the two sets apart: their files have the same
# names and shapes. Damage is found by gzip's own checksum.
_PUBLISHED = {
    "f68b3c2dcbeaaa9fbdd348bbdeb94873": "mnist",
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d": "fashion_mnist",
}


@data_set("mnist")
def load_mnist(path: str | os.PathLike[str] | None = None) -> Split:
    """60,000 + 10,000 digits of 28 x 28 pixels, from the four IDX files in `path`."""
    return _load("mnist", path)


@data_set("fashion_mnist")
def load_fashion_mnist(path: str | os.PathLike[str] | None = None) -> Split:
    """60,000 + 10,000 pieces of clothing of 28 x 28 pixels, from the four IDX files in `path`."""
    return _load("fashion_mnist", path)


def _load(name: str, path: str | os.PathLike[str] | None) -> Split:
    folder = _folder(name, path)
    _need_set(name, _find(folder, _FILES[0]))
    parts = []
    for images_name, labels_name in (_FILES[:2], _FILES[2:]):
        images_file, labels_file = _find(folder, images_name), _find(folder, labels_name)
        images, labels = read_idx(images_file), read_idx(labels_file)
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise DataError(f"{images_file} has shape {images.shape} and {labels_file} "
                            f"{labels.shape}; they should hold (N, rows, columns) images and N "
                            "labels: download both files again")
        parts.append((images[..., None].astype(np.float32) / 255.0, labels.astype(np.int32)))
    return parts[0], parts[1]


def _folder(name: str, path: str | os.PathLike[str] | None) -> Path:
    return find_folder(name, path, lambda place: bool(_candidates(place, _FILES[0])),
                       f"{', '.join(f + '.gz' for f in _FILES)} from {_SOURCES[name]} (gzipped or "
                       "not)")


def _need_set(name: str, images: Path) -> None:
    published_as = _PUBLISHED.get(digest(images), name)
    if published_as != name:
        raise DataError(f"{images} is the file of {published_as}, not of {name}; "
                        f"load({published_as!r}, path=...) reads it")


def _candidates(folder: Path, name: str) -> list[Path]:
    spellings = (name, name.replace("-idx", ".idx"))  # both names are in use
    return [p for s in spellings for p in (folder / s, folder / f"{s}.gz") if p.is_file()]


def _find(folder: Path, name: str) -> Path:
    candidates = _candidates(folder, name)
    if not candidates:
        raise DataError(f"{folder} lacks {name} (or {name}.gz); download it with the others")
    return candidates[0]


def _at_most(file: BinaryIO | gzip.GzipFile, count: int) -> bytes:
    """Up to `count` bytes, read in pieces, so that a gzip bomb cannot fill the memory."""
    parts = []
    while count > 0 and (part := file.read(min(count, 1 << 24))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """The array in an IDX file, gzipped or not. Its size must match its header."""
    name = os.fspath(path)
    with open(path, "rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    with (parsing(name, DataError, "is damaged or truncated", "download it again"),
          gzip.GzipFile(path) if zipped else open(path, "rb") as file):
        magic = file.read(4)
        if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES:
            raise DataError(f"{name} is not an IDX file: it starts with {magic.hex() or '-'}; "
                            "a web page saved by mistake looks like this")
        if not 1 <= magic[3] <= _MOST_AXES:
            raise DataError(f"{name} claims {magic[3]} dimensions; IDX files have 1 to "
                            f"{_MOST_AXES}: download it again")
        dtype = np.dtype(_TYPES[magic[2]])
        sizes = file.read(4 * magic[3])
        shape = tuple(int(n) for n in np.frombuffer(sizes, ">u4")) if len(sizes) == (
            4 * magic[3]) else ()
        expected = math.prod(shape) * dtype.itemsize
        data = _at_most(file, expected + 1)
    if not shape or len(data) != expected:
        actual = "more" if len(data) > expected else f"{len(data):,}"
        raise DataError(f"{name} should hold {expected:,} bytes for shape {shape}, but holds "
                        f"{actual}; download it again")
    array = np.frombuffer(data, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)
