"""A region: values computed together by one loop nest, and the position of each element."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from ztorch.graph.value import Op, Value, attribute_key
from ztorch.lower.index import Index, LoadedIndex, Var
from ztorch.lower.insets import INSET, INTERLEAVED, part_of, position
from ztorch.lower.positions import flatten, proper, unflatten

# Materializes a value that would otherwise be read through a view.
COPY = Op("copy", "map", lambda x: (x.shape, x.dtype), numpy=lambda x: x,
          body=lambda e, index: e.read(0, index), cost=1)


def is_view(v: Value) -> bool:
    """Whether a value is never materialized: its readers look through it."""
    return v.op.kind == "map" and ((v.op.movement and not v.op.written) or not v.args)


def as_view(v: Value) -> Value:
    """The same value, such as a border, as a view."""
    return Value(_movement(v.op), v.args, v.attrs, v.shape, v.dtype)


@functools.cache
def _movement(op: Op) -> Op:
    return replace(op, movement=True)


class _Trace:
    """A stand-in for the emitter that records which elements a body reads."""

    def __init__(self, value: Value):
        self._args = value.args
        self.count = len(value.args)
        self.reads: list[tuple[Value, tuple[Index, ...]]] = []
        self.unneeded: set[int] = set()  # numbers of reads whose condition is never true
        self.computed: list[Index] = []  # indices that the body computes with, also in conditions
        self.bounds: list[tuple[Index, int]] = []  # indices and the values where a test changes
        self.zero = Index()

    def shape(self, k: int) -> tuple[int, ...]:
        return self._args[k].shape

    def read(self, k: int, index: Sequence[Any], where: Any = None) -> _Trace:
        if where is _NOWHERE:
            self.unneeded.add(len(self.reads))
        self.reads.append((self._args[k], tuple(Index.of(i) for i in index)))
        return self

    def index(self, operand: Any, extent: int) -> Index:
        return Index.of(LoadedIndex(len(self.reads), extent))  # the number that was read last

    def within(self, index: Sequence[Index], low: Sequence[int], high: Sequence[int]) -> Any:
        for i, a, z in zip(index, low, high, strict=True):
            if i.range[1] < a or i.range[0] >= z:
                return _NOWHERE
            if i.range[0] < a or i.range[1] >= z:
                self.computed.append(i)
                self.bounds += [(i, a), (i, z)]
        return self

    def value(self, index: Index) -> _Trace:
        self.computed.append(index)
        return self

    @property
    def b(self) -> _Trace:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self


_NOWHERE = object()  # a condition of a trace that is never true


@dataclass(frozen=True)
class _Memo:
    """The known reads of values, by value and index."""

    traces: dict[tuple[Value, tuple[Index, ...]], _Trace] = field(default_factory=dict)
    reads: dict[tuple[Value, tuple[Index, ...]], list[tuple[Value, Index]]] = field(
        default_factory=dict)  # through views


_memo: ContextVar[_Memo | None] = ContextVar("memo", default=None)


@contextmanager
def cached_reads() -> Iterator[None]:
    """Caches traces of bodies by index within a `with` block: lowering repeats many of them."""
    token = _memo.set(_Memo())
    try:
        yield
    finally:
        _memo.reset(token)


def reads(v: Value, index: Sequence[Index]) -> list[tuple[Value, tuple[Index, ...]]]:
    """The elements of v's arguments that one element of v reads. For a reduction: that one of its
    summands reads, at the summand's index."""
    assert v.op.kind != "contract", v
    if v.op.opcode:
        return [(a, tuple(index)) for a in v.args]
    return [(a, proper(at, a.shape)) for a, at in traced(v, index).reads]


def traced(v: Value, index: Sequence[Index]) -> _Trace:
    """The trace of v's body at an index. The result is cached and must not be changed."""
    key, memo = (v, tuple(index)), _memo.get()
    trace = memo.traces.get(key) if memo else None
    if trace is None:
        trace = _Trace(v)
        v.op.body(trace, key[1], **v.attrs)  # type: ignore[misc]
        if memo:
            memo.traces[key] = trace
    return trace


def computed(v: Value, index: Sequence[Index]) -> list[Index]:
    """The indices that one element of v computes with, including those of the views that it reads:
    for tests of borders, or as numbers."""
    indices = [] if v.op.opcode else traced(v, index).computed
    for source, at in reads(v, index):
        if is_view(source):
            indices = indices + computed(source, at)
    return indices


def real_reads(v: Value, index: Sequence[Index]) -> list[tuple[Value, Index]]:
    """The computed values and leaves that one element of v reads, through views, with flat
    positions. The result is cached and must not be changed."""
    key, memo = (v, tuple(index)), _memo.get()
    sources = memo.reads.get(key) if memo else None
    if sources is None:
        sources = []
        for source, at in reads(v, index):
            if is_view(source):
                sources += real_reads(source, at)
            else:
                sources.append((source, flatten(at, source.shape)))
        if memo:
            memo.reads[key] = sources
    return sources


def needed(v: Value, index: Sequence[Index]) -> list[tuple[Value, Index]]:
    """Those of `real_reads` whose condition can be true."""
    unneeded = set() if v.op.opcode else traced(v, index).unneeded
    elements: list[tuple[Value, Index]] = []
    for k, (source, at) in enumerate(reads(v, index)):
        if k not in unneeded:
            elements += needed(source, at) if is_view(source) else [
                (source, flatten(at, source.shape))]
    return elements


