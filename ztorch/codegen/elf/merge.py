"""Merges relocatable objects into one, because the linker takes a single object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ztorch.codegen.elf.object import (
    SHN_LORESERVE,
    SHN_UNDEF,
    STB_LOCAL,
    ElfSymbol,
    Object,
    Relocation,
    Section,
)
from ztorch.errors import LinkError


def merge(objects: Iterable[tuple[Object, Mapping[str, str]]]) -> Object:
    """One object with the sections and symbols of several.

    A symbol that one object uses and another defines becomes one symbol. A symbol that none of them
    defines remains undefined.

    Args:
        objects: The objects, each with new names for some of its symbols, by their old names.

    Raises:
        LinkError: Two objects define the same symbol, or are for different machines.
    """
    sections: list[Section] = []
    symbols: list[ElfSymbol] = []
    relocations: list[Relocation] = []
    defined: dict[str, int] = {}  # indices of global symbols by name
    # Undefined symbols, each with the index of its object and its number there.
    uses: list[tuple[ElfSymbol, dict[int, int], int]] = []
    # Objects, each with the new numbers of its symbols, and the number of its first section.
    placements: list[tuple[Object, dict[int, int], int]] = []
    machines = set()
    for source, names in objects:
        machines.add((source.machine, source.flags))
        first = len(sections)
        index: dict[int, int] = {}
        sections += source.sections
        for number, symbol in enumerate(source.symbols):
            name = names.get(symbol.name, symbol.name)
            in_section = SHN_UNDEF < symbol.section < SHN_LORESERVE
            renumbered = ElfSymbol(name, symbol.type, symbol.bind,
                                   symbol.section + first if in_section else symbol.section,
                                   symbol.value, symbol.size, symbol.visibility)
            if renumbered.undefined:
                uses.append((renumbered, index, number))
                continue
            index[number] = len(symbols)
            if name and symbol.bind != STB_LOCAL:
                if name in defined:
                    raise LinkError(f"two objects define {name!r}")
                defined[name] = len(symbols)
            symbols.append(renumbered)
        placements.append((source, index, first))
    for symbol, index, number in uses:
        if symbol.name not in defined:
            defined[symbol.name] = len(symbols)
            symbols.append(symbol)
        index[number] = defined[symbol.name]
    for source, index, first in placements:
        relocations += [Relocation(r.section + first, r.offset, r.kind, index[r.symbol], r.addend)
                        for r in source.relocations]
    if len(machines) != 1:
        raise LinkError(f"objects for {len(machines)} different machines cannot be merged")
    machine, flags = machines.pop()
    return Object(machine, flags, sections, symbols, relocations)
