"""The tables of a shared library for the loader and the debugger: hash tables, names, symbols.

The layout needs the tables' sizes, and their contents need the layout. So each table is reserved
first and filled later.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ztorch.codegen.elf_layout import DYNAMIC, RELA, SYMBOL, OutputSection, present, section_numbers
from ztorch.codegen.elf_object import STB_GLOBAL

BUILD_ID_BYTES = 20  # length of the build id, that of SHA-1 as in GNU ld


@dataclass
class Name:
    """A symbol of the finished library."""

    name: bytes  # without a final zero
    type: int  # STT_...
    part: OutputSection  # its section
    offset: int  # in that section
    size: int  # bytes
    exported: bool  # whether other code can look it up


class Tables:
    """Reserves and fills the tables."""

    def __init__(self, parts: dict[str, OutputSection], soname: str, names: list[Name],
                 relative: int):
        """Reserves all tables; `relative` is the number of addresses that the loader adjusts."""
        self.parts, self.relative, self.soname = parts, relative, soname.encode()
        self.names = sorted(names, key=lambda name: name.exported)  # ELF requires locals first
        self.exports = [name for name in self.names if name.exported]
        exported = [name.name for name in self.exports]
        note = struct.pack("<III4s", 4, BUILD_ID_BYTES, 3, b"GNU\0")
        parts[".note.gnu.build-id"].add(note, len(note) + BUILD_ID_BYTES)
        parts[".dynstr"].add(b"\0" + b"".join(n + b"\0" for n in [*exported, self.soname]))
        parts[".dynsym"].add(b"", SYMBOL.size * (1 + len(exported)))
        parts[".hash"].add(_sysv_hash(len(exported)))
        parts[".gnu.hash"].add(_gnu_hash(exported))
        parts[".rela.dyn"].add(b"", RELA.size * relative)
        parts[".dynamic"].add(b"", DYNAMIC.size * len(self.dynamic()))
        parts[".strtab"].add(b"\0" + b"".join(name.name + b"\0" for name in self.names))
        parts[".symtab"].add(b"", SYMBOL.size * (1 + len(self.names)))
        parts[".symtab"].info = 1 + len(self.names) - len(exported)
        section_names = parts[".shstrtab"]
        section_names.add(b"\0")
        for part in present(parts):
            section_names.add(part.name.encode() + b"\0")

    def fill(self, image: bytearray) -> None:
        self.fill_symbols(image, self.parts[".dynsym"], self.exports)
        self.fill_symbols(image, self.parts[".symtab"], self.names)
        for i, row in enumerate(self.dynamic()):
            DYNAMIC.pack_into(image, self.parts[".dynamic"].offset + i * DYNAMIC.size, *row)

    def fill_symbols(self, image: bytearray, table: OutputSection, names: list[Name]) -> None:
        numbers = section_numbers(self.parts)
        at, string = table.offset, 1
        for name in names:
            at += SYMBOL.size
            info = name.type | STB_GLOBAL << 4 if name.exported else name.type
            place = numbers[name.part.name], name.part.address + name.offset
            SYMBOL.pack_into(image, at, string, info, 0, *place, name.size)
            string += len(name.name) + 1

    def dynamic(self) -> list[tuple[int, int]]:
        """The (tag, value) rows through which the loader finds the other tables."""
        parts = self.parts
        rows = [
            (14, parts[".dynstr"].size - len(self.soname) - 1),  # SONAME
            (4, parts[".hash"].address),
            (0x6FFFFEF5, parts[".gnu.hash"].address),
            (5, parts[".dynstr"].address),
            (6, parts[".dynsym"].address),
            (10, parts[".dynstr"].size),
            (11, SYMBOL.size),
        ]
        if self.relative:
            rela = parts[".rela.dyn"]
            rows += [(7, rela.address), (8, rela.size), (9, RELA.size), (0x6FFFFFF9, self.relative)]
        return [*rows, (30, 8), (0x6FFFFFFB, 1), (0, 0)]  # bind now, in both notations


def _sysv_hash(count: int) -> bytes:
    """One bucket that chains all symbols, which is fast enough for the few exports."""
    chain = [0, *range(2, count + 1), 0] if count else [0]
    return struct.pack(f"<{3 + len(chain)}I", 1, count + 1, min(count, 1), *chain)


def _gnu_hash(names: list[bytes]) -> bytes:
    hashes, bloom = [], 0
    for name in names:
        value = 5381
        for byte in name:
            value = (value * 33 + byte) & 0xFFFFFFFF
        bloom |= 1 << value % 64 | 1 << (value >> 6) % 64
        hashes.append(value & ~1)
    if hashes:
        hashes[-1] |= 1  # marks the end of the single bucket
    head = struct.pack("<4IQI", 1, 1, 1, 6, bloom, min(len(names), 1))
    return head + struct.pack(f"<{len(hashes)}I", *hashes)
