"""Reads safetensors files, with every bound checked, and writes them atomically."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.dtypes import ALL, DType
from ztorch.errors import WeightsError
from ztorch.files.parsing import parsing

Tensors = dict[str, tuple[DType, np.ndarray]]

_DTYPES = {d.name.upper(): d for d in ALL}  # by their names in the format: F32 for our f32
_MAX_HEADER = 100_000_000  # bytes; other readers have the same limit


def pack(tensors: Mapping[str, tuple[DType, np.ndarray]],
         metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file. Arrays of bf16 hold its bits.

    The format is a length, JSON and the bytes of the tensors. We write it ourselves because the
    package safetensors cannot write bfloat16 from NumPy.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    chunks: list[bytes] = []
    offset = 0
    for name, (d, array) in tensors.items():
        # The format is little-endian.
        data = array.astype(d.numpy.newbyteorder("<"), copy=False).tobytes()
        header[name] = {"dtype": d.name.upper(), "shape": list(array.shape),
                        "data_offsets": [offset, offset + len(data)]}
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *chunks])


def unpack(data: bytes | memoryview, where: str) -> tuple[Tensors, dict[str, str]]:
    """The arrays and the metadata of a safetensors file. `where`: the name of the file in errors.

    The arrays are views of `data`. Checks that each tensor has the size of its shape, and that the
    tensors fill the file.
    """
    with parsing(where, WeightsError, "is not a complete safetensors file",
                 "it may be truncated or another kind of file: write or copy it again"):
        header, metadata, begin = _header(data)
        tensors, spans = {}, []
        for name, entry in header.items():
            tag, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            if any(type(n) is not int or n < 0 for n in (*shape, start, end)):
                raise ValueError(f"tensor {name!r} has a shape or offset that is not an integer")
            if tag not in _DTYPES:
                raise WeightsError(f"{where}: tensor {name!r} has dtype {tag}, which ztorch does "
                                   "not compute with; convert it to F32")
            d = _DTYPES[tag]
            if end - start != d.bytes * math.prod(shape):
                raise ValueError(f"tensor {name!r} has {end - start} bytes, which do not match its "
                                 "shape")
            if begin + end > len(data):
                raise ValueError(f"tensor {name!r} ends beyond the file")
            array = np.ndarray(shape, d.numpy.newbyteorder("<"), data, begin + start)
            tensors[name] = d, array.astype(d.numpy, copy=False)
            spans.append((start, end))
        spans.sort()
        starts, ends = [s for s, _ in spans], [e for _, e in spans]
        if [*starts, len(data) - begin] != [0, *ends]:
            raise ValueError("its tensors overlap or leave gaps")
    return tensors, metadata


def _header(data: bytes | memoryview) -> tuple[dict[str, Any], dict[str, str], int]:
    """The tensors, the metadata, and the offset of the first tensor."""
    size = int.from_bytes(data[:8], "little")
    begin = 8 + size
    if size > _MAX_HEADER or begin > len(data):
        raise ValueError(f"its header of {size} bytes is too long")
    header = json.loads(bytes(data[8:begin]))
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    metadata = header.pop("__metadata__", None) or {}
    if not (isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())):
        raise ValueError("its metadata is not an object of strings")
    return header, metadata, begin


def write(path: str | os.PathLike[str], tensors: Mapping[str, tuple[DType, np.ndarray]],
          metadata: Mapping[str, str] | None = None) -> None:
    """Writes named arrays to a safetensors file, atomically."""
    from ztorch.files.atomic import write_atomic  # imported here since reading does not need it

    write_atomic(path, pack(tensors, metadata))


def read(path: str | os.PathLike[str]) -> tuple[Tensors, dict[str, str]]:
    """The arrays and the metadata of a safetensors file."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise WeightsError(f"cannot read {os.fspath(path)}: {error.strerror or error}; "
                           "check the path") from None
    tensors, metadata = unpack(data, os.fspath(path))
    return {name: (d, array.copy()) for name, (d, array) in tensors.items()}, metadata
