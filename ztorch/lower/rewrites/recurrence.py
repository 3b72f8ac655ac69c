"""Recurrences: loops in which each element iterates independently of the others.

Such a loop becomes one kernel, by loop interchange: a loop over elements around a loop over
iterations, with the element's state in registers. The body is elementwise, and reads carries only
at the element's own position. Loop-invariant tensors may be read anywhere.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from ztorch.dtypes import DType, boolean
from ztorch.graph.rewrite import substituted
from ztorch.graph.text import text_of
from ztorch.graph.value import Graph, Op, Value, not_evaluated, topological
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import unflatten
from ztorch.lower.region import Region, is_view, real_reads
from ztorch.lower.tuning import OP_SLOTS_MIN, RECURRENCE_READS


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The work of each element in its iterations. Values are expressions of carries and buffers.
    Carries and outs have one value per element, or one value that is uniform over elements."""

    trip_count: int  # the most iterations
    reverse: bool  # whether iterations run from the last one to the first
    shape: tuple[int, ...]  # of the elements
    depth: int  # number of enclosing recurrences
    carries: tuple[Value, ...]  # leaves: the state before an iteration
    buffers: tuple[Value, ...]  # leaves: values in memory
    inits: tuple[Value, ...]  # the initial state
    news: tuple[Value, ...]  # the state after an iteration
    outs: tuple[Value, ...]  # values kept for every iteration
    proceed: int | None  # index of a bool carry; once it is false, no carry changes
    flag: Value | None  # not None: `proceed` stays true while this is true for any element

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def roots(self) -> tuple[Value, ...]:
        """All that is computed."""
        return (*self.inits, *self.news, *self.outs, *(() if self.flag is None else (self.flag,)))

    @property
    def iteration(self) -> Var:
        """The loop variable of the iterations."""
        return Var(f"iteration{self.depth}", self.trip_count)

    def substituted(self, new: Mapping[Value, Value]) -> Recurrence:
        """The same with some values replaced."""
        values = iter(substituted(self.roots, new))
        return replace(self, inits=tuple(islice(values, len(self.inits))),
                       news=tuple(islice(values, len(self.news))),
                       outs=tuple(islice(values, len(self.outs))), flag=next(values, None))

    def position(self, v: Value, outer: Index) -> Index:
        """The position of the element `outer` of a carry or out."""
        return outer if v.size == self.size else Index()

    def index(self, v: Value, outer: Index) -> tuple[Index, ...]:
        """The same along each axis."""
        return unflatten(self.position(v, outer), v.shape)

    def result(self, index: int, outer: Index, iterations_last: bool = False) -> Index:
        """The position of an element of a result. Results are the last state, then the stacks. In a
        stack, the elements of an iteration are contiguous, or with `iterations_last` the iterations
        of an element."""
        if index < len(self.carries):
            return self.position(self.carries[index], outer)
        out = self.outs[index - len(self.carries)]
        if iterations_last:
            return self.position(out, outer) * self.trip_count + Index.of(self.iteration)
        return self.position(out, outer) + Index.of(self.iteration) * out.size

    def values(self) -> list[Value]:
        """All values of the body except views, including those of nested recurrences."""
        own = [v for v in topological(self.roots) if not is_view(v)]
        inner = [w for v in own if v.op is NESTED for w in v.attrs["recurrence"].values()]
        return [*(v for v in own if v.op is not NESTED), *inner]

    @property
    def widest(self) -> DType:
        """The dtype that determines the vector length: the widest float, else the widest dtype."""
        dtypes = [v.dtype for v in self.values() or self.roots]
        return max([d for d in dtypes if d.is_float] or dtypes, key=lambda d: d.bits)

    @functools.cached_property
    def steps(self) -> list[Value]:
        """The expressions that an element evaluates in every iteration, in topological order."""
        after = (*self.news, *self.outs, *(() if self.flag is None else (self.flag,)))
        order = topological(after)
        reached = set(after)
        steps: set[Value] = set()
        for v in reversed(order):
            if v.op is NESTED or (v in reached and v.op.opcode):
                steps.add(v)
                reached.update(a for a in v.args if a.size in (1, self.size))
        return [v for v in order if v in steps]

    @property
    def slots(self) -> int:
        """An estimate of the issue slots of one iteration of an element's code."""
        return sum(max(v.op.cost, OP_SLOTS_MIN) for v in self.values() if v.op.kind != "leaf") or 1

    @property
    def work(self) -> int:
        """An estimate of the issue slots of all iterations of one element."""
        inner = [v.attrs["recurrence"] for v in topological(self.roots) if v.op is NESTED]
        return self.trip_count * (self.slots + sum(r.work - r.slots for r in inner))

    @functools.cached_property
    def text(self) -> str | None:
        """A digest, equal for equal recurrences; None if user-defined ops are involved."""
        values = (*self.carries, *self.buffers, *self.roots)
        text = text_of(Graph({str(k): v for k, v in enumerate(values)}))
        if text is None:
            return None
        others = (self.trip_count, self.reverse, self.shape, self.depth, len(self.carries),
                  len(self.buffers), len(self.outs), self.proceed)
        return hashlib.sha256(f"{text}\n{others}".encode()).hexdigest()

    def __repr__(self) -> str:
        """The text by which attributes of nodes are compared: equal for equal recurrences."""
        return f"<recurrence {self.text or id(self)}>"


