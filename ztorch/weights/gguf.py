"""GGUF files, those of llama.cpp. Quantized tensors are read, and all are written, as float32."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.dtypes import ALL, DType, f32
from ztorch.errors import Unsupported, WeightsError
from ztorch.files.parsing import parsing
from ztorch.files.safetensors import Tensors
from ztorch.weights.gguf_blocks import BLOCK_TYPES

SIGNATURE = b"GGUF"
_PLAIN: dict[int, DType] = {d.gguf: d for d in ALL if d.gguf is not None}
# Types that ztorch does not read, for the error message.
_OTHERS = {9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
           21: "IQ3_S", 22: "IQ2_S", 29: "IQ1_M", 40: "NVFP4", 41: "Q1_0"}
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}  # types of metadata, as codes of `struct`
_TEXT, _LIST = 8, 9  # other types of metadata
_MOST_AXES = 8  # of a tensor that we read
_WRITTEN_AXES = 4  # the most that llama.cpp reads
_ALIGNMENT = 32  # bytes; the default of offsets of tensors
_DEEPEST = 4  # levels of lists in metadata


@dataclass
class _Cursor:
    """Reads values one after another, and never past the end."""

    data: memoryview
    at: int = 0

    def take(self, count: int) -> memoryview:
        if count < 0 or self.at + count > len(self.data):
            raise ValueError("it ends too early")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def text(self) -> str:
        return bytes(self.take(self.number("Q"))).decode()

    def value(self, kind: int, depth: int = 0) -> Any:
        """A value of the metadata. Lists, which may be long, are skipped."""
        if kind == _TEXT:
            return self.text()
        if kind != _LIST:
            return self.number(_SCALARS[kind])
        inner, count = self.number("I"), self.number("Q")
        if inner in _SCALARS:
            self.take(count * struct.calcsize(f"<{_SCALARS[inner]}"))
        elif depth > _DEEPEST:
            raise ValueError("its lists are too deep")
        else:
            for _ in range(count):
                self.value(inner, depth + 1)
        return None


def tensors(data: bytes, source: str) -> Tensors:
    """The tensors of a file by name, in its order. Shapes are in NumPy's order of axes.

    Raises:
        WeightsError: The file is damaged.
        Unsupported: It has another version, or tensors of a type that ztorch does not read.
    """
    with parsing(source, WeightsError, "is not a complete GGUF file",
                 "it may be truncated: copy it again"):
        return _tensors(_Cursor(memoryview(data)), source)


def packed(arrays: Mapping[str, np.ndarray], name: str) -> bytes:
    """The bytes of a file of float32 tensors. `name`: of the model."""

    def text(x: str) -> bytes:
        return struct.pack("<Q", len(x.encode())) + x.encode()

    header = [SIGNATURE, struct.pack("<IQQ", 3, len(arrays), 2)]
    for key, value in (("general.architecture", "ztorch"), ("general.name", name)):
        header += [text(key), struct.pack("<I", _TEXT), text(value)]
    data = bytearray()
    for label, array in arrays.items():
        if array.ndim > _WRITTEN_AXES:
            raise Unsupported(f"weight {label!r} has {array.ndim} axes; a GGUF file has "
                              f"at most {_WRITTEN_AXES}: write .safetensors")
        header += [text(label), struct.pack(f"<I{array.ndim}QIQ", array.ndim, *array.shape[::-1], 0,
                                            len(data))]
        data += np.ascontiguousarray(array, "<f4").tobytes()
        data += bytes(-len(data) % _ALIGNMENT)
    head = b"".join(header)
    return head + bytes(-len(head) % _ALIGNMENT) + bytes(data)


def _tensors(cursor: _Cursor, source: str) -> Tensors:
    cursor.take(len(SIGNATURE))
    version, count, pairs = (cursor.number(code) for code in "IQQ")
    if version not in (2, 3):
        raise Unsupported(f"{source} is a GGUF file of version {version}; ztorch reads 2 and 3, "
                          "in little endian: convert it with llama.cpp")
    metadata = {}
    for _ in range(pairs):
        key = cursor.text()
        metadata[key] = cursor.value(cursor.number("I"))
    infos = [_info(cursor) for _ in range(count)]
    align = metadata.get("general.alignment", _ALIGNMENT)
    if type(align) is not int or not 1 <= align <= 1 << 20:
        raise ValueError(f"its alignment is {align!r}")
    begin = -(-cursor.at // align) * align
    arrays: Tensors = {}
    for name, shape, kind, offset in infos:
        if name in arrays:
            raise ValueError(f"tensor {name!r} is in it twice")
        arrays[name] = _read(cursor.data, name, shape, kind, begin + offset, source)
    return arrays


def _info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, axes = cursor.text(), cursor.number("I")
    if axes > _MOST_AXES:
        raise ValueError(f"tensor {name!r} has {axes} axes")
    shape = tuple(cursor.number("Q") for _ in range(axes))[::-1]
    return name, shape, cursor.number("I"), cursor.number("Q")


def _read(data: memoryview, name: str, shape: tuple[int, ...], kind: int, at: int,
          source: str) -> tuple[DType, np.ndarray]:
    block = BLOCK_TYPES.get(kind)
    if block is None and kind not in _PLAIN:
        readable = [*map(str, _PLAIN.values()), *(b.name for b in BLOCK_TYPES.values())]
        raise Unsupported(f"{source}: tensor {name!r} has the type {_OTHERS.get(kind, kind)}, "
                          f"which ztorch does not read; it reads {', '.join(readable)}: convert "
                          "the file with llama-quantize --allow-requantize")
    numbers, size = (block.numbers, block.bytes) if block else (1, _PLAIN[kind].bytes)
    if block and (not shape or shape[-1] % numbers):
        raise ValueError(f"tensor {name!r} of shape {shape} is in blocks of {numbers}")
    count = math.prod(shape) // numbers
    if at + count * size > len(data):
        raise ValueError(f"tensor {name!r} ends beyond it")
    raw = np.frombuffer(data, np.uint8, count * size, at)
    if block:
        return f32, block.decode(raw.reshape(count, size)).astype(np.float32).reshape(shape)
    d = _PLAIN[kind]
    return d, raw.view(d.numpy.newbyteorder("<")).astype(d.numpy).reshape(shape)
