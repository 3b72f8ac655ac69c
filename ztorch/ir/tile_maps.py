"""The tensor maps that copies of tiles need: a launch hands them to the kernel."""

from __future__ import annotations

from typing import NamedTuple

from ztorch.ir.kernel import Instr, Kernel


class TileMap(NamedTuple):
    """How boxes are cut out of a global memory, the innermost axis first."""

    memory: str
    first: int  # element of the memory at which it begins
    extents: tuple[int, ...]  # elements along each axis
    pitches: tuple[int, ...]  # elements from one to the next along each axis
    box: tuple[int, ...]  # elements of a box along each axis


def map_of(instr: Instr) -> TileMap:
    """The map that a copy of a tile uses."""
    a = instr.attrs
    return TileMap(a["source"], a["source_off"], a["extents"], a["pitches"], a["box"])


def tile_maps(kernel: Kernel) -> tuple[TileMap, ...]:
    """The maps of a kernel, each once, in the order in which they are used.

    >>> from ztorch.ir.builder import Builder
    >>> tile_maps(Builder("none").kernel())
    ()
    """
    return tuple(dict.fromkeys(map_of(i) for i in kernel.body if i.opcode == "copy_tile"))
