"""Reads the relocatable ELF objects that LLVM emits: sections, symbols, relocations.

The bytes can come from a damaged file, so every offset, size and index is checked here. Users of
an `Object` need not check them again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ztorch.errors import LinkError

EM_X86_64, EM_AARCH64, EM_AMDGPU = 62, 183, 224
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_REL = 1, 2, 3, 4, 7, 8, 9
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS = 0x1, 0x2, 0x4, 0x400
STB_LOCAL, STB_GLOBAL = 0, 1
STT_NOTYPE, STT_OBJECT, STT_FUNC = 0, 1, 2
SHN_UNDEF, SHN_LORESERVE, SHN_COMMON = 0, 0xFF00, 0xFFF2

STV_HIDDEN = 2  # visible to the linker only
MACHINE_NUMBERS = {"x86_64": EM_X86_64, "aarch64": EM_AARCH64}  # by the names of processors

# The file header, and rows of tables.
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELA = struct.Struct("<QQq")

_MAX_BYTES = 1 << 46  # more than a process can map, so a larger size means damage


@dataclass(frozen=True)
class Section:
    """A section of an object."""

    name: str  # such as ".text"
    type: int  # SHT_...
    flags: int  # SHF_...
    size: int  # bytes in memory
    align: int  # bytes, a power of 2
    link: int  # sh_link
    info: int  # sh_info
    data: memoryview  # the contents; empty for zero-initialized sections


@dataclass(frozen=True)
class ElfSymbol:
    """A row of the symbol table."""

    name: str  # empty for section symbols
    type: int  # STT_...
    bind: int  # STB_...
    section: int  # index of its section, or SHN_...
    value: int  # offset in the section
    size: int  # bytes
    visibility: int = 0  # STV_...

    @property
    def undefined(self) -> bool:
        return self.section == SHN_UNDEF and bool(self.name)


@dataclass(frozen=True)
class Relocation:
    """An instruction or word in which the linker must insert an address."""

    section: int  # index of the section to patch
    offset: int  # in that section
    kind: int  # R_..., numbers that differ by machine
    symbol: int  # index of the symbol it refers to
    addend: int  # added to the symbol's address


@dataclass(frozen=True)
class Object:
    """A relocatable object file."""

    machine: int  # EM_...
    flags: int  # e_flags
    sections: list[Section]  # in file order, with the empty one first
    symbols: list[ElfSymbol]  # in file order
    relocations: list[Relocation]  # of sections that are loaded into memory, in file order


def read_object(data: bytes) -> Object:
    """Parses a 64-bit little-endian relocatable object; a `LinkError` if it is invalid.

    >>> read_object(b"MZ")
    Traceback (most recent call last):
    ...
    ztorch.errors.LinkError: not an ELF object (2 bytes, starts with b'MZ')
    """
    view = memoryview(data)
    if len(view) < 16 or bytes(view[:4]) != b"\x7fELF":
        raise LinkError(f"not an ELF object ({len(view)} bytes, starts with {bytes(view[:4])!r})")
    if bytes(view[4:6]) != b"\x02\x01":
        raise LinkError("not a 64-bit little-endian ELF object")
    header = HEADER.unpack(_slice(view, 0, HEADER.size, "the header"))
    _, kind, machine, _, _, _, table, flags, _, _, _, entry, count, names = header
    if kind != 1:
        raise LinkError(f"not a relocatable object, but an ELF file of type {kind}")
    if entry != SECTION.size or count == 0:
        raise LinkError(f"damaged object: {count} section headers of {entry} bytes")
    raw = list(SECTION.iter_unpack(_slice(view, table, count * entry, "the section table")))
    if names >= count:
        raise LinkError(f"damaged object: section names in section {names} of {count}")
    strings = _slice(view, raw[names][4], raw[names][5], "the section names")
    sections = [_section(view, fields, strings) for fields in raw]
    if sum(len(section.data) for section in sections) > len(view):
        raise LinkError("damaged object: sections overlap")
    symbols = _symbols(sections)
    return Object(machine, flags, sections, symbols, list(_relocations(sections, len(symbols))))


def _section(view: memoryview, fields: tuple[int, ...], strings: memoryview) -> Section:
    name_at, kind, flags, _, offset, size, link, info, align, _ = fields
    name = _string(strings, name_at)
    align = max(align, 1)
    if size > _MAX_BYTES or align & (align - 1):
        raise LinkError(f"damaged object: section {name!r} of size {size}, alignment {align}")
    stored = kind not in (0, SHT_NOBITS)
    data = _slice(view, offset, size, f"section {name!r}") if stored else view[:0]
    return Section(name, kind, flags, size if kind else 0, align, link, info, data)


def _symbols(sections: list[Section]) -> list[ElfSymbol]:
    tables = [section for section in sections if section.type == SHT_SYMTAB]
    if not tables:
        return []
    table = tables[0]
    if len(tables) > 1 or table.link >= len(sections) or len(table.data) % SYMBOL.size:
        raise LinkError("damaged object: its symbol table is not readable")
    strings = sections[table.link].data
    symbols = []
    for name_at, info, other, section, value, size in SYMBOL.iter_unpack(table.data):
        name = _string(strings, name_at)
        if len(sections) <= section < SHN_LORESERVE or section > SHN_COMMON:
            raise LinkError(f"damaged object: symbol {name!r} is in section {section}")
        room = sections[section].size if SHN_UNDEF < section < SHN_LORESERVE else _MAX_BYTES
        if value > room or size > _MAX_BYTES:
            raise LinkError(f"damaged object: symbol {name!r} is outside its section")
        symbols.append(ElfSymbol(name, info & 0xF, info >> 4, section, value, size, other & 3))
    return symbols


def _relocations(sections: list[Section], symbols: int) -> Iterator[Relocation]:
    for section in sections:
        if section.type not in (SHT_RELA, SHT_REL):
            continue
        if not 0 < section.info < len(sections):
            raise LinkError(f"damaged object: {section.name} relocates section {section.info}")
        if not sections[section.info].flags & SHF_ALLOC:
            continue
        if section.type == SHT_REL or len(section.data) % RELA.size:
            raise LinkError(f"{section.name}: relocations without addends are not supported")
        for offset, info, addend in RELA.iter_unpack(section.data):
            if info >> 32 >= symbols:
                raise LinkError(f"damaged object: {section.name} names symbol {info >> 32}")
            yield Relocation(section.info, offset, info & 0xFFFFFFFF, info >> 32, addend)


def _slice(view: memoryview, offset: int, size: int, part: str) -> memoryview:
    if offset + size > len(view):
        raise LinkError(f"truncated object: {part} ends at byte {offset + size} of {len(view)}")
    return view[offset : offset + size]


def _string(strings: memoryview, offset: int) -> str:
    if offset == 0 and not strings:
        return ""
    tail = bytes(strings[offset : offset + 4096])
    end = tail.find(b"\0")
    if end < 0:
        raise LinkError(f"damaged object: no name at byte {offset} of a string table")
    return tail[:end].decode("utf-8", "backslashreplace")
