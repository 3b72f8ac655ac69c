"""The tensor maps that copies of tiles need: a launch hands them to the kernel."""

from __future__ import annotations

from typing import NamedTuple

from ztorch.ir.kernel import Instr, Kernel


class TileMap(NamedTuple):
    """Tensor map: how boxes of a global memory are addressed, the innermost axis first."""

    memory: str
    first: int  # the element of the memory at which the tensor begins
    extents: tuple[int, ...]  # elements along each axis
    pitches: tuple[int, ...]  # stride of each axis, in elements
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
