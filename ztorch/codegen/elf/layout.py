"""The layout of an ELF shared library: its sections, segments and headers.

There are four segments: read-only, executable, read-only after loading ("relro"), and writable.
Contents are contiguous in the file. In memory each segment starts on a new page, at an address
congruent to its file offset modulo the page size. So the file needs no padding, and no page is both
writable and executable.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ztorch.abi import align_up
from ztorch.codegen.elf.object import (
    HEADER,
    RELA,
    SECTION,
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHT_NOBITS,
    SHT_NOTE,
    SHT_PROGBITS,
    SHT_RELA,
    SHT_STRTAB,
    SHT_SYMTAB,
    SYMBOL,
)
from ztorch.errors import LinkError

SHT_HASH, SHT_DYNAMIC, SHT_DYNSYM, SHT_GNU_HASH = 5, 6, 11, 0x6FFFFFF6
# Tags of rows of the dynamic section.
DT_NULL, DT_HASH, DT_STRTAB, DT_SYMTAB = 0, 4, 5, 6
DT_RELA, DT_RELASZ, DT_RELAENT, DT_STRSZ, DT_SYMENT, DT_SONAME = 7, 8, 9, 10, 11, 14
DT_FLAGS, DT_GNU_HASH, DT_RELACOUNT, DT_FLAGS_1 = 30, 0x6FFFFEF5, 0x6FFFFFF9, 0x6FFFFFFB
# Rows of the program header table and of the dynamic section.
SEGMENT = struct.Struct("<IIQQQQQQ")
DYNAMIC = struct.Struct("<QQ")
ADDRESS_LIMIT = 1 << 47  # bytes of address space that a process can use

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_PT_EH_FRAME, _PT_STACK, _PT_RELRO = 0x6474E550, 0x6474E551, 0x6474E552
_READ, _CODE, _WRITE = SHF_ALLOC, SHF_ALLOC | SHF_EXECINSTR, SHF_ALLOC | SHF_WRITE

Bytes = bytes | bytearray | memoryview


@dataclass
class OutputSection:
    """A section of the library under construction."""

    name: str  # such as ".text"
    type: int  # SHT_...
    flags: int  # SHF_...
    align: int = 1  # bytes, a power of 2
    entry: int = 0  # bytes of a row, if it is a table
    link: str = ""  # name of the section that sh_link refers to
    info: int = 0  # sh_info
    size: int = 0  # bytes so far
    offset: int = 0  # in the file; set by the layout
    address: int = 0  # in memory; set by the layout
    pieces: list[tuple[int, Bytes]] = field(default_factory=list)  # offset in the section, data

    def add(self, data: Bytes, size: int = 0, align: int = 1) -> int:
        """Appends data, padded with zeros to `size`; returns its offset in the section."""
        at = align_up(self.size, align)
        self.align = max(self.align, align)
        self.size = at + max(size, len(data))
        if len(data):
            self.pieces.append((at, data))
        return at

    def write(self, image: bytearray, offset: int) -> None:
        for at, data in self.pieces:
            image[offset + at : offset + at + len(data)] = data

    @property
    def rights(self) -> int:
        """Access rights of its segment: PF_R | PF_X | PF_W."""
        return 4 | bool(self.flags & SHF_EXECINSTR) | 2 * bool(self.flags & SHF_WRITE)


def new_parts() -> dict[str, OutputSection]:
    """All sections that a library can have, in file order. Empty ones are not written."""
    parts = [
        OutputSection(".note.gnu.build-id", SHT_NOTE, _READ, 4),
        OutputSection(".gnu.hash", SHT_GNU_HASH, _READ, 8, link=".dynsym"),
        OutputSection(".hash", SHT_HASH, _READ, 4, 4, link=".dynsym"),
        OutputSection(".dynsym", SHT_DYNSYM, _READ, 8, SYMBOL.size, link=".dynstr", info=1),
        OutputSection(".dynstr", SHT_STRTAB, _READ),
        OutputSection(".rela.dyn", SHT_RELA, _READ, 8, RELA.size, link=".dynsym"),
        OutputSection(".rodata", SHT_PROGBITS, _READ),
        OutputSection(".eh_frame_hdr", SHT_PROGBITS, _READ, 4),
        OutputSection(".eh_frame", SHT_PROGBITS, _READ, 8),
        OutputSection(".text", SHT_PROGBITS, _CODE, 16),
        OutputSection(".data.rel.ro", SHT_PROGBITS, _WRITE, 8),
        # Writable because glibc before 2.35 writes to it.
        OutputSection(".dynamic", SHT_DYNAMIC, _WRITE, 8, DYNAMIC.size, link=".dynstr"),
        OutputSection(".got", SHT_PROGBITS, _WRITE, 8, 8),
        OutputSection(".data", SHT_PROGBITS, _WRITE),
        OutputSection(".bss", SHT_NOBITS, _WRITE),
        OutputSection(".symtab", SHT_SYMTAB, 0, 8, SYMBOL.size, link=".strtab"),
        OutputSection(".strtab", SHT_STRTAB, 0),
        OutputSection(".shstrtab", SHT_STRTAB, 0),
    ]
    return {part.name: part for part in parts}


def present(parts: dict[str, OutputSection]) -> list[OutputSection]:
    """The sections that are not empty."""
    return [part for part in parts.values() if part.size]


class Layout:
    """Sets the offset and address of each section, and lists the segments.

    >>> parts = new_parts()
    >>> for name in (".rodata", ".text", ".dynamic"):
    ...     _ = parts[name].add(b"", 32)
    >>> layout = Layout(parts, page=4096)
    >>> [hex(parts[name].offset) for name in (".rodata", ".text", ".dynamic")]
    ['0x190', '0x1b0', '0x1d0']
    >>> [hex(parts[name].address) for name in (".rodata", ".text", ".dynamic")]
    ['0x190', '0x11b0', '0x21d0']
    """

    def __init__(self, parts: dict[str, OutputSection], page: int) -> None:
        self.page = page
        self.segments: list[tuple[int, ...]] = []
        written = present(parts)
        relro = [p for p in written if p.name in (".data.rel.ro", ".dynamic", ".got")]
        writable = [p for p in written if p.flags == _WRITE and p not in relro]
        # A segment that holds only zeros confuses tools, so .bss alone joins the relro segment.
        zeros = writable if [p.type for p in writable] == [SHT_NOBITS] else []
        groups = [
            [p for p in written if p.flags == _READ],
            [p for p in written if p.flags == _CODE],
            relro,
            [] if zeros else writable,
        ]
        special = [
            (kind, parts[name])
            for kind, name in [
                (_PT_DYNAMIC, ".dynamic"),
                (_PT_NOTE, ".note.gnu.build-id"),
                (_PT_EH_FRAME, ".eh_frame_hdr"),
            ]
            if parts[name].size
        ]
        count = sum(1 for group in groups if group) + len(special) + 2
        self.offset = self.end = HEADER.size + SEGMENT.size * count
        for group in groups:
            if group:
                self.load(group, pad=group is relro, zeros=zeros)
        for kind, part in special:
            place = part.offset, part.address, part.address, part.size, part.size, part.align
            self.segments.append((kind, part.rights, *place))
        if relro:
            self.segments.append(self.protected)
        self.segments.append((_PT_STACK, 6, 0, 0, 0, 0, 0, 16))
        for part in written:
            if not part.flags & SHF_ALLOC:
                part.offset = align_up(self.offset, part.align)
                self.offset = part.offset + part.size
        self.section_table = align_up(self.offset, 8)  # offset of the section header table

    def load(self, group: list[OutputSection], pad: bool, zeros: list[OutputSection]) -> None:
        """Adds one segment: sections with the same access rights, on their own pages."""
        first = not self.segments
        self.offset = align_up(self.offset, group[0].align)
        start = 0 if first else self.offset
        # Addresses exceed offsets by a multiple of the page size.
        shift = 0 if first else align_up(self.end, self.page) - self.offset // self.page * self.page
        for part in group:
            part.offset = self.offset = align_up(self.offset, part.align)
            part.address = self.offset + shift
            self.end = part.address + part.size
            if part.type != SHT_NOBITS:
                self.offset += part.size
        file_bytes = self.offset - start
        at = start, start + shift, start + shift
        if pad:
            # Pages are protected as a whole, so the last one must hold nothing writable.
            self.end = align_up(self.end, self.page)
            self.protected = (_PT_RELRO, 4, *at, file_bytes, self.end - start - shift, 1)
            for part in zeros:
                part.offset, part.address = self.offset, self.end
                self.end += part.size
        if self.end > ADDRESS_LIMIT:
            raise LinkError(f"the library needs {self.end} bytes of address space; a process has "
                            f"{ADDRESS_LIMIT}")
        size = self.end - start - shift
        self.segments.append((_PT_LOAD, group[0].rights, *at, file_bytes, size, self.page))

    def write_headers(
        self, image: bytearray, parts: dict[str, OutputSection], machine: int, flags: int
    ) -> None:
        written = present(parts)
        numbers = section_numbers(parts)
        names = parts[".shstrtab"]
        HEADER.pack_into(
            image,
            0,
            b"\x7fELF\x02\x01\x01".ljust(16, b"\0"),
            *(3, machine, 1, 0, HEADER.size, self.section_table, flags),
            *(HEADER.size, SEGMENT.size, len(self.segments)),
            *(SECTION.size, 1 + len(written), numbers[names.name]),
        )
        for i, segment in enumerate(self.segments):
            SEGMENT.pack_into(image, HEADER.size + i * SEGMENT.size, *segment)
        for (name, _), part in zip(names.pieces[1:], written, strict=True):
            SECTION.pack_into(
                image,
                self.section_table + SECTION.size * numbers[part.name],
                *(name, part.type, part.flags, part.address, part.offset, part.size),
                *(numbers.get(part.link, 0), part.info, part.align, part.entry),
            )


def section_numbers(parts: dict[str, OutputSection]) -> dict[str, int]:
    """The row of each section in the section header table."""
    return {part.name: number for number, part in enumerate(present(parts), start=1)}
