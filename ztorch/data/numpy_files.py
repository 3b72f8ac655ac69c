"""Arrays in NumPy's files. They may be damaged, or made to do harm."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ztorch.errors import DataError


def need_file(path: str | os.PathLike[str]) -> None:
    """Raises DataError unless there is a file to read."""
    name = os.fspath(path)
    if not name:
        raise DataError("the name of the file is empty")
    if not Path(path).is_file():
        raise DataError(f"{name} is a folder; give a file in it" if Path(path).is_dir() else
                        f"{name} is no regular file; write the data to one" if Path(path).exists()
                        else f"there is no file {name}")


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file by name; the name of the one in an NPY file is empty."""
    name = os.fspath(path)
    try:
        content = np.load(name, allow_pickle=False)  # a pickle would run code
        if isinstance(content, np.ndarray):
            return {"": content}
        with content as stored:
            return {name: stored[name] for name in stored.files}
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror or error}; check the path") from None
    except Exception as error:  # of zipfile, zlib, tokenize ... whatever the damage leads to
        reason = ("Python objects" if "allow_pickle" in str(error) else
                  "more than fits in memory" if isinstance(error, MemoryError) else "")
        raise DataError(f"{name} cannot be read: "
                        f"{f'it holds {reason}' if reason else error}; save the numbers again "
                        "with numpy.save or numpy.savez") from None


def read_array(path: str | os.PathLike[str]) -> np.ndarray:
    """The array of an NPY file."""
    arrays = read_arrays(path)
    if "" not in arrays:
        raise DataError(f"{os.fspath(path)} is an NPZ file of {', '.join(arrays)}; name it .npz")
    return arrays[""]