def sources(v: Value) -> list[Value]:
    """The computed values and leaves that v reads, directly or through views, or that v
    overwrites."""
    if v.op is INSET:
        return [s for a in v.args for s in behind(a)]
    if v.op.kind == "map":
        return [s for s, _ in real_reads(v, unflatten(Index(), v.shape))]
    bases = (view_of(a, unflatten(Index(), a.shape)) for a in v.args)
    return [base[0] for base in bases if base is not None]


def behind(v: Value) -> list[Value]:
    """The computed values and leaves that v reads through views; v itself if it is no view."""
    return sources(v) if is_view(v) else [v]


def bounds(v: Value, index: Sequence[Index]) -> list[tuple[Index, int]]:
    """The tests of indices in v and the views that it reads, such as which part of a concatenation
    contains an element: each index, and the value from which on the answer changes."""
    tests = [] if v.op.opcode else traced(v, index).bounds
    return tests + [bound for a, at in reads(v, index) if is_view(a) for bound in bounds(a, at)]


def view_of(v: Value, index: Sequence[Index]) -> tuple[Value, Index] | None:
    """The computed value or leaf that a chain of views reads, and its position; None for fills."""
    if not is_view(v):
        return v, flatten(index, v.shape)
    sources = real_reads(v, index)
    return sources[0] if sources else None


def view_key(v: Value) -> tuple:
    """A key of the movement by a chain of views, which does not depend on the values moved."""
    if not is_view(v):
        return ("", v.shape)
    return (v.op, attribute_key(v.attrs), v.shape, *map(view_key, v.args))


def certain(v: Value, index: Sequence[Index]) -> bool:
    """Whether a chain of views reads exactly one element of its base, unconditionally."""
    while is_view(v):
        trace = traced(v, index)
        if not v.op.movement or trace.computed or len(trace.reads) != 1:
            return False
        v, index = trace.reads[0]
    return True


@dataclass(eq=False)
class Region:
    """The values that one kernel computes. Full members have one element for each (outer, inner),
    row members one for each outer."""

    kind: str  # map, reduce, contract or another kind of op
    outer: Var  # the loop over results
    inner: Var  # the loop over a result's summands; one iteration if nothing is reduced
    full: Index  # flat position of the full elements
    size: int  # number of full elements
    members: list[Value] = field(default_factory=list)
    flat: dict[Value, Index] = field(default_factory=dict)  # flat position of each member
    stores: list[Value] = field(default_factory=list)  # members that are stored to memory
    axes: tuple[int, ...] = ()  # reduced axes
    shape: tuple[int, ...] = ()  # of the full elements
    in_place: bool = False  # whether a partial member overwrites its first argument
    known: dict[tuple, Any] = field(default_factory=dict)  # its loops, by what they depend on

    def index(self, v: Value) -> tuple[Index, ...]:
        """The index at which a member is computed; for a reduction, that of its argument."""
        if v.op.kind == "reduce":
            return unflatten(self.full, v.args[0].shape)
        return unflatten(self.flat[v], v.shape)

    def is_row(self, v: Value) -> bool:
        return self.kind == "reduce" and self.flat[v] == position(v, Index.of(self.outer)) and (
            self.inner.extent > 1)

    def inset_at(self) -> list[Index]:
        """Where insets, and interleaved runs, are stored."""
        return [self.flat[v] for v in self.members
                if v.op is INSET or (v.op is INTERLEAVED and v.attrs["run"] > 1)]

    def aligned(self, v: Value, flat: Index) -> bool:
        """Whether computing v at `flat` reads members only where they are computed."""
        for source, at in real_reads(v, unflatten(flat, v.shape)):
            if source in self.flat and at != self.flat[source]:
                return False
        return True

    def add(self, v: Value, flat: Index) -> None:
        self.members.append(v)
        self.flat[v] = flat

    def restructure(self, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
        """Makes a map region one that reduces `axes` of `shape`."""
        outer, inner, full = reduce_domain(shape, axes)
        for v, at in self.flat.items():
            self.flat[v] = at.replace({self.outer: full})
        self.kind, self.axes, self.shape = "reduce", axes, shape
        self.outer, self.inner, self.full = outer, inner, full


def map_region(v: Value) -> Region:
    """A region of one elementwise value."""
    part = part_of(v)
    var, inner = Var("o", part.size), Var("i", 1)
    region = Region("map", var, inner, Index.of(var), part.size, shape=part.shape)
    region.add(v, position(v, region.full))
    return region


def reduce_domain(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[Var, Var, Index]:
    """(outer, inner, flat position) for a reduction of some axes."""
    sizes = [n for k, n in enumerate(shape) if k not in axes]
    reduced = [n for k, n in enumerate(shape) if k in axes]
    size_kept, size_reduced = 1, 1
    for n in sizes:
        size_kept *= n
    for n in reduced:
        size_reduced *= n
    outer, inner = Var("o", size_kept), Var("i", size_reduced)
    at_kept = iter(unflatten(Index.of(outer), sizes))
    at_reduced = iter(unflatten(Index.of(inner), reduced))
    index = [next(at_reduced) if k in axes else next(at_kept) for k in range(len(shape))]
    return outer, inner, flatten(index, shape)


def without_copies(v: Value) -> Value:
    """The value as views alone, without the copies among its movements."""
    if not v.op.movement or len(v.args) != 1:
        return v
    [below] = v.args
    x = without_copies(below)
    return x if v.op.written else v if x is below else Value(v.op, (x,), v.attrs, v.shape, v.dtype)
