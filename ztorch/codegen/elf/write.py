"""Writes relocatable ELF objects: the inverse of `object.py`."""

from __future__ import annotations

from ztorch.codegen.elf.object import (
    HEADER,
    RELA,
    SECTION,
    SHT_NOBITS,
    SHT_RELA,
    SHT_STRTAB,
    SHT_SYMTAB,
    STB_LOCAL,
    SYMBOL,
    ElfSymbol,
    Object,
    Section,
)

_NO_DATA = memoryview(b"")
# What every object begins with.
NO_SECTION = Section("", 0, 0, 0, 1, 0, 0, _NO_DATA)
NO_SYMBOL = ElfSymbol("", 0, STB_LOCAL, 0, 0, 0)
_INFO_LINK = 0x40  # SHF_INFO_LINK: `info` is the number of a section


def object_bytes(obj: Object) -> bytes:
    """The file of an object, whose sections are all contents: tables of symbols, names and
    relocations are written from its other fields. Local symbols must come first.

    >>> from ztorch.codegen.elf.object import EM_X86_64, read_object
    >>> data = Section(".data", 1, 3, 2, 8, 0, 0, memoryview(b"ab"))
    >>> symbol = ElfSymbol("pair", 1, 1, 1, 0, 2)
    >>> obj = Object(EM_X86_64, 0, [NO_SECTION, data], [NO_SYMBOL, symbol], [])
    >>> read_object(object_bytes(obj)).symbols[1] == symbol
    True
    """
    names = _NameTable()
    body, rows = bytearray(HEADER.size), []

    def add(name: str, kind: int, flags: int, content: bytes | bytearray | memoryview,
            size: int, align: int, link: int = 0, info: int = 0, entry: int = 0) -> None:
        body.extend(bytes(-len(body) % align))
        rows.append(SECTION.pack(names.offset(name), kind, flags, 0, len(body), size, link, info,
                                 align, entry))
        body.extend(content)

    relocations: dict[int, list[bytes]] = {}
    for r in obj.relocations:
        row = RELA.pack(r.offset, r.symbol << 32 | r.kind, r.addend)
        relocations.setdefault(r.section, []).append(row)
    for section in obj.sections:
        content = _NO_DATA if section.type == SHT_NOBITS else section.data
        add(section.name, section.type, section.flags, content, section.size, section.align)
    symbol_table = len(obj.sections) + len(relocations)
    for number, table in relocations.items():
        entries = b"".join(table)
        add(f".rela{obj.sections[number].name}", SHT_RELA, _INFO_LINK, entries, len(entries), 8,
            symbol_table, number, RELA.size)
    symbols = b"".join(SYMBOL.pack(names.offset(s.name), s.bind << 4 | s.type, s.visibility,
                                   s.section, s.value, s.size) for s in obj.symbols)
    local = sum(symbol.bind == STB_LOCAL for symbol in obj.symbols)
    add(".symtab", SHT_SYMTAB, 0, symbols, len(symbols), 8, symbol_table + 1, local, SYMBOL.size)
    names.offset(".strtab")
    add(".strtab", SHT_STRTAB, 0, names.table, len(names.table), 1)
    body.extend(bytes(-len(body) % 8))
    HEADER.pack_into(body, 0, b"\x7fELF\x02\x01\x01", 1, obj.machine, 1, 0, 0, len(body), obj.flags,
                     HEADER.size, 0, 0, SECTION.size, len(rows), len(rows) - 1)
    return bytes(body) + b"".join(rows)


class _NameTable:
    """The table of names of sections and symbols."""

    def __init__(self) -> None:
        self.table = bytearray(b"\0")
        self._offsets = {"": 0}

    def offset(self, name: str) -> int:
        """The place of a name, which is added when it is first asked for."""
        if name not in self._offsets:
            self._offsets[name] = len(self.table)
            self.table += name.encode() + b"\0"
        return self._offsets[name]
