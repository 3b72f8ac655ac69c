"""The scope of a line of a kernel: its variables, and the loops and conditions around it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.kernels.arithmetic import TileArithmetic
from ztorch.kernels.known_places import with_known_places
from ztorch.kernels.reading import ElementIndex, check_inside, needs_lookup, read
from ztorch.kernels.source import Source
from ztorch.kernels.tiles import Affine, Axes, LoopTensor, LoopVar


@dataclass(frozen=True)
class KernelVariable:
    """The value of a name."""

    value: Any  # a number, an index, a tile, or any constant Python object
    depth: int = 0  # number of loops around the line that made it
    changes: int = 0  # number of loops, from the outer one on, in which it changes
    masks: int = 0  # number of conditions around that line
    fixed: str = ""  # the reason why its elements cannot be written; empty if they can
    of: str = ""  # name of the array that it is a part of
    stale: bool = False  # whether that array was written afterwards


class IndexBound(NamedTuple):
    """A condition on an index: it is not negative, or it is below a length."""

    place: Affine
    below: int | None  # the length; None: the index is not negative


class ReadPlaces(NamedTuple):
    """The position of a read of an array."""

    places: tuple[Affine | LoopTensor, ...]
    shape: tuple[int, ...]  # of the array


class SequentialLoop(Protocol):
    """A sequential loop while its body is translated."""

    twin: LoopVar  # its counter outside of the loop, where all iterations run at once
    deferred: frozenset[str]  # arrays written after the loop, with the results of all iterations
    states: set[str]  # those of them that are a state of a loop in the body

    def sequence(self, value: Value) -> Value:
        """The iteration's element of a tensor with an element for each iteration."""

    def defer_write(self, name: str, index: ElementIndex, new: LoopTensor, condition: Any,
                    inner: Axes, reduction: str | None) -> None:
        """Records that elements of an array are written after the loop."""


@dataclass(frozen=True)
class Loop:
    """A loop around a line."""

    var: LoopVar
    sequential: SequentialLoop | None = None  # None if all iterations run at once


