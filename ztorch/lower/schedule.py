"""Schedules: how a kernel is computed, as values that are printed, parsed and given from outside.
A schedule is a kind and its directives, such as

    product tile(rows=6, vectors=2) block(rows=4) prefetch(8) unroll(4) epilogue(inline=1)

Rules propose one for each region; another of a kind that it can have may take its place. A schedule
decides the order of work and the layout of memory, never results, but for rounding.
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
    """How one kernel is computed. A field `tile_rows` is written `tile(rows=...)`, a field `lanes`
    is written `lanes(...)`. The comment beside a field gives its meaning."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        KINDS[cls.kind] = cls

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
    tile_vectors: int  # vectors of columns of a register tile
    block_rows: int  # tiles of rows done for a panel of columns, which fetch the next; 1: none do
    prefetch: int  # steps along k that the right operand is fetched ahead; 0: not at all
    unroll: int  # steps along k in one iteration of the loop
    epilogue_inline: int  # 1: repeated for each row of a tile; 0: a loop over a local array

    def tile(self, lanes: int) -> str:
        return f"{self.tile_rows}x{self.tile_vectors * lanes}"


@dataclass(frozen=True, repr=False)
class ElementSchedule(Schedule):
    """Elementwise work on a processor: a loop for each axis, lanes along the last."""

    kind = "elements"
    lanes: int  # elements computed at once
    order: tuple[int, ...]  # the other axes from the outermost loop in; empty: there are none
    share: int  # outer axes in the loop that workers share

    def tile(self, lanes: int) -> str:
        return f"{self.lanes}"


@dataclass(frozen=True, repr=False)
class TransposeSchedule(Schedule):
    """Elementwise work that reads across rows: square tiles are turned in registers."""

    kind = "transpose"
    lanes: int  # rows and columns of a tile

    def tile(self, lanes: int) -> str:
        return f"{self.lanes}x{self.lanes}"


@dataclass(frozen=True, repr=False)
class RowSchedule(Schedule):
    """Reductions on a processor, with the work on the same rows."""

    kind = "rows"
    lanes: int  # elements computed at once
    sums: tuple[int, ...]  # for each pass, vectors of a row that are added up side by side
    columns: int  # vectors of columns that are reduced side by side in one loop

    def tile(self, lanes: int) -> str:
        return f"{self.columns}x{self.lanes}" if self.columns > 1 else f"{self.lanes}"


@dataclass(frozen=True, repr=False)
class SlidingSchedule(Schedule):
    """Reductions of overlapping windows on a processor."""

    kind = "sliding"
    lanes: int  # channels computed at once
    places: int  # neighbouring windows that are reduced together

    def tile(self, lanes: int) -> str:
        return f"{self.places}x{self.lanes}"


@dataclass(frozen=True, repr=False)
class RecurrenceSchedule(Schedule):
    """A loop in which each element iterates independently, on a processor."""

    kind = "recurrence"
    lanes: int  # elements of a vector
    vectors: int  # vectors that iterate together

    def tile(self, lanes: int) -> str:
        return f"{self.vectors}x{self.lanes}" if self.vectors > 1 else f"{self.lanes}"


@dataclass(frozen=True, repr=False)
class ScatterSchedule(Schedule):
    """Sums at places that are data, on a processor: a loop over updates."""

    kind = "scatter"
    lanes: int  # elements of an update that are added at once
    parts: int  # of an update, which workers share
    tables: int  # which updates take in turn, so that none waits for the one before; 0: in place

    def tile(self, lanes: int) -> str:
        return f"{self.parts}x{self.lanes}"


@dataclass(frozen=True, repr=False)
class ThreadSchedule(Schedule):
    """Threads as a kernel says: blocks of so many."""

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
    width: int  # neighbouring elements of one thread

    def tile(self, lanes: int) -> str:
        return f"{self.threads}x{self.width}" if self.width > 1 else f"{self.threads}"


