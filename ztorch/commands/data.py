"""Data named on the command line, and results written to files."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztorch.commands import named
from ztorch.errors import ConfigError, DataError, unknown
from ztorch.files.atomic import writable as writable_file
from ztorch.files.atomic import write_atomic

if TYPE_CHECKING:
    from ztorch.data import Pair
    from ztorch.program.program import Program

_SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".npz", ".npy")


class Given(NamedTuple):
    """What --data or --val names: rows to train on, rows to test with if they come with them, and
    the texts behind the numbers of y, where there were texts."""

    train: Pair
    test: Pair | None = None
    classes: tuple[str, ...] | None = None

    def numbered_like(self, other: Given) -> Pair:
        """The rows to train on; the same text is the same number as in the other data."""
        if self.classes == other.classes:
            return self.train
        own, known = self.classes, other.classes
        if own is None or known is None:
            kinds = ("numbers", "texts") if own is None else ("texts", "numbers")
            raise DataError("the labels to validate on are {}, those to train on {}; write both in "
                            "one way".format(*kinds))
        if new := [text for text in own if text not in known]:
            raise DataError(f"the labels to validate on include {new[0]!r}, which is not among "
                            f"those to train on: {', '.join(known)}")
        x, y = self.train
        return x, np.array([known.index(text) for text in own], np.int32)[y]


def training(name: str, shape: tuple[int, ...] | None = None) -> Given:
    """The data of a name.

    That is a data set, a table (NPZ with x and y, CSV with the label last), two NPY files as
    `x.npy,y.npy`, or a folder with one of images for each class. Rows of a table, and images, take
    the shape of the model's input.

    >>> (x, y), test, classes = training("digits")
    >>> x.shape, test[0].shape
    ((1433, 8, 8, 1), (364, 8, 8, 1))
    """
    from ztorch import data
    from ztorch.data.tables import labels

    if not name:
        raise ConfigError("the name of the data is empty")
    if "," in name:
        parts = name.split(",")
        if len(parts) != 2 or not all(parts):
            raise ConfigError(f"{name!r} names {sum(map(bool, parts))} file(s); give x.npy,y.npy")
        x, y = (read(part) for part in parts)
        y, classes = labels(y) if y.dtype.kind in "US" else (y, None)
        return Given((_shaped(x, shape), y), None, classes)
    if not name.lower().endswith(_SUFFIXES):
        if name in data.names():
            return Given(*data.load(name))
        if Path(name).is_dir():
            return _images(name, shape)
        raise ConfigError(f"{unknown('data set', name, data.names())}; or a file ending in "
                          f"{' '.join(_SUFFIXES)}, or x.npy,y.npy, or a folder of images")
    table = data.read_table(name)
    if table.y is None:
        raise DataError(f"{name} holds no y")
    test = table.test and (_shaped(table.test[0], shape), table.test[1])
    return Given((_shaped(table.x, shape), table.y), test, table.classes)


def _images(folder: str, shape: tuple[int, ...] | None) -> Given:
    """All images in a folder, mixed, so that the last ones can serve for validation."""
    from ztorch import data

    if shape is None or len(shape) != 3:
        raise ConfigError(f"{folder} is a folder of images, for models of inputs (height, width, "
                          f"channels), not {shape}")
    images = data.image_folder(folder, shape[:2], channels=shape[2], seed=0)
    x, y = zip(*images, strict=True)
    return Given((np.concatenate(x), np.concatenate(y)), None, images.classes)


def read(path: str) -> np.ndarray:
    """The numbers in a file: NPY, x of an NPZ, or a CSV without labels."""
    from ztorch.data.numpy_files import read_array
    from ztorch.data.tables import read_table

    return read_array(path) if path.lower().endswith(".npy") else read_table(path, label=None).x


def inputs(path: str, program: Program) -> Any:
    """Rows for a program to predict from."""
    ports = named.of_program(program)
    return (named.read(path, ports)[0] if len(ports.inputs) > 1 else
            _shaped(read(path), ports.x))


def _shaped(x: np.ndarray, shape: tuple[int, ...] | None) -> np.ndarray:
    """Flat rows as the model takes them, and others flat where it takes flat ones; all else is
    left to the program to accept or explain."""
    if shape is None or not (x.ndim == 2 or (x.ndim > 2 and len(shape) == 1)):
        return x
    return x.reshape(len(x), *shape) if np.prod(x.shape[1:]) == np.prod(shape) else x


def write(path: str | None, y: np.ndarray) -> None:
    """Writes an array as NPY or CSV; as CSV to standard output without a path."""
    if path is not None and path.endswith(".npy"):
        data = io.BytesIO()
        np.save(data, y, allow_pickle=False)
        write_atomic(path, data.getvalue())
    elif path is None or path.endswith((".csv", ".txt")):
        rows = y.reshape(len(y), -1)
        whole = y.dtype.kind in "iub"
        text = io.StringIO()
        np.savetxt(text if path else sys.stdout, rows, "%d" if whole else "%.9g", ",")
        if path:
            write_atomic(path, text.getvalue().encode())
    else:
        raise ConfigError(f"cannot write {os.path.basename(path)}: the name must end in .npy or "
                          ".csv")


def writable(path: str | None, suffixes: tuple[str, ...]) -> None:
    """An error now rather than after the work: the suffix is known, the folder is there."""
    if path is None:
        return
    if not path.endswith(suffixes):
        raise ConfigError(f"{path or repr(path)} must end in {' or '.join(suffixes)}")
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}; make it first")
    writable_file(path)
