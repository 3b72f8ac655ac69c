"""CIFAR-10 and CIFAR-100, from their binary files on disk.

The version with pickles is not read, because a pickle can run code.
"""

from __future__ import annotations

import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ztorch.data.locations import digest, find_folder
from ztorch.data.registry import Pair, Split, data_set
from ztorch.errors import DataError
from ztorch.files.parsing import parsing

RECORDS = 10_000  # images in a file of CIFAR-10, and in the test file of both sets
PIXELS = 3 * 32 * 32  # bytes of an image
_LARGEST_FILE = 5 * RECORDS * (PIXELS + 2)  # bytes; that of CIFAR-100


@dataclass(frozen=True)
class _Format:
    """The files of a data set and their format."""

    name: str  # of the data set
    archive: str  # the published file
    md5: str  # of the archive
    folder: str  # in the archive
    train: tuple[str, ...]  # files in the folder
    test: str  # file in the folder
    per_file: int  # images in each training file, in units of RECORDS
    labels: int  # bytes before the pixels of an image; the last one is the class
    classes: int


_TEN = _Format("cifar10", "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530",
               "cifar-10-batches-bin", tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
               "test_batch.bin", 1, 1, 10)
_HUNDRED = _Format("cifar100", "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8",
                   "cifar-100-binary", ("train.bin",), "test.bin", 5, 2, 100)


@data_set("cifar10")
def load_cifar10(path: str | os.PathLike[str] | None = None) -> Split:
    """50,000 + 10,000 images of shape (32, 32, 3) in 10 classes, from the published archive in
    `path`, or from its unpacked files."""
    return _load(_TEN, path)


@data_set("cifar100")
def load_cifar100(path: str | os.PathLike[str] | None = None) -> Split:
    """50,000 + 10,000 images of shape (32, 32, 3) in 100 (fine) classes, from the published archive
    in `path`, or from its unpacked files."""
    return _load(_HUNDRED, path)


def _load(form: _Format, path: str | os.PathLike[str] | None) -> Split:
    folder = find_folder(form.name, path, lambda place: _unpacked(form, place) is not None
                         or (place / form.archive).is_file(),
                         f"{form.archive} from https://www.cs.toronto.edu/~kriz/cifar.html (as it "
                         "is, or unpacked)")
    unpacked = _unpacked(form, folder)
    names = (*form.train, form.test)
    files = (_from_archive(form, folder / form.archive, names) if unpacked is None else
             {name: _read(unpacked / name) for name in names})
    source = folder / form.archive if unpacked is None else unpacked
    train = [_records(form, files[n], f"{source}: {n}", form.per_file * RECORDS)
             for n in form.train]
    test = _records(form, files[form.test], f"{source}: {form.test}", RECORDS)
    return _pair(np.concatenate(train)), _pair(test)


def _unpacked(form: _Format, place: Path) -> Path | None:
    """The folder with the files, in `place` or below it; None if they are not there."""
    for folder in (place, place / form.folder):
        if (folder / form.train[0]).is_file():
            return folder
    return None


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise DataError(f"{path.parent} lacks {path.name}; unpack the archive again")
    with open(path, "rb") as file:
        return file.read(_LARGEST_FILE + 1)


def _from_archive(form: _Format, path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """The files in the published archive, read without unpacking it."""
    if (md5 := digest(path)) != form.md5:
        raise DataError(f"{path} is not the published file: its MD5 is {md5}, not {form.md5}; "
                        "download it again, or unpack it there if you made it yourself")
    files = {}
    with (parsing(str(path), DataError, "is damaged", "download it again"),
          tarfile.open(path, "r:gz") as archive):
        for member in archive:
            name = member.name.rpartition("/")[2]
            if name in names and member.isfile() and (file := archive.extractfile(member)):
                files[name] = file.read(_LARGEST_FILE + 1)
    if lacks := [n for n in names if n not in files]:
        raise DataError(f"{path} lacks {', '.join(lacks)}; download it again")
    return files


def _records(form: _Format, data: bytes, source: str, count: int) -> np.ndarray:
    """The images as rows of bytes: the class, then the pixels."""
    size = form.labels + PIXELS
    if len(data) != count * size:
        actual = "more" if len(data) > count * size else f"{len(data):,}"
        raise DataError(f"{source} should hold {count:,} images in {count * size:,} bytes, but "
                        f"holds {actual}; download it again")
    rows = np.frombuffer(data, np.uint8).reshape(count, size)[:, form.labels - 1:]
    if (bad := rows[:, 0] >= form.classes).any():
        raise DataError(f"{source}: image {int(np.argmax(bad))} is of class {rows[bad][0, 0]}, but "
                        f"classes are 0..{form.classes - 1}; download it again")
    return rows


def _pair(rows: np.ndarray) -> Pair:
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # channels last
    x = np.empty(images.shape, np.float32)
    np.divide(images, np.float32(255), out=x)
    return x, rows[:, 0].astype(np.int32)
