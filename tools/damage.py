"""Ways to damage a file: its bytes, or one field of its contents, with checksums corrected."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from ztorch.artifact.write import stored_zip
from ztorch.files.container import MANIFEST

WORDS = ("", "x", "..", "Identity", "é" * 40, "a\0b", "F64", "-1")


def bytes_changed(data: bytes, rng: random.Random) -> bytes:
    """A bit flipped, bytes put in, taken out, doubled or made extreme, or the end cut off."""
    at, size = rng.randrange(len(data)), rng.randrange(1, 9)
    before, after, rest = data[:at], data[at:], data[at + size:]
    flipped = bytes([after[0] ^ 1 << rng.randrange(8)])
    return rng.choice((before + flipped + after[1:], before + rng.randbytes(size) + after,
                       before + rest, before + after[:4 * size] + after,
                       before + b"\xff" * size + rest, before))


def odd(value: Any, rng: random.Random) -> Any:
    """Another value of the same type, often one that no writer would write."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((0, 1, -1, value + 1, value - 1, 10 * value, 2**31 - 1, 2**31, 2**62,
                           -2**63))
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, 1e38, float("inf"), float("nan")))
    if isinstance(value, bytes):
        return rng.choice((b"", bytes_changed(value, rng) if value else b"x"))
    return rng.choice(WORDS)


def message_changed(message: Any, rng: random.Random) -> None:
    """One field of a message of protobuf: other, left out, twice, or with that of another field."""
    spots = [*_spots(message)]
    for _ in range(20):
        owner, field, k = rng.choice(spots)
        value = getattr(owner, field.name) if k is None else getattr(owner, field.name)[k]
        way = rng.randrange(4)
        try:
            if way == 0 and k is not None:
                del getattr(owner, field.name)[k]
            elif way == 0:
                owner.ClearField(field.name)
            elif way == 1 and k is not None:
                getattr(owner, field.name).append(value)
            elif hasattr(value, "ListFields"):
                continue
            else:
                alike = [_value(*spot) for spot in spots if spot[1].type == field.type]
                new = rng.choice(alike) if way == 2 else odd(value, rng)
                if k is None:
                    setattr(owner, field.name, new)
                else:
                    getattr(owner, field.name)[k] = new
            return
        except (TypeError, ValueError):  # protobuf takes no such value
            continue


def _value(owner: Any, field: Any, k: int | None) -> Any:
    return getattr(owner, field.name) if k is None else getattr(owner, field.name)[k]


def _spots(message: Any) -> Iterator[tuple[Any, Any, int | None]]:
    """Every field of a message and of those in it: its owner, and its position of several."""
    for field, value in message.ListFields():
        several = not isinstance(value, (str, bytes)) and hasattr(value, "__len__")
        for k, item in enumerate(value) if several else ((None, value),):
            yield message, field, k
            if hasattr(item, "ListFields"):
                yield from _spots(item)


def json_changed(text: bytes, rng: random.Random) -> bytes:
    """JSON with one value other, left out, of another type, or in the place of another."""
    root = json.loads(text)
    spots: list[tuple[Any, Any]] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        for key, value in [*(node.items() if isinstance(node, dict) else enumerate(node))]:
            spots.append((node, key))
            if isinstance(value, dict | list):
                waiting.append(value)
    if not spots:
        return text + b","
    (owner, key), (source, source_key) = rng.choice(spots), rng.choice(spots)
    way = rng.randrange(5)
    if way == 0:
        del owner[key]
    elif way == 1:
        owner[key] = rng.choice((None, [], {}, "x", -1, 1.5, True, [[1]], {"a": 1}))
    elif way == 2:
        owner[key] = json.loads(json.dumps(source[source_key]))
    else:
        owner[key] = odd(owner[key], rng)
    return json.dumps(root).encode()


def zip_changed(data: bytes, rng: random.Random) -> bytes:
    """A zip with one member damaged, left out or renamed; its checksums are right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    k = rng.randrange(len(members))
    way = rng.randrange(8)
    if way == 0:
        del members[k]
    elif way == 1:
        members[k] = rng.choice(("x", "../x", members[k][0].upper())), members[k][1]
    else:
        name, content = members[k]
        members[k] = name, content_changed(name, content, rng)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


def safetensors_changed(data: bytes, rng: random.Random) -> bytes:
    """With another header, of the length that the file says."""
    size = int.from_bytes(data[:8], "little")
    header = json_changed(data[8:8 + size], rng)
    return struct.pack("<Q", len(header)) + header + data[8 + size:]


def artifact_changed(data: bytes, rng: random.Random) -> bytes:
    """An artifact with another manifest or other weights; all its hashes are right. Its code is as
    it was: other code that is sealed is another program."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = files.pop(MANIFEST)
    if rng.randrange(4):
        manifest = json_changed(manifest, rng)
    else:
        name = next(name for name in files if name.endswith(".safetensors"))
        files[name] = safetensors_changed(files[name], rng)
        entries = json.loads(manifest)
        entries["files"][name] = {"size": len(files[name]),
                                  "sha256": hashlib.sha256(files[name]).hexdigest()}
        manifest = json.dumps(entries).encode()
    return stored_zip({MANIFEST: manifest, **files}, hashlib.sha256(manifest).hexdigest())


STRUCTURED: dict[str, Callable[[bytes, random.Random], bytes]] = {  # by how a name ends
    ".json": json_changed, ".safetensors": safetensors_changed, ".npz": zip_changed,
    ".keras": zip_changed, ".pt": zip_changed, ".pt2": zip_changed, ".zt": artifact_changed}


def content_changed(name: str, data: bytes, rng: random.Random) -> bytes:
    """The content of a file of this name, damaged: its bytes, or more often its structure."""
    change = STRUCTURED.get(name[name.rfind("."):])
    if not data:
        return b"\0"
    return change(data, rng) if change and rng.randrange(3) else bytes_changed(data, rng)