# -- nodes of the graph ----------------------------------------------------------------------------


def _infer(*args: Value, recurrence: Recurrence) -> tuple[tuple[int, ...], DType]:
    return (), boolean  # a placeholder: only its results are tensors


def _result_infer(node: Value, index: int,
                  iterations_last: bool = False) -> tuple[tuple[int, ...], DType]:
    r: Recurrence = node.attrs["recurrence"]
    if index < len(r.carries):
        return r.carries[index].shape, r.carries[index].dtype
    out = r.outs[index - len(r.carries)]
    return (*out.shape, r.trip_count) if iterations_last else (r.trip_count, *out.shape), out.dtype


RECURRENCE = Op("recurrence", "recurrence", _infer, not_evaluated)
RECURRENCE_RESULT = Op("result", "recurrence_result", _result_infer, not_evaluated)
# The element of a sequence at the current iteration of the enclosing recurrence.
AT_ITERATION = Op("at_iteration", "map", lambda x, depth: (x.shape[1:], x.dtype), not_evaluated,
                  movement=True, body=lambda e, index, depth: e.read(
                      0, (Index.of(Var(f"iteration{depth}", e.shape(0)[0])), *index)))
NESTED = Op("nested", "nested", _infer, not_evaluated)
NESTED_RESULT = Op("result", "nested_result", _result_infer, not_evaluated)


def recurrence_region(v: Value) -> Region:
    """The region of a recurrence, whose results join it."""
    r: Recurrence = v.attrs["recurrence"]
    outer = Var("o", r.size)
    region = Region("recurrence", outer, r.iteration, Index.of(outer), r.size, shape=r.shape)
    region.add(v, region.full)
    return region


def buffer_reads(v: Value, outer: Var) -> list[tuple[Value, Index]]:
    """The arguments of a recurrence that an element reads, with positions."""
    r: Recurrence = v.attrs["recurrence"]
    arg_of = dict(zip(r.buffers, v.args, strict=True))
    return [(arg_of[leaf], at) for leaf, at in reads_of(r, outer) or ()]


@functools.lru_cache
def opened(node: Value) -> Recurrence:
    """A nested recurrence with the values of the enclosing one in place of its buffers."""
    r: Recurrence = node.attrs["recurrence"]
    return r.substituted(dict(zip(r.buffers, node.args, strict=True)))


def reads_of(r: Recurrence, outer: Var) -> list[tuple[Value, Index]] | None:
    """The buffers that an element reads, with positions. None if it reads the state of another
    element, or repeats too much work of other elements."""
    at = Index.of(outer)
    state = {c: r.position(c, at) for c in r.carries}
    visited: set[tuple[Value, Index]] = set()
    places: list[tuple[Value, Index]] = []
    stack = [(v, r.position(v, at)) for v in r.roots]
    while stack:
        v, flat = stack.pop()
        if (v, flat) in visited:
            continue
        visited.add((v, flat))
        if v in state:
            if flat != state[v]:
                return None
        elif v.op.kind == "leaf":
            places.append((v, flat))
        elif v.op is NESTED_RESULT:
            if flat != r.position(v, at):
                return None
            inner = opened(v.args[0])
            state |= {c: r.position(c, at) for c in inner.carries}
            stack += [(w, r.position(w, at)) for w in inner.roots]
        else:
            stack += real_reads(v, unflatten(flat, v.shape))
        if len(visited) > RECURRENCE_READS:
            return None
    return places