@dataclass(frozen=True, repr=False)
class GridRowSchedule(Schedule):
    """Reductions on a grid: a team of threads for each few results."""

    kind = "grid_rows"
    team_rows: int  # results of a workgroup
    team_ways: int  # threads that share one result
    width: int  # neighbouring elements of one thread
    turns_held: int  # of a thread, which it holds from pass to pass; 0: reads again

    def tile(self, lanes: int) -> str:
        return f"{self.team_rows}x{self.team_ways}"


@dataclass(frozen=True, repr=False)
class GridProductSchedule(Schedule):
    """A matrix product on a grid, multiplied out by threads."""
    kind = "grid_product"
    tile_rows: int  # rows of a workgroup
    tile_columns: int  # columns of a workgroup
    tile_depth: int  # steps along k of a strip in shared memory
    thread_rows: int  # rows of one thread
    thread_columns: int  # columns of one thread
    epilogue_bands: int  # parts of a tile that pass through shared memory one after another
    teams: int  # groups of threads that share out the depth of a strip

    def tile(self, lanes: int) -> str:
        return f"{self.tile_rows}x{self.tile_columns}"


@dataclass(frozen=True, repr=False)
class GridMatrixSchedule(Schedule):
    """A matrix product on a grid, multiplied out by matrix instructions of subgroups."""

    kind = "grid_matrix"
    tile_rows: int  # rows of a workgroup
    tile_columns: int  # columns of a workgroup
    tile_depth: int  # steps along k of a strip in shared memory
    subgroups_down: int  # subgroups below one another in a tile
    subgroups_across: int  # subgroups beside one another in a tile
    stages: int  # strips in shared memory at once; 1: the next ones wait in registers
    epilogue_bands: int  # parts of a tile that pass through shared memory one after another

    def tile(self, lanes: int) -> str:
        return f"{self.tile_rows}x{self.tile_columns}mma"


@dataclass(frozen=True, repr=False)
class GridAsyncSchedule(Schedule):
    """An asynchronous matrix product; the depth of strips is a line of swizzled memory."""

    kind = "grid_async"
    tile_rows: int  # rows of a workgroup
    tile_columns: int  # columns of a workgroup
    stages: int  # strips in shared memory at once
    epilogue_bands: int  # parts of a tile that pass through shared memory one after another

    def tile(self, lanes: int) -> str:
        return f"{self.tile_rows}x{self.tile_columns}async"


class IllegalSchedule(ConfigError):
    """A schedule that a kernel cannot have, and why."""


_DIRECTIVE = re.compile(r"\s*([a-z]+)\(([^()]*)\)")


def parse(text: str) -> Schedule:
    """The schedule of a text, as `repr` writes it.

    >>> parse("product tile(rows=6, vectors=2) block(rows=1) prefetch(8) unroll(4) "
    ...       "epilogue(inline=1)").tile(8)
    '6x16'
    """
    kind, _, rest = text.strip().partition(" ")
    if kind not in KINDS or not kind:
        known = [k for k in KINDS if k]
        raise IllegalSchedule(f"there is no schedule of kind {kind!r}; there are "
                              f"{', '.join(known)}{nearest(kind, known)}")
    cls, values, at = KINDS[kind], {}, 0
    types = {f.name: str(f.type) for f in fields(cls)}
    while rest[at:].strip():
        if (match := _DIRECTIVE.match(rest, at)) is None:
            raise IllegalSchedule(f"{text!r}: directive(argument=number, ...) is wanted, where it "
                                  f"has {rest[at:].strip()!r}")
        at = match.end()
        values.update(_arguments(text, match[1], match[2], types))
    if missing := [name for name in types if name not in values]:
        raise IllegalSchedule(f"{text!r} does not say {', '.join(map(_spelled, missing))}")
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
        known = ", ".join(map(_spelled, types))
        raise IllegalSchedule(f"{text!r}: there is no {_spelled(unknown[0])}; there is {known}")
    return values


def _spelled(field: str) -> str:
    """How a field is written.

    >>> _spelled("tile_rows"), _spelled("lanes")
    ('tile(rows=...)', 'lanes(...)')
    """
    directive, _, argument = field.partition("_")
    return f"{directive}({argument}=...)" if argument else f"{directive}(...)"
