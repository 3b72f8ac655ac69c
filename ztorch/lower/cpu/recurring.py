"""Recurrences on a processor: vectors of elements, each with a loop over its iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod

from ztorch.graph.value import Value, topological
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.elements import axes_for
from ztorch.lower.cpu.lanes import lanes_refusal
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import side_by_side, spread
from ztorch.lower.positions import flatten
from ztorch.lower.region import Region
from ztorch.lower.rewrites.recurrence import NESTED, NESTED_RESULT, Recurrence, buffer_reads, opened
from ztorch.lower.schedule import RecurrenceSchedule
from ztorch.lower.tuning import (
    PAGE_BYTES,
    RECURRENCE_SLOTS,
    RECURRENCE_VECTORS,
    RECURRENCE_VECTORS_FAR,
    SIDE_BY_SIDE_MAX,
)


def recurrence_of(region: Region) -> Recurrence:
    """The work of the elements of a region at their iterations."""
    r: Recurrence = region.members[0].attrs["recurrence"]
    return r


def propose(region: Region, limits: Limits) -> RecurrenceSchedule:
    """As many lanes as elements allow, and several vectors interleaved: each iteration depends on
    the previous one, so a single vector would be bound by latency."""
    r = recurrence_of(region)
    *_, column = recurrence_axes(region)
    if _iterations_last(region):  # the lanes of a vector would not be contiguous
        return RecurrenceSchedule(1, min(RECURRENCE_VECTORS, column))
    lanes = limits.lanes(r.widest)
    while lanes > column:
        lanes //= 2
    states = sum(c.size == r.size for c in r.carries)
    most = RECURRENCE_VECTORS_FAR if _has_conflict_misses(region) else RECURRENCE_VECTORS
    vectors = min(most, column // lanes, limits.vector_registers // max(states, 1),
                  RECURRENCE_SLOTS // r.slots)
    return RecurrenceSchedule(lanes, max(1, vectors))


def _iterations_last(region: Region) -> bool:
    """Whether a region stores the iterations of an element contiguously."""
    return any(v.attrs.get("iterations_last") for v in region.members)


def _has_conflict_misses(region: Region) -> bool:
    """Whether the accesses of consecutive iterations map to the same sets of the L1 cache."""
    r = recurrence_of(region)
    places = buffer_reads(region.members[0], region.outer)
    places += [(v, region.flat[v]) for v in region.stores]
    steps = [at.factor(r.iteration) * v.dtype.bytes for v, at in places]
    return any(step and step % PAGE_BYTES == 0 for step in steps)


def refusal(s: RecurrenceSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    if not 1 <= s.vectors <= SIDE_BY_SIDE_MAX:
        return f"vectors({s.vectors}) must be between 1 and {SIDE_BY_SIDE_MAX}"
    if s.lanes > 1 and _iterations_last(region):
        return f"lanes({s.lanes}) must be 1: the iterations of an element are contiguous"
    if s.lanes > (most := recurrence_axes(region)[-1]):
        return f"lanes({s.lanes}) must be {most} at most, the elements of a row"
    return lanes_refusal(s.lanes, limits.lanes(recurrence_of(region).widest))


def recurrence_axes(region: Region) -> tuple[int, ...]:
    """The shape that the loops over elements run over."""
    read = [at for _, at in buffer_reads(region.members[0], region.outer)]
    return axes_for(region, read, []) or (1,)


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: RecurrenceSchedule) -> None:
    """All elements of the recurrence."""
    *rows, column = (Var(f"d{k}", n) for k, n in enumerate(recurrence_axes(region)))
    axes = [*rows, column]
    outer = flatten([Index.of(v) for v in axes], [v.extent for v in axes])
    iterations = Iterations(region, outer, target)
    e = Emitter(b, iterations.memory(memory))
    if not rows:
        for scopes in side_by_side(e, column, s.lanes, True, s.vectors):
            iterations.emit(scopes)
        return
    with b.loop(0, prod(v.extent for v in rows), kind="parallel") as n:
        inner = e.within(bound=spread(e, n, rows))
        for scopes in side_by_side(inner, column, s.lanes, False, s.vectors):
            iterations.emit(scopes)


class Iterations:
    """The iterations of some vectors of elements, or of an element."""

    def __init__(self, region: Region, outer: Index, target: Mapping[Value, str]):
        """`outer`: the element in terms of the loops. `target`: the buffers of results."""
        self.region, self.outer, self.r = region, outer, recurrence_of(region)
        self.results = {v.attrs["index"]: (v, target[v]) for v in region.members if v in target}

    def memory(self, names: Mapping[Value, str]) -> dict[Value, str]:
        """The names of buffers by the leaves that represent them."""
        args = self.region.members[0].args
        return {leaf: names[v] for leaf, v in zip(self.r.buffers, args, strict=True) if v in names}

    def emit(self, scopes: Sequence[Emitter]) -> None:
        """All iterations of the elements of some scopes."""
        r, b = self.r, scopes[0].b
        for e, state in zip(scopes, self._iterations(r, scopes), strict=True):
            for k, v in enumerate(state):
                if k in self.results:
                    self._store(e, k, b.get(v))

    def _iterations(self, r: Recurrence, scopes: Sequence[Emitter]) -> list[list[Operand]]:
        """Emits all iterations of a recurrence, which may be nested. Returns the variables of its
        carries for each scope."""
        b = scopes[0].b
        states = self._states(r, scopes)
        with b.loop(0, r.trip_count) as n:
            iteration = b.sub(r.trip_count - 1, n) if r.reverse else n
            inner = [e.within(bound={**e.bound, r.iteration: iteration}) for e in scopes]
            current = {v: b.get(v) for state in states for v in state}
            for e, state in zip(inner, states, strict=True):
                e.here.update({c: current[v] for c, v in zip(r.carries, state, strict=True)})
            if r.proceed is not None:
                b.while_(n, _any(inner, r.carries[r.proceed]))
            for v in r.steps:  # interleaves the scopes, so that none waits for a long chain
                self._step(r, inner, v)
            news = [self._after(r, e) for e in inner]
            stored = [(e, k, self._element(e, out)) for e in inner
                      for k, out in enumerate(r.outs, len(r.carries)) if k in self.results]
            for e, k, x in stored:  # last, so nothing is read after it was overwritten in place
                self._store(e, k, x)
            for state, new in zip(states, news, strict=True):
                for variable, x in zip(state, new, strict=True):
                    b.set(variable, x)
        return states

    def _step(self, r: Recurrence, scopes: Sequence[Emitter], v: Value) -> None:
        """Computes a value, or a recurrence inside this one, in each scope."""
        if v.op is not NESTED:
            for e in scopes:
                self._element(e, v)
            return
        results = {w.attrs["index"]: w for w in topological(r.roots)
                   if w.op is NESTED_RESULT and w.args[0] is v}
        for e, state in zip(scopes, self._iterations(opened(v), scopes), strict=True):
            e.here.update({w: e.b.get(state[k]) for k, w in results.items()})

    def _states(self, r: Recurrence, scopes: Sequence[Emitter]) -> list[list[Operand]]:
        """Variables of the carries for each scope, with their first values. A value that is
        the same for all elements is one variable."""
        b = scopes[0].b
        states: list[list[Operand]] = []
        for e in scopes:
            state = []
            for k, (c, first) in enumerate(zip(r.carries, r.inits, strict=True)):
                uniform = c.size < r.size and self.r.flag is None
                if uniform and states:
                    state.append(states[0][k])
                    continue
                state.append(b.var(c.dtype, 1 if uniform else e.lanes, self._element(e, first)))
            states.append(state)
        return states

    def _after(self, r: Recurrence, e: Emitter) -> list[Operand]:
        """The state of a scope after the iteration."""
        news = [self._element(e, v) for v in r.news]
        if r.flag is not None:
            assert r.proceed is not None
            news[r.proceed] = e.b.and_(e.here[r.carries[r.proceed]], self._element(e, r.flag))
        return news

    def _element(self, e: Emitter, v: Value) -> Operand:
        return e.element(v, self.r.index(v, self.outer))

    def _store(self, e: Emitter, number: int, x: Operand) -> None:
        """Stores an element of a result. The first element stores a uniform value."""
        v, mem = self.results[number]
        at = self.r.result(**v.attrs, outer=self.outer)
        if v.size == self.r.size * (self.r.trip_count if number >= len(self.r.carries) else 1):
            return e.store(mem, v, at, x)
        with self._first(e):
            e.store(mem, v, at, x)

    def _first(self, e: Emitter) -> AbstractContextManager[object]:
        if self.r.size == 1:
            return nullcontext()
        start, off, _ = e.address(self.outer)
        if isinstance(start, int):
            assert start + off == 0
            return nullcontext()
        return e.b.if_(e.b.eq(start, -off))


def _any(scopes: Sequence[Emitter], carry: Value) -> Operand:
    """The lanes in which a bool carry is true in any of the scopes."""
    b, result = scopes[0].b, None
    for e in scopes:
        holds = e.here[carry]
        if e.mask is not None and holds.lanes > 1:
            holds = b.and_(holds, e.mask)
        result = holds if result is None else b.or_(result, holds)
    assert result is not None
    return result
