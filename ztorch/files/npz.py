"""Reads and writes .npz files of arrays. Refuses pickled objects."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.dtypes import DType, dtype
from ztorch.errors import WeightsError
from ztorch.files.parsing import parsing

_MOST_TIMES = 1100  # the largest ratio of compression of a deflated member


def is_npz(data: bytes) -> bool:
    """Whether a zip file holds only arrays."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except Exception:  # zipfile raises anything; other readers then report the error
        return False
    return bool(names) and all(name.endswith(".npy") for name in names)


def unpack(data: bytes, where: str) -> dict[str, tuple[DType, np.ndarray]]:
    """The arrays of a file by name, in its order. `where`: the name of the file in errors."""
    arrays = {}
    with (parsing(where, WeightsError, "is not a readable .npz file",
                  "write it again with numpy.savez"), zipfile.ZipFile(io.BytesIO(data)) as archive):
        need_real_sizes(archive, len(data))
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            arrays[name] = _array(archive.read(member), name)
    return arrays


def need_real_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Raises a ValueError if the members claim more bytes than a file of this size can hold, such
    as a thousand that share their bytes.

    Args:
        archive: The open file.
        size: Its size in bytes.
    """
    claimed = 0
    for member in archive.infolist():
        claimed += member.file_size
        if claimed > _MOST_TIMES * size:
            raise ValueError(f"array {member.filename.removesuffix('.npy')!r} claims "
                             f"{member.file_size} bytes, more than the file can hold")


def _array(data: bytes, name: str) -> tuple[DType, np.ndarray]:
    file = io.BytesIO(data)
    if data[:6] != np.lib.format.MAGIC_PREFIX:
        raise ValueError(f"member {name!r} is not an array: it starts with {data[:6]!r}")
    version = np.lib.format.read_magic(file)
    header = {(1, 0): np.lib.format.read_array_header_1_0,
              (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if header is None:
        raise ValueError(f"array {name!r} is of version {version}")
    shape, by_columns, kind = header(file)
    if kind.hasobject:
        raise ValueError(f"array {name!r} holds Python objects, not numbers")
    if kind.kind not in "biuf":
        raise ValueError(f"array {name!r} holds {kind}, not numbers")
    d, begin = dtype(kind), file.tell()
    if math.prod(shape) * kind.itemsize != len(data) - begin:
        raise ValueError(f"array {name!r} of shape {shape} has {len(data) - begin} bytes")
    flat = np.frombuffer(data, kind, offset=begin)
    array = flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)
    return d, np.ascontiguousarray(array).reshape(shape).astype(d.numpy)


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a file of these arrays, as `numpy.load` reads them."""
    file = io.BytesIO()
    members: dict[str, Any] = dict(arrays)
    np.savez(file, **members)
    return file.getvalue()
