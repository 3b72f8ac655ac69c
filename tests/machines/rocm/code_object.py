"""Reads code objects as a driver does: the ELF file, its note in MessagePack, and the descriptors."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Any

EM_AMDGPU, NOTE, NOBITS, DYNSYM = 224, 7, 8, 11
METADATA = 32  # the type of AMD's note


@dataclass(frozen=True)
class Section:
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: str
    info: int
    align: int
    entry: int
    data: bytes


def sections(elf: bytes) -> dict[str, Section]:
    table, = struct.unpack_from("<Q", elf, 40)
    count, names = struct.unpack_from("<HH", elf, 60)
    rows = [struct.unpack_from("<IIQQQQIIQQ", elf, table + 64 * k) for k in range(count)]
    strings = elf[rows[names][4]:rows[names][4] + rows[names][5]]
    called = [strings[r[0]:strings.index(0, r[0])].decode() for r in rows]
    return {name: Section(name, r[1], r[2], r[3], r[4], r[5], called[r[6]], r[7], r[8], r[9],
                          b"" if r[1] == NOBITS else elf[r[4]:r[4] + r[5]])
            for name, r in zip(called, rows, strict=True)}


def symbols(elf: bytes, table: str = ".dynsym") -> dict[str, tuple[int, int, int]]:
    """The address, size and type of each name."""
    held = sections(elf)
    strings = held[held[table].link].data
    result = {}
    for name, info, _, _, value, size in struct.iter_unpack("<IBBHQQ", held[table].data):
        result[strings[name:strings.index(0, name)].decode()] = value, size, info & 15
    return result


def metadata(elf: bytes) -> dict[str, Any]:
    """The fields of the note."""
    note = sections(elf)[".note"].data
    length, size, kind = struct.unpack_from("<III", note)
    assert (note[12:12 + length], kind) == (b"AMDGPU\0", METADATA)
    start = 12 + -(-length // 4) * 4
    result, end = _unpacked(note, start)
    assert end == start + size
    return result


@functools.lru_cache(8)  # a driver asks for one kernel after the other
def kernels(elf: bytes) -> dict[str, dict[str, Any]]:
    return {k[".name"]: k for k in metadata(elf)["amdhsa.kernels"]}


def _unpacked(data: bytes, at: int) -> tuple[Any, int]:
    """One value of MessagePack, and where the next begins."""
    first, at = data[at], at + 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 256, at
    if first < 0x90:
        return _map(data, at, first & 15)
    if first < 0xA0:
        return _list(data, at, first & 15)
    if first < 0xC0:
        return data[at:at + (first & 31)].decode(), at + (first & 31)
    if first in (0xC2, 0xC3):
        return first == 0xC3, at
    if first in _NUMBERS:
        form = struct.Struct(_NUMBERS[first])
        number, = form.unpack_from(data, at)
        at += form.size
        if first in (0xD9, 0xDA, 0xDB):
            return data[at:at + number].decode(), at + number
        if first in (0xDC, 0xDD):
            return _list(data, at, number)
        if first in (0xDE, 0xDF):
            return _map(data, at, number)
        return number, at
    raise AssertionError(f"MessagePack's {first:#x} is not in use here")


_NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
            0xD3: ">q", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H",
            0xDF: ">I"}


def _list(data: bytes, at: int, count: int) -> tuple[list, int]:
    out = []
    for _ in range(count):
        value, at = _unpacked(data, at)
        out.append(value)
    return out, at


def _map(data: bytes, at: int, count: int) -> tuple[dict, int]:
    flat, at = _list(data, at, 2 * count)
    return dict(zip(flat[::2], flat[1::2], strict=True)), at


@dataclass(frozen=True)
class Descriptor:
    """The 64 bytes that a launch reads of a kernel."""

    shared: int
    scratch: int
    arguments: int
    entry: int  # the address of the first instruction
    rsrc1: int
    rsrc2: int
    properties: int

    @property
    def wave32(self) -> bool:
        return bool(self.properties & 1 << 10)

    @property
    def keeps_denormals(self) -> bool:
        """Of all float types, neither read nor written as zero."""
        return self.rsrc1 >> 16 & 15 == 15

    @property
    def rounds_to_nearest(self) -> bool:
        return self.rsrc1 >> 12 & 15 == 0


def descriptor(elf: bytes, kernel: str) -> Descriptor:
    rodata, (address, size, kind) = sections(elf)[".rodata"], symbols(elf)[f"{kernel}.kd"]
    assert (size, kind) == (64, 1)
    at = address - rodata.address
    shared, scratch, arguments, _, entry = struct.unpack_from("<IIIIq", rodata.data, at)
    _, rsrc1, rsrc2, properties = struct.unpack_from("<IIIH", rodata.data, at + 44)
    return Descriptor(shared, scratch, arguments, address + entry, rsrc1, rsrc2, properties)
