"""Reads arrays from NumPy's files, which may be damaged or malicious."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, Any

import numpy as np

from ztorch.errors import DataError
from ztorch.files.npz import need_real_sizes
from ztorch.files.parsing import parsing


def need_file(path: str | os.PathLike[str]) -> None:
    """Raises a DataError unless the path is a regular file."""
    name = os.fspath(path)
    if not name:
        raise DataError("the name of the file is empty")
    if not Path(path).is_file():
        raise DataError(f"{name} is a folder; pass a file in it" if Path(path).is_dir() else
                        f"{name} is not a regular file; copy it to one" if Path(path).exists()
                        else f"there is no file {name}")


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file by name; the array of an NPY file has an empty name."""
    name = os.fspath(path)
    problem = "cannot be read", "save the numbers again with numpy.save or numpy.savez"
    with parsing(name, DataError, *problem):
        try:
            content = np.load(name, allow_pickle=False)  # a pickle would run code
        except OSError as error:
            raise DataError(f"cannot read {name}: {error.strerror or error}; check the "
                            "path") from None
        if isinstance(content, np.ndarray):
            with open(name, "rb") as file:
                _need_sizes(file)
            return {"": _plain(content, name)}
        arrays = {}
        with content as stored:
            need_real_sizes(stored.zip, os.path.getsize(name))
            for key in stored.files:
                with parsing(name, DataError, *problem, member=f"array {key[:80]!r}"):
                    if f"{key}.npy" in stored.zip.namelist():
                        with stored.zip.open(f"{key}.npy") as file:
                            _need_sizes(file)
                    arrays[key] = _plain(stored[key], f"{name}: array {key[:80]!r}")
        return arrays


def _need_sizes(file: IO[bytes]) -> None:
    """Raises an error for a negative size in the header of an array, which older versions of NumPy
    take for any."""
    version, _ = np.lib.format.read_magic(file)
    read = (np.lib.format.read_array_header_1_0 if version == 1 else
            np.lib.format.read_array_header_2_0)
    shape, _, _ = read(file)
    if any(n < 0 for n in shape):
        raise ValueError("it has a negative size")


def _plain(array: Any, label: str) -> np.ndarray:
    """An array of numbers or strings. Raises an error for anything else."""
    if not isinstance(array, np.ndarray):
        raise DataError(f"{label} is not an array but {len(array)} bytes; save only arrays, with "
                        "numpy.savez")
    if array.dtype.kind not in "biufcSU":
        raise DataError(f"{label} holds values of {array.dtype}; save numbers or strings, such as "
                        "array.astype('float32'), or each field as a separate array")
    if array.dtype.kind in "SU" and array.size and array.dtype.itemsize:
        codes = np.ascontiguousarray(array.astype(str)).reshape(-1).view(np.uint32)
        if ((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))).any():
            raise ValueError("it holds characters that are not in Unicode")
    return array


def read_array(path: str | os.PathLike[str]) -> np.ndarray:
    """The array of an NPY file."""
    arrays = read_arrays(path)
    if "" not in arrays:
        raise DataError(f"{os.fspath(path)} is an NPZ file of {', '.join(arrays)}; name it .npz")
    return arrays[""]
