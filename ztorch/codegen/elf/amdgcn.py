"""Links an object that LLVM emits for AMD GPUs into a code object, a kind of shared library.

The object has instructions, a descriptor for each kernel, and a note that describes the kernels'
arguments to the driver. The only relocations are in the descriptors: the distance to the kernel's
first instruction. The section layout is that of ld.lld, because loaders are tested with it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ztorch.abi import align_up
from ztorch.codegen.elf import layout as elf
from ztorch.codegen.elf.layout import (
    DYNAMIC,
    SEGMENT,
    SHT_DYNAMIC,
    SHT_DYNSYM,
    SHT_GNU_HASH,
    SHT_HASH,
    OutputSection,
)
from ztorch.codegen.elf.object import (
    EM_AMDGPU,
    HEADER,
    SECTION,
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHT_NOBITS,
    SHT_NOTE,
    SHT_PROGBITS,
    SHT_STRTAB,
    SHT_SYMTAB,
    STB_LOCAL,
    STT_FUNC,
    STT_NOTYPE,
    STV_HIDDEN,
    SYMBOL,
    ElfSymbol,
    Object,
    read_object,
)
from ztorch.codegen.elf.tables import gnu_hash, gnu_hash_table
from ztorch.errors import LinkError

_PAGE = 4096  # bytes
_SEGMENTS = 8  # rows of the program header table
_REL64 = 5  # R_AMDGPU_REL64: an 8-byte distance, relative to its own address
# Types of segments (PT_...).
_LOAD, _DYNAMIC, _NOTE, _PHDR, _STACK, _RELRO = 1, 2, 4, 6, 0x6474E551, 0x6474E552
_ABSOLUTE = 0xFFF1  # SHN_ABS
_HSA, _VERSION = 64, 3  # OS ABI of these ELF files, and its version for code object 5
_READ, _CODE, _WRITE = SHF_ALLOC, SHF_ALLOC | SHF_EXECINSTR, SHF_ALLOC | SHF_WRITE
_COPIED = {".note": SHT_NOTE, ".rodata": SHT_PROGBITS, ".text": SHT_PROGBITS}  # name: type
_GNU_HASH_SHIFT = 26  # shift of the second Bloom filter bit, as in ld.lld


def link(obj: bytes) -> bytes:
    """Links an object file into a code object; `LinkError` names anything unsupported in it."""
    source = read_object(obj)
    if source.machine != EM_AMDGPU or obj[7:9] != bytes((_HSA, _VERSION)):
        raise LinkError(f"not an object of AMD's code object version 5 (ELF machine "
                        f"{source.machine}, system {obj[7]}, version {obj[8]})")
    return _CodeObjectLinker(source).run()


class _CodeObjectLinker:
    """One link: `__init__` decides the contents and the layout, `run` fills the image."""

    def __init__(self, source: Object):
        self.source = source
        self.parts = {p.name: p for p in (
            OutputSection(".note", SHT_NOTE, _READ, 4),
            OutputSection(".dynsym", SHT_DYNSYM, _READ, 8, SYMBOL.size, link=".dynstr", info=1),
            OutputSection(".gnu.hash", SHT_GNU_HASH, _READ, 8, link=".dynsym"),
            OutputSection(".hash", SHT_HASH, _READ, 4, 4, link=".dynsym"),
            OutputSection(".dynstr", SHT_STRTAB, _READ),
            OutputSection(".rodata", SHT_PROGBITS, _READ, 64),
            OutputSection(".text", SHT_PROGBITS, _CODE, 256),
            OutputSection(".dynamic", SHT_DYNAMIC, _WRITE, 8, DYNAMIC.size, link=".dynstr"),
            OutputSection(".relro_padding", SHT_NOBITS, _WRITE),
            OutputSection(".symtab", SHT_SYMTAB, 0, 8, SYMBOL.size, link=".strtab"),
            OutputSection(".shstrtab", SHT_STRTAB, 0),
            OutputSection(".strtab", SHT_STRTAB, 0),
        )}
        self.numbers = {name: k for k, name in enumerate(self.parts, start=1)}
        self.copy_sections()
        named = [s for s in source.symbols if s.name and s.type <= STT_FUNC]
        globals_ = [s for s in named if s.bind != STB_LOCAL]
        self.exports = _bucketed(globals_)
        dynamic = ElfSymbol("_DYNAMIC", STT_NOTYPE, STB_LOCAL, 0, 0, 0, STV_HIDDEN)
        self.symbols = [*(s for s in named if s.bind == STB_LOCAL), dynamic, *globals_]
        self.strings = {".dynstr": _strings(self.parts[".dynstr"], globals_),
                        ".strtab": _strings(self.parts[".strtab"], [*named, dynamic])}
        self.reserve()
        self.place()

    def copy_sections(self) -> None:
        for section in self.source.sections:
            if not section.flags & SHF_ALLOC or not section.size:
                continue
            if _COPIED.get(section.name) != section.type or self.parts[section.name].size:
                raise LinkError(f"section {section.name!r} of type {section.type}: kernels may "
                                "only have instructions, descriptors and a note")
            self.parts[section.name].add(section.data, align=section.align)
        for symbol in self.source.symbols:
            if symbol.undefined:
                raise LinkError(f"the kernels call {symbol.name!r}, which is not defined")

    def reserve(self) -> None:
        """Reserves space for the tables that are filled once addresses are known."""
        parts, names = self.parts, [s.name.encode() for s in self.exports]
        parts[".dynsym"].add(b"", SYMBOL.size * (1 + len(names)))
        words = 1 << (len(names) * 12 // 64).bit_length()
        parts[".gnu.hash"].add(
            gnu_hash_table(names, _buckets(len(names)), words, _GNU_HASH_SHIFT))
        parts[".hash"].add(_sysv_hash(names))
        parts[".dynamic"].add(b"", DYNAMIC.size * 7)
        parts[".symtab"].add(b"", SYMBOL.size * (1 + len(self.symbols)))
        parts[".symtab"].info = 1 + sum(s.bind == STB_LOCAL for s in self.symbols)
        for name in ("", *parts):
            parts[".shstrtab"].add(name.encode() + b"\0")

    def place(self) -> None:
        """Sets offsets and addresses.

        A section with other access rights starts on a new page. Only its address is moved there,
        not its file offset.
        """
        offset = address = HEADER.size + SEGMENT.size * _SEGMENTS
        rights = self.parts[".note"].flags
        for part in self.parts.values():
            if part.flags & SHF_ALLOC:
                if part.flags != rights:
                    rights, address = part.flags, align_up(address, _PAGE) + address % _PAGE
                if part.type == SHT_NOBITS:  # fills the rest of the page
                    part.size = align_up(address, _PAGE) - address
                part.address = align_up(address, part.align)
                offset += part.address - address - (part.address - address) // _PAGE * _PAGE
                address = part.address + part.size
            part.offset = offset = align_up(offset, part.align)
            offset += part.size if part.type != SHT_NOBITS else 0
        self.section_table = align_up(offset, 8)  # offset of the section header table

    def run(self) -> bytes:
        image = bytearray(self.section_table + SECTION.size * (1 + len(self.parts)))
        for part in self.parts.values():
            part.write(image, part.offset)
        self.relocate(image)
        self.fill_symbols(image, ".dynsym", self.exports, ".dynstr")
        self.fill_symbols(image, ".symtab", self.symbols, ".strtab")
        for i, row in enumerate(self.dynamic()):
            DYNAMIC.pack_into(image, self.parts[".dynamic"].offset + i * DYNAMIC.size, *row)
        self.write_headers(image)
        return bytes(image)

    def relocate(self, image: bytearray) -> None:
        for r in self.source.relocations:
            section, symbol = self.source.sections[r.section], self.source.symbols[r.symbol]
            location = self.location(symbol)
            if r.kind != _REL64 or section.name != ".rodata" or location is None:
                raise LinkError(f"relocation {r.kind} in {section.name!r} to {symbol.name!r}: only "
                                "descriptors may have relocations, and only to instructions")
            if r.offset + 8 > section.size:
                raise LinkError(f"damaged object: a relocation outside {section.name!r}")
            part = self.parts[section.name]
            distance = location + r.addend - (part.address + r.offset)
            struct.pack_into("<q", image, part.offset + r.offset, distance)

    def location(self, symbol: ElfSymbol) -> int | None:
        """The address of a symbol, if it has one."""
        if symbol.section < len(self.source.sections):
            part = self.parts.get(self.source.sections[symbol.section].name)
            return None if part is None else part.address + symbol.value
        return None

    def fill_symbols(self, image: bytearray, table: str, symbols: Sequence[ElfSymbol],
                     strings: str) -> None:
        at = self.parts[table].offset
        for s in symbols:
            at += SYMBOL.size
            location = self.location(s)
            number = _ABSOLUTE if location is None else self.numbers[
                self.source.sections[s.section].name]
            value = s.value if location is None else location
            if s.name == "_DYNAMIC":
                number, value = self.numbers[".dynamic"], self.parts[".dynamic"].address
            SYMBOL.pack_into(image, at, self.strings[strings][s.name], s.type | s.bind << 4,
                             s.visibility, number, value, s.size)

    def dynamic(self) -> list[tuple[int, int]]:
        parts = self.parts
        return [(elf.DT_SYMTAB, parts[".dynsym"].address), (elf.DT_SYMENT, SYMBOL.size),
                (elf.DT_STRTAB, parts[".dynstr"].address),
                (elf.DT_STRSZ, parts[".dynstr"].size),
                (elf.DT_GNU_HASH, parts[".gnu.hash"].address),
                (elf.DT_HASH, parts[".hash"].address), (elf.DT_NULL, 0)]

    def segments(self) -> list[tuple[int, ...]]:
        parts, head = self.parts, HEADER.size
        text, rows, note = parts[".text"], parts[".dynamic"], parts[".note"]
        rodata, padded = parts[".rodata"], rows.size + parts[".relro_padding"].size

        def at(part: OutputSection) -> tuple[int, int, int]:
            return part.offset, part.address, part.address

        headers, read = SEGMENT.size * _SEGMENTS, rodata.address + rodata.size
        return [
            (_PHDR, 4, head, head, head, headers, headers, 8),
            (_LOAD, 4, 0, 0, 0, read, read, _PAGE),
            (_LOAD, 5, *at(text), text.size, text.size, _PAGE),
            (_LOAD, 6, *at(rows), rows.size, padded, _PAGE),
            (_DYNAMIC, 6, *at(rows), rows.size, rows.size, 8),
            (_RELRO, 4, *at(rows), rows.size, padded, 1),
            (_STACK, 6, 0, 0, 0, 0, 0, 0),
            (_NOTE, 4, *at(note), note.size, note.size, 4),
        ]

    def write_headers(self, image: bytearray) -> None:
        ident = b"\x7fELF\x02\x01\x01" + bytes((_HSA, _VERSION))
        counts = SEGMENT.size, _SEGMENTS, SECTION.size, 1 + len(self.parts)
        HEADER.pack_into(image, 0, ident.ljust(16, b"\0"), 3, EM_AMDGPU, 1, 0, HEADER.size,
                         self.section_table, self.source.flags, HEADER.size, *counts,
                         self.numbers[".shstrtab"])
        for i, segment in enumerate(self.segments()):
            SEGMENT.pack_into(image, HEADER.size + i * SEGMENT.size, *segment)
        name = 1
        for k, p in enumerate(self.parts.values(), start=1):
            SECTION.pack_into(image, self.section_table + k * SECTION.size, name, p.type, p.flags,
                              p.address, p.offset, p.size, self.numbers.get(p.link, 0), p.info,
                              p.align, p.entry)
            name += len(p.name) + 1


def _strings(part: OutputSection, symbols: Sequence[ElfSymbol]) -> dict[str, int]:
    """Adds each name to a string table once; returns the offset of each."""
    part.add(b"\0")
    offsets: dict[str, int] = {}
    for s in symbols:
        if s.name not in offsets:
            offsets[s.name] = part.add(s.name.encode() + b"\0")
    return offsets


def _bucketed(symbols: Sequence[ElfSymbol]) -> list[ElfSymbol]:
    """The symbols ordered by hash bucket, as .gnu.hash requires."""
    count = _buckets(len(symbols))
    return sorted(symbols, key=lambda s: gnu_hash(s.name.encode()) % count)


def _buckets(symbols: int) -> int:
    """The number of buckets of .gnu.hash, as in ld.lld."""
    return max(symbols // 4, 1)


def _sysv_hash(names: Sequence[bytes]) -> bytes:
    """The section .hash, with a bucket for each symbol."""
    count = 1 + len(names)
    buckets, chains = [0] * count, [0] * count
    for k, name in enumerate(names, start=1):
        value = 0
        for byte in name:
            value = (value << 4) + byte
            high = value & 0xF0000000
            value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
        chains[k], buckets[value % count] = buckets[value % count], k
    return struct.pack(f"<{2 + 2 * count}I", count, count, *buckets, *chains)
