"""Schedules: how a kernel is computed, as values that can be printed, parsed and set by the user.
A schedule is a kind and its directives, such as

    product tile(rows=6, vectors=2) block(rows=4, depth=0, pack=1) prefetch(0) unroll(4) ...

Rules propose a schedule for each region; another legal one may replace it. A schedule determines
the order of work and the layout of memory, but never results, except for rounding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, ClassVar

from ztorch.errors import ConfigError, nearest

KINDS: dict[str, type[Schedule]] = {}


@dataclass(frozen=True, repr=False)
class Schedule:
    """How a kernel is computed. Fields `tile_rows`, `lanes` are written `tile(rows=)`, `lanes`."""

    kind: ClassVar[str] = ""
    library: ClassVar[str] = ""  # of others that computes the kernel; empty: our code

    def __init_subclass__(cls) -> None:
        KINDS.update({cls.kind: cls} if "kind" in vars(cls) else {})

    def __repr__(self) -> str:
        """The text that `parse` takes.

        >>> RowSchedule(lanes=8, sums=(4, 1), columns=1)
        rows lanes(8) sums(4, 1) columns(1)
        """
        directives = groupby((f.name for f in fields(self)), _directive)
        return " ".join([self.kind, *(f"{directive}({', '.join(map(self._argument, names))})"
                                      for directive, names in directives)])

    def _argument(self, name: str) -> str:
        value, argument = getattr(self, name), name.partition("_")[2]
        if isinstance(value, tuple):
            return ", ".join(map(str, value))
        return f"{argument}={value}" if argument else str(value)

    def tile(self, lanes: int) -> str:
        """The tile that is computed at once, for the kernel's name; `lanes` are the target's."""
        raise NotImplementedError


def _directive(name: str) -> str:
    return name.partition("_")[0]


@dataclass(frozen=True, repr=False)
class ProductSchedule(Schedule):
    """A matrix product on a processor."""
    kind = "product"
    tile_rows: int  # rows of a register tile
    tile_vectors: int  # columns of a register tile, in vectors
    block_rows: int  # row tiles per panel of B, which prefetch the next panel; 1: no blocks
    block_depth: int  # steps along k of a part of the panel, which the L1 cache holds; 0: all
    block_pack: int  # 1: the first tile of a block copies the panel, and the others read the copy
    prefetch: int  # prefetch distance of B in steps along k; 0: no prefetch
    unroll: int  # steps along k in one iteration of the k loop
    epilogue_inline: int  # 1: unrolled over the rows of a tile; 0: a loop over a local array

    def tile(self, lanes: int) -> str:
        return f"{self.tile_rows}x{self.tile_vectors * lanes}"


@dataclass(frozen=True, repr=False)
class ElementSchedule(Schedule):
    """Elementwise work on a processor: a loop for each axis, lanes along the last."""
    kind = "elements"
    lanes: int  # elements computed at once: of a vector, or of several
    order: tuple[int, ...]  # order of the other axes, outermost loop first; empty: none
    share: int  # outer axes in the loop that workers share

    def tile(self, lanes: int) -> str:
        return f"{self.lanes}"


@dataclass(frozen=True, repr=False)
class TransposeSchedule(Schedule):
    """Elementwise work that reads across rows: square tiles are transposed in registers."""
    kind = "transpose"
    lanes: int  # rows and columns of a tile
    abreast: int  # tiles along a line of the source that are transposed one after the other

    def tile(self, lanes: int) -> str:
        return f"{self.lanes}x{self.lanes}"


@dataclass(frozen=True, repr=False)
class RowSchedule(Schedule):
    """Reductions on a processor, with elementwise work on the same rows."""

    kind = "rows"
    lanes: int  # elements of a vector
    sums: tuple[int, ...]  # for each pass, the accumulators along a row
    columns: int  # vectors of columns that one loop reduces

    def tile(self, lanes: int) -> str:
        return f"{self.columns}x{self.lanes}" if self.columns > 1 else f"{self.lanes}"


@dataclass(frozen=True, repr=False)
class SlidingSchedule(Schedule):
    """Reductions of overlapping windows on a processor."""

    kind = "sliding"
    lanes: int  # channels computed at once
    places: int  # neighboring windows that are reduced together

    def tile(self, lanes: int) -> str:
        return f"{self.places}x{self.lanes}"


@dataclass(frozen=True, repr=False)
class RecurrenceSchedule(Schedule):
    """A loop in which each element iterates independently, on a processor."""

    kind = "recurrence"
    lanes: int  # elements of a vector
    vectors: int  # interleaved vectors

    def tile(self, lanes: int) -> str:
        return f"{self.vectors}x{self.lanes}" if self.vectors > 1 else f"{self.lanes}"


@dataclass(frozen=True, repr=False)
class ScatterSchedule(Schedule):
    """Scatter-add on a processor: a loop over updates."""

    kind = "scatter"
    lanes: int  # elements of an update that are added at once
    parts: int  # parts of an update, for different workers
    tables: int  # private tables used in rotation, to break dependencies; 0: in place
    bands: int = 1  # parts of the rows of a table, for different workers

    def tile(self, lanes: int) -> str:
        return f"{self.parts * self.bands}x{self.lanes}"


@dataclass(frozen=True, repr=False)
class ThreadSchedule(Schedule):
    """The grid that a kernel written for threads declares."""

    kind = "threads"
    blocks: int  # of the grid
    threads: int  # of a block

    def tile(self, lanes: int) -> str:
        return f"{self.blocks}x{self.threads}"


@dataclass(frozen=True, repr=False)
class GridRecurrenceSchedule(Schedule):
    """A loop in which each element iterates independently, on a grid, in its own thread."""

    kind = "grid_recurrence"
    threads: int  # of a workgroup

    def tile(self, lanes: int) -> str:
        return f"{self.threads}"


@dataclass(frozen=True, repr=False)
class GridElementSchedule(Schedule):
    """Elementwise work on a grid."""

    kind = "grid_elements"
    threads: int  # of a workgroup
    width: int  # neighboring elements of one thread

    def tile(self, lanes: int) -> str:
        return f"{self.threads}x{self.width}" if self.width > 1 else f"{self.threads}"


@dataclass(frozen=True, repr=False)
class GridRowSchedule(Schedule):
    """Reductions on a grid: a team of threads for a few results each."""

    kind = "grid_rows"
    team_rows: int  # results per workgroup
    team_ways: int  # threads per result
    width: int  # elements of a thread's vector
    turns_held: int  # iterations whose values stay in registers between passes; 0: values reloaded

    def tile(self, lanes: int) -> str:
        return f"{self.team_rows}x{self.team_ways}"


@dataclass(frozen=True, repr=False)
class GridProductSchedule(Schedule):
    """A matrix product on a grid, multiplied by threads."""
    kind = "grid_product"
    tile_rows: int  # rows per workgroup
    tile_columns: int  # columns per workgroup
    tile_depth: int  # steps along k of a strip in shared memory
    thread_rows: int  # rows per thread
    thread_columns: int  # columns per thread
    epilogue_bands: int  # parts in which a tile passes through shared memory
    teams: int  # groups of threads that divide the depth of a strip

    def tile(self, lanes: int) -> str:
        return f"{self.tile_rows}x{self.tile_columns}"


@dataclass(frozen=True, repr=False)
class GridMatrixSchedule(Schedule):
    """A matrix product on a grid, multiplied by matrix instructions of subgroups."""

    kind = "grid_matrix"
    tile_rows: int  # rows per workgroup
    tile_columns: int  # columns per workgroup
    tile_depth: int  # steps along k of a strip in shared memory
    subgroups_down: int  # subgroups along the rows of a tile
    subgroups_across: int  # subgroups along the columns of a tile
    stages: int  # strips in shared memory at once; 1: the next strips wait in registers
    epilogue_bands: int  # parts in which a tile passes through shared memory

    def tile(self, lanes: int) -> str:
        return f"{self.tile_rows}x{self.tile_columns}mma"


@dataclass(frozen=True, repr=False)
class GridAsyncSchedule(Schedule):
    """An asynchronous matrix product. The depth of strips is one line of swizzled memory."""

    kind = "grid_async"
    tile_rows: int  # rows per workgroup
    tile_columns: int  # columns per workgroup
    stages: int  # strips in shared memory at once
    epilogue_bands: int  # parts in which a tile passes through shared memory

    def tile(self, lanes: int) -> str:
        return f"{self.tile_rows}x{self.tile_columns}async"


class IllegalSchedule(ConfigError):
    """A schedule that is illegal for a kernel."""


_DIRECTIVE = re.compile(r"\s*([a-z]+)\(([^()]*)\)")


def parse(text: str) -> Schedule:
    """The schedule of a text, as `repr` writes it.

    >>> parse("rows lanes(8) sums(4, 1) columns(1)").lanes
    8
    """
    kind, _, rest = text.strip().partition(" ")
    if kind not in KINDS or not kind:
        kinds = [k for k in KINDS if k]
        raise IllegalSchedule(f"there is no schedule of kind {kind!r}; there are "
                              f"{', '.join(kinds)}{nearest(kind, kinds)}")
    cls, values, at = KINDS[kind], {}, 0
    types = {f.name: str(f.type) for f in fields(cls)}
    while rest[at:].strip():
        if (match := _DIRECTIVE.match(rest, at)) is None:
            raise IllegalSchedule(f"{text!r}: expected directive(argument=number, ...) in place of "
                                  f"{rest[at:].strip()!r}")
        at = match.end()
        values.update(_arguments(text, match[1], match[2], types))
    if missing := [name for name in types if name not in values]:
        raise IllegalSchedule(f"{text!r} lacks {', '.join(map(_spelled, missing))}")
    return cls(**values)


def _arguments(text: str, directive: str, inside: str, types: dict[str, str]) -> dict[str, Any]:
    """The fields that one directive gives."""
    parts = [part.strip() for part in inside.split(",") if part.strip()]
    values: dict[str, Any] = {}
    try:
        if types.get(directive, "").startswith("tuple"):
            return {directive: tuple(int(part) for part in parts)}
        for part in parts:
            name, equals, number = part.rpartition("=")
            values[f"{directive}_{name.strip()}" if equals else directive] = int(number)
    except ValueError:
        raise IllegalSchedule(f"{text!r}: {directive}({inside}) takes integers") from None
    if unknown := [name for name in values if name not in types]:
        choices = ", ".join(map(_spelled, types))
        raise IllegalSchedule(f"{text!r}: there is no {_spelled(unknown[0])}; use {choices}")
    return values


def _spelled(field: str) -> str:
    """How a field is written.

    >>> _spelled("tile_rows"), _spelled("lanes")
    ('tile(rows=...)', 'lanes(...)')
    """
    directive, _, argument = field.partition("_")
    return f"{directive}({argument}=...)" if argument else f"{directive}(...)"
