"""Merges relocatable objects into one, so that the linker need only know a single object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ztorch.codegen.elf_object import (
    SHN_LORESERVE,
    SHN_UNDEF,
    STB_LOCAL,
    ElfSymbol,
    Object,
    Relocation,
    Section,
)
from ztorch.errors import LinkError


def merged(objects: Iterable[tuple[Object, Mapping[str, str]]]) -> Object:
    """One object with all sections and symbols of several.

    A symbol that one object uses and another defines becomes one symbol. Those that none defines
    remain undefined.

    Args:
        objects: The objects, each with other names for some of its symbols: its own name, then the
            one in the merged object.

    Raises:
        LinkError: Two objects define the same symbol, or are for different machines.
    """
    sections: list[Section] = []
    symbols: list[ElfSymbol] = []
    relocations: list[Relocation] = []
    defined: dict[str, int] = {}  # name of a symbol that other objects can use -> its index
    uses: list[tuple[ElfSymbol, dict[int, int], int]] = []  # symbol, where its index is to be put
    placed: list[tuple[Object, dict[int, int], int]] = []  # object, indices of symbols, of sections
    kinds = set()
    for source, names in objects:
        kinds.add((source.machine, source.flags))
        first = len(sections)
        index: dict[int, int] = {}
        sections += source.sections
        for number, symbol in enumerate(source.symbols):
            name = names.get(symbol.name, symbol.name)
            in_section = SHN_UNDEF < symbol.section < SHN_LORESERVE
            moved = ElfSymbol(name, symbol.type, symbol.bind,
                              symbol.section + first if in_section else symbol.section,
                              symbol.value, symbol.size, symbol.visibility)
            if moved.undefined:
                uses.append((moved, index, number))
                continue
            index[number] = len(symbols)
            if name and symbol.bind != STB_LOCAL:
                if name in defined:
                    raise LinkError(f"two objects define {name!r}")
                defined[name] = len(symbols)
            symbols.append(moved)
        placed.append((source, index, first))
    for symbol, index, number in uses:
        if symbol.name not in defined:
            defined[symbol.name] = len(symbols)
            symbols.append(symbol)
        index[number] = defined[symbol.name]
    for source, index, first in placed:
        relocations += [Relocation(r.section + first, r.offset, r.kind, index[r.symbol], r.addend)
                        for r in source.relocations]
    if len(kinds) != 1:
        raise LinkError(f"objects of {len(kinds)} machines cannot be merged")
    machine, flags = kinds.pop()
    return Object(machine, flags, sections, symbols, relocations)
