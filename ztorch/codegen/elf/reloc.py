"""Applies the relocations of x86-64 and aarch64 to machine code, once all addresses are known.

It supports only the relocations that LLVM emits for position-independent code with the small code
model. Any other is an error, because a wrong guess would cause wrong results or a later crash.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ztorch.codegen.elf.object import EM_AARCH64, EM_X86_64, Relocation


class PatchSite(NamedTuple):
    """A relocation with all addresses: what to patch, and with which address."""

    image: bytearray  # the library's bytes
    at: int  # offset of the patched bytes in the image
    place: int  # their address (P in ELF manuals)
    target: int  # address of the symbol (S)
    addend: int  # added to the target (A)
    got_entry: int | None  # address of the symbol's .got entry, if it has one (G)


@dataclass(frozen=True)
class Machine:
    """The relocations of one instruction set."""

    name: str  # for messages
    number: int  # EM_...
    page: int  # bytes of the largest page that systems use: segments must not share a page
    pointer: int  # relocation of a 64-bit absolute address in an object
    relative: int  # relocation that replaces it in a library, for the loader
    widths: dict[int, int]  # number of patched bytes for each supported relocation
    needs_got_entry: Callable[[Relocation, memoryview], bool]  # whether it needs a .got entry
    # Applies a relocation of this kind; ValueError if the distance does not fit.
    patch: Callable[[int, PatchSite], None]


# x86-64

_PC32, _PLT32, _GOTPCREL, _PC64, _GOTPCRELX, _REX_GOTPCRELX = 2, 4, 9, 24, 41, 42


def _x86_needs_got_entry(reloc: Relocation, code: memoryview) -> bool:
    """`mov symbol@GOT, reg` becomes `lea symbol, reg`; other instructions need a .got entry."""
    if reloc.kind == _GOTPCREL:
        return True
    if reloc.kind not in (_GOTPCRELX, _REX_GOTPCRELX):
        return False
    return reloc.offset < 2 or code[reloc.offset - 2] != 0x8B or reloc.addend != -4


def _x86_patch(kind: int, site: PatchSite) -> None:
    target = site.target
    if kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
        if site.got_entry is None:
            site.image[site.at - 2] = 0x8D  # mov to lea
        else:
            target = site.got_entry
    bits = 64 if kind == _PC64 else 32
    distance = _fitting(target + site.addend - site.place, bits)
    struct.pack_into("<q" if bits == 64 else "<i", site.image, site.at, distance)


X86_64 = Machine(
    name="x86-64",
    number=EM_X86_64,
    page=0x1000,
    pointer=1,
    relative=8,
    widths={1: 8, _PC32: 4, _PLT32: 4, _GOTPCREL: 4, _PC64: 8, _GOTPCRELX: 4, _REX_GOTPCRELX: 4},
    needs_got_entry=_x86_needs_got_entry,
    patch=_x86_patch,
)

# aarch64

_PREL64, _PREL32 = 260, 261
_ADRP, _ADD_LO12 = 275, 277
_TEST14, _COND19, _JUMP26, _CALL26 = 279, 280, 282, 283
_BRANCH_BITS = {_TEST14: (14, 5), _COND19: (19, 5), _JUMP26: (26, 0), _CALL26: (26, 0)}
_LOAD_SCALE = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # LDST8, 16, 32, 64, 128
_GOT_ADRP, _GOT_LO12 = 311, 312


def _arm_needs_got_entry(reloc: Relocation, code: memoryview) -> bool:
    return reloc.kind in (_GOT_ADRP, _GOT_LO12)


def _arm_patch(kind: int, site: PatchSite) -> None:
    target = site.target + site.addend
    if kind in (_GOT_ADRP, _GOT_LO12):
        if site.addend or site.got_entry is None:
            raise ValueError("an addend to a .got entry")
        target = site.got_entry
    if kind in (_PREL32, _PREL64):
        bits = 32 if kind == _PREL32 else 64
        distance = _fitting(target - site.place, bits)
        struct.pack_into("<i" if bits == 32 else "<q", site.image, site.at, distance)
    elif kind in (_ADRP, _GOT_ADRP):
        pages = _fitting((target >> 12) - (site.place >> 12), 21)
        _insert(site, pages & 3, 2, 29)
        _insert(site, (pages >> 2) & 0x7FFFF, 19, 5)
    elif kind in _BRANCH_BITS:
        bits, shift = _BRANCH_BITS[kind]
        distance = _fitting(_scaled(target - site.place, 2), bits)
        _insert(site, distance & ((1 << bits) - 1), bits, shift)
    else:
        scale = 3 if kind == _GOT_LO12 else _LOAD_SCALE.get(kind, 0)
        _insert(site, _scaled(target & 0xFFF, scale), 12, 10)


def _insert(site: PatchSite, value: int, bits: int, shift: int) -> None:
    """Replaces a bit field of the instruction."""
    (word,) = struct.unpack_from("<I", site.image, site.at)
    mask = ((1 << bits) - 1) << shift
    struct.pack_into("<I", site.image, site.at, word & ~mask | value << shift)


AARCH64 = Machine(
    name="aarch64",
    number=EM_AARCH64,
    page=0x10000,
    pointer=257,
    relative=1027,
    widths={257: 8, _PREL64: 8}
    | dict.fromkeys((_PREL32, _ADRP, _ADD_LO12, _GOT_ADRP, _GOT_LO12), 4)
    | dict.fromkeys((*_BRANCH_BITS, *_LOAD_SCALE), 4),
    needs_got_entry=_arm_needs_got_entry,
    patch=_arm_patch,
)

MACHINES = {machine.number: machine for machine in (X86_64, AARCH64)}


def _fitting(value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"distance {value} does not fit {bits} bits")
    return value


def _scaled(value: int, shift: int) -> int:
    if value & ((1 << shift) - 1):
        raise ValueError(f"address {value:#x} is not a multiple of {1 << shift}")
    return value >> shift
