"""The tables of a shared library for the loader and debuggers: hash tables, names, symbols.

The layout needs the sizes of the tables, and their contents need the layout. So each table is
reserved first and filled later.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ztorch.codegen.elf import layout as elf
from ztorch.codegen.elf.layout import DYNAMIC, OutputSection, present, section_numbers
from ztorch.codegen.elf.object import RELA, STB_GLOBAL, SYMBOL

BUILD_ID_BYTES = 20  # the length that GNU ld uses
GNU_HASH_SHIFT = 6  # shift of the second Bloom filter bit
BIND_NOW, NOW = 8, 1  # the flag "resolve symbols at load", in DT_FLAGS and in DT_FLAGS_1


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
        parts[".gnu.hash"].add(gnu_hash_table(exported, 1, 1, GNU_HASH_SHIFT))
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
            (elf.DT_SONAME, parts[".dynstr"].size - len(self.soname) - 1),
            (elf.DT_HASH, parts[".hash"].address),
            (elf.DT_GNU_HASH, parts[".gnu.hash"].address),
            (elf.DT_STRTAB, parts[".dynstr"].address),
            (elf.DT_SYMTAB, parts[".dynsym"].address),
            (elf.DT_STRSZ, parts[".dynstr"].size),
            (elf.DT_SYMENT, SYMBOL.size),
        ]
        if self.relative:
            rela = parts[".rela.dyn"]
            rows += [(elf.DT_RELA, rela.address), (elf.DT_RELASZ, rela.size),
                     (elf.DT_RELAENT, RELA.size), (elf.DT_RELACOUNT, self.relative)]
        return [*rows, (elf.DT_FLAGS, BIND_NOW), (elf.DT_FLAGS_1, NOW), (elf.DT_NULL, 0)]


def _sysv_hash(count: int) -> bytes:
    """A hash table with one bucket, which is fast enough for the few exports."""
    chain = [0, *range(2, count + 1), 0] if count else [0]
    return struct.pack(f"<{3 + len(chain)}I", 1, count + 1, min(count, 1), *chain)


def gnu_hash(name: bytes) -> int:
    """The hash of a name in .gnu.hash.

    >>> gnu_hash(b"")
    5381
    """
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def gnu_hash_table(names: Sequence[bytes], buckets: int, words: int, shift: int) -> bytes:
    """The section .gnu.hash: a Bloom filter, the first symbol of each bucket, and the hashes.

    Args:
        names: The exported symbols, ordered by bucket.
        buckets: The number of buckets.
        words: The number of 64-bit words of the Bloom filter.
        shift: How far a hash is shifted for its second bit in the filter.
    """
    bloom, first, hashes = [0] * words, [0] * buckets, []
    for k, value in enumerate(map(gnu_hash, names)):
        bloom[value // 64 % words] |= 1 << value % 64 | 1 << (value >> shift) % 64
        first[value % buckets] = first[value % buckets] or k + 1
        last = k + 1 == len(names) or gnu_hash(names[k + 1]) % buckets != value % buckets
        hashes.append(value | 1 if last else value & ~1)  # the last of a bucket is odd
    return struct.pack(f"<4I{words}Q{buckets}I{len(hashes)}I", buckets, 1, words, shift, *bloom,
                       *first, *hashes)