class Scope:
    """The state of a translation. Expressions and statements build on it."""

    max_steps: int | None = None  # largest number of iterations of a loop that data ends

    def __init__(self, source: Source, arithmetic: TileArithmetic, calls: tuple[Any, ...] = ()):
        self.source = source
        self.arithmetic = arithmetic
        self.calls = calls  # the functions that are being translated, outer ones first
        self.env: dict[str, KernelVariable] = {}
        self.loops: list[Loop] = []
        self.masks: list[Any] = []  # conditions around the line
        self.assigned: list[set[str]] = []  # for each open branch: variables that it set
        self.bounds: dict[Value, tuple[IndexBound, ...]] = {}  # index bounds in conditions
        self.notes: dict[tuple[str, int], str] = {}  # how each loop runs, by file and line
        self.reads: list[ReadPlaces] = []  # reads of arrays by the current expression

    def parallel(self, depth: int) -> Axes:
        """The loops inside of a depth whose iterations all run at once."""
        return tuple(loop.var for loop in self.loops[depth:] if loop.sequential is None)

    def ordered_around(self, name: str) -> list[SequentialLoop]:
        """The loops in order that run now, within the scope of a variable, outermost first."""
        return [loop.sequential for loop in self.loops[self.env[name].depth:] if loop.sequential]

    def condition(self, first: int) -> Any:
        """The conjunction of the conditions from number `first` on: True, or a tile."""
        total: Any = True
        for mask in self.masks[first:]:
            total = self.arithmetic.both(total, mask)
        return total

    def both(self, a: Any, b: Any) -> Any:
        """Whether both conditions hold. It keeps the index bounds that they require."""
        total = self.arithmetic.both(a, b)
        if isinstance(total, LoopTensor) and isinstance(a, LoopTensor) and isinstance(
                b, LoopTensor) and a.value in self.bounds and b.value in self.bounds:
            self.bounds[total.value] = (*self.bounds[a.value], *self.bounds[b.value])
        return total

    def unless_zero(self, first: int) -> Any:
        """The conjunction of the conditions from number `first` on, without those that only keep
        reads inside of arrays: a product with an element outside is zero."""
        total: Any = True
        for mask in self.masks[first:]:
            bounds = self.bounds.get(mask.value, ()) if isinstance(mask, LoopTensor) else ()
            if not bounds or not all(map(self._is_edge, bounds)):
                total = self.arithmetic.both(total, mask)
        return total

    def _is_edge(self, bound: IndexBound) -> bool:
        return any(place == bound.place and bound.below in (None, n)
                   for r in self.reads for place, n in zip(r.places, r.shape, strict=True))

    def contiguous(self) -> set[LoopVar]:
        """The loops whose consecutive iterations read adjacent elements."""
        last = [r.places[-1] for r in self.reads if r.places]
        return {v for p in last if isinstance(p, Affine) for v, c in p.terms.items() if abs(c) == 1}

    def read(self, tile: LoopTensor, changes: int, index: ElementIndex) -> LoopTensor:
        """The elements of an array that changes in the first `changes` loops. A sequential loop
        inside of these gets the elements for all its iterations as one tensor, made before the
        loop."""
        places = [p for p in index.places if isinstance(p, Affine)]
        counters = {v for p in places for v in p.terms if v.iteration is not None}
        if len(places) == len(index.places):
            for number in reversed(range(changes, len(self.loops))):
                loop = self.loops[number]
                if loop.sequential is None or loop.var not in counters:
                    continue
                twin = loop.sequential.twin
                outer_index = replace_variable(index, loop.var, twin)
                outside = self._at(number).read(tile, changes, outer_index)
                order = [outside.axes.index(twin)]
                order += [k for k in range(outside.value.rank) if k not in order]
                row = loop.sequential.sequence(OPS.transpose(outside.value, tuple(order)))
                axes = tuple(v for v in outside.axes if v is not twin)
                return LoopTensor(row, axes, outside.weak)
        if counters and not self.masks:
            check_inside(index, tile.shape)
        index = replace(index, places=tuple(
            self.arithmetic.tile(p) if isinstance(p, Affine) and counters & {*p.terms} else p
            for p in index.places))
        if not needs_lookup(tile, index):  # which reads no zeros outside of the array
            self.reads.append(ReadPlaces(index.places, tile.shape))
        return read(self.arithmetic, *with_known_places(tile, index), bool(self.masks))

    # -- effects of statements --------------------------------------------------------------------

    def bind(self, name: str, x: Any, fixed: str = "", of: str = "") -> None:
        """Gives a variable a value."""
        raise NotImplementedError

    def store(self, name: str, index: ElementIndex, new: LoopTensor, condition: Any, inner: Axes,
              reduction: str | None) -> None:
        """Writes elements of an array."""
        raise NotImplementedError

    def inline(self, node: ast.Call, function: Callable[..., Any], args: tuple[Any, ...],
               named: dict[str, Any]) -> Any:
        """The result of another function."""
        raise NotImplementedError

    def mark_parts(self, arrays: Iterable[str]) -> None:
        """Marks values that were read from arrays that are written: in NumPy a slice sees later
        writes, here it is a copy, so using it afterwards must be an error."""
        names = set(arrays)
        self.env = {n: replace(v, stale=True) if v.of in names else v for n, v in self.env.items()}

    def note(self, loop: ast.For, note: str) -> None:
        """Notes how a loop runs."""
        line = self.source.first_line + loop.lineno - 1
        text = self.source.lines[loop.lineno - 1].strip()
        self.notes[self.source.file, line] = f"line {line}: {text}  # {note}"

    def note_more(self, loop: ast.For, note: str) -> None:
        """Adds to the notes of a loop."""
        self.notes[self._place_of(loop)] += f"; {note}"

    def note_again(self, loop: ast.For, notes: dict[tuple[str, int], str], note: str) -> None:
        """Notes what earlier notes say of a loop, and more."""
        self.notes[self._place_of(loop)] = f"{notes[self._place_of(loop)]}; {note}"

    def _place_of(self, loop: ast.For) -> tuple[str, int]:
        return self.source.file, self.source.first_line + loop.lineno - 1

    def _at(self, number: int) -> Scope:
        """The scope around one of the loops."""
        outside = Scope(self.source, self.arithmetic)
        outside.loops, outside.masks = self.loops[:number], self.masks
        return outside


def replace_variable(index: ElementIndex, old: LoopVar, new: LoopVar) -> ElementIndex:
    """An index with a loop variable replaced."""
    return replace(index, places=tuple(
        Affine({new if v is old else v: c for v, c in p.terms.items()}, p.const)
        if isinstance(p, Affine) else p for p in index.places))
