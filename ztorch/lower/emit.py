"""Emits the instructions for one element, or one vector of elements, of a value.

Emission is demand-driven: an element of a value requests the elements of its arguments that it
needs, down to memory or to values that the region has already computed. Loop variables are bound to
registers, and one of them may be bound to the lanes of a vector. A value that does not depend on
that variable stays scalar until it is combined with a vector.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from ztorch.dtypes import boolean
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.lower.element_view import ElementView
from ztorch.lower.index import Atom, Index, LoadedIndex, Quotient, Remainder, Var
from ztorch.lower.positions import flatten, proper, unflatten
from ztorch.lower.tuning import INTERLEAVED_MAX


@dataclass
class Emitter:
    """One scope of emission. Members of a region are only read at the position at which they are
    computed, so `here` needs no positions.
    """

    b: Builder
    memory: Mapping[Value, str]  # buffer names of the values in memory
    bound: dict[Var, Operand] = field(default_factory=dict)  # registers of loop variables
    lane: Var | None = None  # the loop variable that runs over lanes
    lanes: int = 1
    mask: Operand | None = None  # the active lanes; None: all
    # Members of the region with their positions, and what its loop variables are here, if known.
    members: Mapping[Value, Index] = field(default_factory=dict)
    place: dict[Var, Index] | None = None
    here: dict[Value, Operand] = field(default_factory=dict)  # members at this position
    # Other values that were computed in this scope, by position and condition.
    known: dict[tuple[Value, Index, Operand | None], Operand] = field(default_factory=dict)
    aligned: bool = False  # vectors are read and written at multiples of their length
    # All that is read here, so that loads every few elements are shuffled out of whole vectors, and
    # those between each other share them; None: such elements are gathered.
    strided: Container[tuple[Value, Index]] | None = None
    borderless: bool = False  # no element is in a border, except where its index alone decides it
    # For each value in a local array, the loops of whose iterations it holds one alone, so that
    # its positions do not depend on them.
    absent_loops: Mapping[Value, Sequence[Var]] = field(default_factory=dict)
    # How far loop variables are ahead of their registers.
    ahead: Mapping[Atom, int] = field(default_factory=dict)

    def within(self, **changes: Any) -> Emitter:
        """A nested scope: it sees the values known here, and this scope does not see its values."""
        return replace(self, bound=dict(changes.pop("bound", self.bound)),
                       here=dict(self.here), known=dict(self.known), **changes)

    # -- elements --------------------------------------------------------------------------------

    def element(self, v: Value, index: Sequence[Index], where: Operand | None = None) -> Operand:
        """v at an index. Lanes outside `where` are unspecified, but never read memory."""
        if v in self.here:
            return self.here[v]
        if self.place is not None and v in self.members and where is not None and (
                not where.is_const):  # computed in any case: readers of all conditions share it
            index, where = unflatten(self.members[v].replace(self.place), v.shape), None
        index = proper(index, v.shape)
        flat = flatten(index, v.shape)
        number = self._known(v, flat, where)
        if number is not None:
            return number
        if v in self.memory:
            return self._keep(v, flat, where, self.load(v, flat, where))
        assert v.op.kind == "map", f"{v} is neither in memory nor computed here"
        if v.op.opcode:
            return self._elementwise(v, index, flat, where)
        view = ElementView(self, v, where)
        return self._keep(v, flat, where,
                          v.op.body(view, index, **v.attrs))  # type: ignore[misc]

    def _elementwise(self, v: Value, index: Sequence[Index], flat: Index,
                     where: Operand | None) -> Operand:
        """One element of v, which is computed from the same element of its arguments.

        Arguments are computed in order, depth first. This uses a stack, not recursion, because
        chains of elementwise ops are long.
        """
        path: list[tuple[Value, Iterator[Value], list[Operand]]] = [(v, iter(v.args), [])]
        while True:
            v, arguments, operands = path[-1]
            for a in arguments:
                x = self._known(a, flat, where)
                if x is None and a.op.opcode and a.op.kind == "map" and a not in self.memory:
                    path.append((a, iter(a.args), []))
                    break
                operands.append(self.element(a, index, where) if x is None else x)
            else:
                result = self.b.emit(v.op.opcode, *operands, **v.attrs)
                self._keep(v, flat, where, result)
                path.pop()
                if not path:
                    return result
                path[-1][2].append(result)

    def _known(self, v: Value, flat: Index, where: Operand | None) -> Operand | None:
        """v at a flat position, if this scope has computed it."""
        if v in self.here:
            return self.here[v]
        number = self.known.get((v, flat, None))
        return number if number is not None or where is None else self.known.get((v, flat, where))

    def _keep(self, v: Value, flat: Index, where: Operand | None, x: Operand) -> Operand:
        if v in self.members and where is None:
            self.here[v] = x
        else:
            self.known[v, flat, where] = x
        return x

    def load(self, v: Value, flat: Index, where: Operand | None = None) -> Operand:
        """The element of a value in memory at a flat position."""
        b, mem = self.b, self.memory[v]
        flat = reduce(Index.without, self.absent_loops.get(v, ()), flat)
        if where is not None and where.is_const:  # the condition is known
            if not where.number:
                return b.const(0, v.dtype)
            where = None
        if where is None and self._has_step(flat, -1):
            return self._load_backwards(v, flat)
        if where is None and self.strided is not None:
            for step in range(2, min(INTERLEAVED_MAX, self.lanes) + 1):
                if self._has_step(flat, step):
                    return self._load_strided(v, flat, step)
        at, off, lanes = self.address(flat)
        if where is not None and where.lanes > lanes:  # one position, read for some of the lanes
            base = at if isinstance(at, Operand) else b.const(at, b.index)
            at, lanes = b.splat(base, where.lanes), where.lanes
        if where is not None and lanes > 1 and self.aligned:  # all lanes or none: else read at 0
            base = at if isinstance(at, Operand) else b.const(at, b.index)
            at, off, where = b.select(where, b.add(base, off), 0), 0, None
        mask = where if where is None else b.splat(where, lanes)
        if lanes > 1 and self.mask is not None:
            mask = self.mask if mask is None else b.and_(self.mask, mask)
        x = b.load(mem, at, off=off, lanes=lanes, mask=mask, align=self._align(mem, lanes))
        return b.ne(x, 0) if v.dtype is boolean else x

    def _has_step(self, flat: Index, step: int) -> bool:
        """Whether whole lanes read elements that are `step` apart."""
        lane = self.lane
        return lane is not None and self.lanes > 1 and self.mask is None and (
            flat.factor(lane) == step) and not flat.without(lane).mentions(lane) and all(
            not isinstance(atom, LoadedIndex) for atom, _ in flat.terms)

    def _load_backwards(self, v: Value, flat: Index) -> Operand:
        b, mem, n = self.b, self.memory[v], self.lanes
        assert self.lane is not None
        last = self.value(flat.without(self.lane) - (n - 1))
        x = b.load(mem, b.sub(last, self.bound[self.lane]), lanes=n)
        x = b.shuffle(x, x, tuple(reversed(range(n))))
        return b.ne(x, 0) if v.dtype is boolean else x

    def _load_strided(self, v: Value, flat: Index, step: int) -> Operand:
        """Lanes that are `step` elements apart, from as many vectors. Those of all elements between
        are the same, where these are read, too, or vectors are aligned; else the last vector ends
        at the last lane."""
        b, n = self.b, self.lanes
        assert self.lane is not None and self.strided is not None
        first = flat.const % step
        ends = flat - first, flat - first + (step - 1)
        shared = self.aligned or all((v, end) in self.strided for end in ends)
        base, off = self._sum((ends[0] if shared else flat).without(self.lane))
        at = b.add(base, b.mul(self.bound[self.lane], step))
        last = (step - 1) * (n if shared else n - 1)
        starts = [min(start, last) for start in range(0, step * n, n)]
        mem, align = self.memory[v], self._align(self.memory[v], n)
        vectors = [b.load(mem, at, off=off + start, lanes=n, align=align) for start in starts]
        elements = range(first if shared else 0, n * step, step)
        x = picked(b, vectors, [(k // n, k - starts[k // n]) for k in elements])
        return b.ne(x, 0) if v.dtype is boolean else x

    def prefetch(self, v: Value, flat: Index, cache: int = 1) -> None:
        """Prefetches the cache line of an element, which may be beyond the end of the buffer."""
        self.prefetch_of(self.memory[v], flat, cache)

    def prefetch_of(self, mem: str, flat: Index, cache: int = 1) -> None:
        """The same of a buffer. Lanes that are each in a line of their own are not prefetched."""
        at, off, _ = self.address(flat)
        if not isinstance(at, Operand) or at.lanes == 1:
            self.b.prefetch(mem, at, off, cache)

    def store(self, mem: str, v: Value, flat: Index, x: Operand) -> None:
        """x as the element of v at a flat position."""
        at, off, lanes = self.address(reduce(Index.without, self.absent_loops.get(v, ()), flat))
        x = self.b.splat(x, lanes)
        if v.dtype is boolean:
            x = self.b.cast(x, dtype=self.b.memories[mem].dtype)
        self.b.store(mem, at, x, off=off, mask=self.mask if lanes > 1 else None,
                     align=self._align(mem, lanes))

    def store_interleaved(self, mem: str, v: Value, flat: Index, xs: Sequence[Operand]) -> None:
        """Some numbers as elements of v, from a flat position on, a run apart. Where a run is one
        element, their lanes are stored in turns."""
        step, n, run = len(xs), self.lanes, v.attrs["run"]
        if run > 1 or not self._has_step(flat, step):
            for k, x in enumerate(xs):
                self.store(mem, v, flat + k * run, x)
            return
        b = self.b
        assert self.lane is not None
        base, off = self._sum(flat.without(self.lane))
        at = b.add(base, b.mul(self.bound[self.lane], step))
        xs = [b.splat(x, n) for x in xs]
        if v.dtype is boolean:
            xs = [b.cast(x, dtype=b.memories[mem].dtype) for x in xs]
        for k in range(step):
            places = [(i % step, i // step) for i in range(k * n, (k + 1) * n)]
            b.store(mem, at, picked(b, xs, places), off=off + k * n, align=self._align(mem, n))

    def _align(self, mem: str, lanes: int) -> int:
        return lanes * self.b.memories[mem].dtype.bytes if self.aligned and lanes > 1 else 0

    # -- indices ---------------------------------------------------------------------------------

    def address(self, flat: Index) -> tuple[Operand | int, int, int]:
        """(register, constant offset, lanes) of a position. Contiguous lanes give a scalar register
        and n lanes; other lanes give a vector of positions to gather from."""
        if self.lane is None or not flat.mentions(self.lane):
            return *self._sum(flat), 1
        rest = flat.without(self.lane)
        if flat.factor(self.lane) == 1 and not rest.mentions(self.lane):
            base, off = self._sum(rest)
            start = self.bound[self.lane]
            if isinstance(base, int):
                return start, off, self.lanes
            if base.lanes == 1:  # else each lane has loaded a separate element
                return self.b.add(base, start), off, self.lanes
        return self.value(flat - flat.const), flat.const, self.lanes

    def _sum(self, index: Index) -> tuple[Operand | int, int]:
        total: Operand | int = 0
        off = index.const + sum(factor * self.ahead.get(x, 0) for x, factor in index.terms)
        for atom, factor in index.terms:
            x = self.atom(atom)
            part = x if factor == 1 else self.b.mul(x, factor)
            total = part if isinstance(total, int) else self.b.add(total, part)
        return total, off

    def value(self, index: Index) -> Operand:
        """The value of an index: a vector if it depends on the lane variable."""
        total, off = self._sum(index)
        if isinstance(total, int):
            return self.b.const(total + off, self.b.index)
        return self.b.add(total, off) if off else total

    def atom(self, atom: Atom) -> Operand:
        b = self.b
        if isinstance(atom, Var):
            x = self.bound[atom]
            if atom == self.lane:
                return b.add(b.splat(x, self.lanes), b.iota(self.lanes))
            return x
        if isinstance(atom, LoadedIndex):
            return atom.operand
        assert isinstance(atom, (Quotient, Remainder))
        # An Index rounds down, machines round towards zero, so the dividend must not be negative.
        low, high = atom.inner.range
        periods = max(0, -(low // atom.by))
        b.need_index(high + periods * atom.by)
        inner = self.value(atom.inner + periods * atom.by)
        if isinstance(atom, Remainder):
            return b.rem(inner, atom.by)
        quotient = b.div(inner, atom.by)
        return b.sub(quotient, periods) if periods else quotient


def picked(b: Builder, vectors: Sequence[Operand], places: Sequence[tuple[int, int]]) -> Operand:
    """A vector of lanes of several vectors. `places`: for each lane, the number of a vector and of
    its lane."""
    n, (first, *others) = len(places), sorted({k for k, _ in places})
    x = vectors[first]
    lanes = [lane if k == first else i for i, (k, lane) in enumerate(places)]  # of x
    for number in others or [first]:
        x = b.shuffle(x, vectors[number], tuple(
            n + lane if k == number else lanes[i] for i, (k, lane) in enumerate(places)))
        lanes = [*range(n)]
    return x
