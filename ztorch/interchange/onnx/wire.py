"""Parses an ONNX file. If it is damaged, reads the fields of its messages one by one to say
where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_GRAPH = 7  # the field of a model that holds its graph
_PARTS = {  # fields of a graph: (noun, message, field of the name)
    1: ("node", "NodeProto", 3), 5: ("initializer", "TensorProto", 8),
    11: ("input", "ValueInfoProto", 1), 12: ("output", "ValueInfoProto", 1),
    13: ("tensor", "ValueInfoProto", 1)}
_LONGEST = 80  # characters of a name in a message
_VARINT, _EIGHT, _TEXT, _FOUR = 0, 1, 2, 5  # wire types of protobuf


def parsed(onnx: Any, data: bytes) -> Any:
    """The message of a file; raises a ValueError that says which part of the graph is damaged."""
    try:
        return onnx.ModelProto.FromString(data)
    except Exception as error:  # parsers raise anything
        part = _damaged_part(onnx, data)
        raise ValueError(f"{part} is damaged: {error}" if part else str(error)) from error


def _damaged_part(onnx: Any, data: bytes) -> str:
    """The first part of the graph that does not parse, such as "initializer 'w'", or what follows
    the last part that does; empty if the damage is outside the graph."""
    last = ""
    for number, _, model_part in _fields(memoryview(data)):
        if number != _GRAPH or model_part is None:
            continue
        for field, size, content in _fields(model_part):
            if field not in _PARTS or content is None:
                continue
            noun, message, name_field = _PARTS[field]
            label = _label(noun, name_field, content)
            try:
                getattr(onnx, message).FromString(bytes(content))
            except Exception:  # parsers raise anything
                size = -1
            if size != len(content):
                return label or (f"{noun} after {last}" if last else f"its first {noun}")
            last = label or last
        return f"what follows {last}" if last else ""
    return ""


def _label(noun: str, name_field: int, content: memoryview) -> str:
    """A part with its name; empty if the name cannot be read."""
    for number, _, text in _fields(content):
        if number == name_field and text:
            return f"{noun} {bytes(text).decode('utf-8', 'replace')[:_LONGEST]!r}"
    return ""


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview | None]]:
    """The number, size and bytes of each field. A field without a length has no bytes, and one that
    is cut off has fewer than its size. Stops at bytes that are not a field."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind, content, size = key & 7, None, 0
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind == _TEXT:
            size, at = _varint(data, at)
            content = data[at:at + size]
            at += size
        elif kind in (_EIGHT, _FOUR):
            at += 8 if kind == _EIGHT else 4
        else:
            return
        yield key >> 3, size, content


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number stored as seven bits in each byte, and the position after it."""
    number = shift = 0
    for byte in data[at:at + 10]:
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
    return number, len(data)
