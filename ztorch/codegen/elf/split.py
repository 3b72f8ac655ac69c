"""Splits the object of several kernels into an object for each.

LLVM takes over a millisecond for a module, whatever is in it, so kernels are assembled together.
Each of them then gets the object that it would have if it were assembled alone, whichever the
others were. Each kernel has a section of its own, but their constants share sections:
`.rodata.cst16` holds those of 16 bytes, and `.rodata` those of a whole register of AVX-512.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ztorch.codegen.elf.object import (
    EM_X86_64,
    SHF_ALLOC,
    SHT_PROGBITS,
    STB_LOCAL,
    STT_FUNC,
    ElfSymbol,
    Object,
    Relocation,
    Section,
)
from ztorch.codegen.elf.write import NO_SECTION, NO_SYMBOL

_PREFIX = ".rodata.cst"  # of the names of sections of constants, before their size
_WIDEST = 64  # bytes of the constants in `.rodata`, and their alignment
_STT_SECTION = 3  # ELF's type of a symbol that stands for its section

Constant = tuple[int, int, int]  # its size, the index of its section, and its offset there


def split(group: Object, name: str) -> dict[str, Object]:
    """The object of each kernel, by its symbol in the group. In its own object, it gets `name`.

    A kernel is left out if it refers to something other than constants, or if it is not clear which
    constants they are: it must be assembled alone.
    """
    relocations: dict[int, list[Relocation]] = {}
    for relocation in group.relocations:
        relocations.setdefault(relocation.section, []).append(relocation)
    kernels = [symbol for symbol in group.symbols
               if symbol.type == STT_FUNC and symbol.bind != STB_LOCAL and not symbol.undefined]
    in_section = Counter(kernel.section for kernel in kernels)
    objects = {}
    for kernel in kernels:
        own = relocations.get(kernel.section, [])
        constants = [_constant(group, relocation) for relocation in own]
        if in_section[kernel.section] == 1 and not any(
                c is None or c[1] in relocations for c in constants):
            present = [c for c in constants if c is not None]
            objects[kernel.name] = _alone(group, replace(kernel, name=name), own, present)
    return objects


def _constant(group: Object, relocation: Relocation) -> Constant | None:
    """The constant to which a relocation refers; None if it is not clear."""
    symbol = group.symbols[relocation.symbol]
    if symbol.undefined or symbol.section >= len(group.sections):
        return None
    section = group.sections[symbol.section]
    if section.name == ".rodata" and section.align == _WIDEST and section.size % _WIDEST == 0:
        size = _WIDEST
    elif section.name.startswith(_PREFIX):
        size = int(section.name.removeprefix(_PREFIX))
    else:
        return None
    start = symbol.value
    if symbol.type == _STT_SECTION:
        # x86 counts from the end of the instruction: four bytes on, or more if an immediate
        # operand of one or two bytes follows.
        start = relocation.addend + (4 if group.machine == EM_X86_64 else 0)
        behind = -start % size
        if behind > 2 or (size <= 4 and behind):
            return None
        start += behind
    if start % size or start + size > section.size:
        return None
    return size, symbol.section, start


def _alone(group: Object, kernel: ElfSymbol, relocations: list[Relocation],
           constants: list[Constant]) -> Object:
    """The object of one kernel: its code, and the constants that it reads, the largest first."""
    text, data = group.sections[kernel.section], bytearray()
    sections = [NO_SECTION, replace(text, name=".text", link=0, info=0)]
    symbols, offsets = [NO_SYMBOL], {}
    for constant in sorted(set(constants), key=lambda c: (-c[0], *c[1:])):
        size, section, start = constant
        offsets[constant] = len(data)
        data += group.sections[section].data[start:start + size]
    if constants:
        align = max(size for size, _, _ in constants)
        sections.append(Section(".rodata", SHT_PROGBITS, SHF_ALLOC, len(data), align, 0, 0,
                                memoryview(data)))
        symbols.append(ElfSymbol("", _STT_SECTION, STB_LOCAL, 2, 0, 0))
    symbols.append(replace(kernel, section=1))
    moved = []
    for relocation, constant in zip(relocations, constants, strict=True):
        before = group.symbols[relocation.symbol].value - constant[2]  # in the old section
        moved.append(Relocation(1, relocation.offset, relocation.kind, 1,
                                relocation.addend + before + offsets[constant]))
    return Object(group.machine, group.flags, sections, symbols, moved)
