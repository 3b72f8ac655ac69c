"""Recurrences: loops in which each element takes its turns by itself, whatever the others do.

Such a loop becomes one kernel: a loop over elements around a loop over turns, with the state of the
element in registers. The body is elementwise, and reads carries only at the element's own position.
What no turn changes may be read anywhere.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ztorch.dtypes import DType, boolean
from ztorch.graph.body import SHARED, Body, arguments
from ztorch.graph.op import leaf
from ztorch.graph.rewrite import rebuilt, substituted
from ztorch.graph.text import text_of
from ztorch.graph.value import Graph, Op, Value, topological
from ztorch.ir.limits import Limits
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import unflatten
from ztorch.lower.region import COPY, Region, is_view, real_reads, view_of
from ztorch.lower.settled import flag_of_any, settles
from ztorch.lower.tuning import (
    OP_SLOTS_MIN,
    RECURRENCE_JOIN_SLOTS,
    RECURRENCE_READS,
    RECURRENCE_VALUES,
)


@dataclass(frozen=True, eq=False)
class Recurrence:
    """What each element does at its turns. Values are expressions of carries and buffers. Carries
    and outs have a value for each element, or one that all elements compute alike."""

    turns: int  # how many, at most
    reverse: bool  # whether turns are counted from the last one down
    shape: tuple[int, ...]  # of the elements
    depth: int  # number of recurrences around it
    carries: tuple[Value, ...]  # leaves: the state before the turn
    buffers: tuple[Value, ...]  # leaves: what lies in memory
    inits: tuple[Value, ...]  # the first state
    news: tuple[Value, ...]  # the state after the turn
    outs: tuple[Value, ...]  # what is kept of every turn
    going: int | None  # number of a bool carry: while it is false, no carry changes
    flag: Value | None  # not None: `going` is true while this is true of any element

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def roots(self) -> tuple[Value, ...]:
        """All that is computed."""
        return (*self.inits, *self.news, *self.outs, *(() if self.flag is None else (self.flag,)))

    @property
    def turn(self) -> Var:
        """The loop variable of the turns."""
        return Var(f"turn{self.depth}", self.turns)

    def substituted(self, new: Mapping[Value, Value]) -> Recurrence:
        """The same with some values replaced."""
        values = iter(substituted(self.roots, new))
        return replace(self, inits=tuple(islice(values, len(self.inits))),
                       news=tuple(islice(values, len(self.news))),
                       outs=tuple(islice(values, len(self.outs))), flag=next(values, None))

    def position(self, v: Value, outer: Index) -> Index:
        """Where the element `outer` of a carry or out lies."""
        return outer if v.size == self.size else Index()

    def index(self, v: Value, outer: Index) -> tuple[Index, ...]:
        """The same along each axis."""
        return unflatten(self.position(v, outer), v.shape)

    def result(self, number: int, outer: Index) -> Index:
        """Where an element of a result lies. Results are the last state, then the stacks."""
        if number < len(self.carries):
            return self.position(self.carries[number], outer)
        out = self.outs[number - len(self.carries)]
        return self.position(out, outer) + Index.of(self.turn) * out.size

    def values(self) -> list[Value]:
        """All values of the body but views, with those of recurrences inside it."""
        own = [v for v in topological(self.roots) if not is_view(v)]
        inner = [w for v in own if v.op is NESTED for w in v.attrs["recurrence"].values()]
        return [*(v for v in own if v.op is not NESTED), *inner]

    @property
    def widest(self) -> DType:
        """The dtype whose lanes decide the vector length: the widest float, else the widest."""
        dtypes = [v.dtype for v in self.values()]
        return max([d for d in dtypes if d.is_float] or dtypes, key=lambda d: d.bits)

    @functools.cached_property
    def steps(self) -> list[Value]:
        """What an element computes at its own position in every turn, each after what it reads."""
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
        """Issue slots of the code of a turn of one element, roughly."""
        return sum(max(v.op.cost, OP_SLOTS_MIN) for v in self.values() if v.op.kind != "leaf") or 1

    @property
    def work(self) -> int:
        """Issue slots that all turns of one element take, roughly."""
        inner = [v.attrs["recurrence"] for v in topological(self.roots) if v.op is NESTED]
        return self.turns * (self.slots + sum(r.work - r.slots for r in inner))

    @functools.cached_property
    def text(self) -> str | None:
        """Equal for recurrences that compute the same; None where ops of users are in them."""
        values = (*self.carries, *self.buffers, *self.roots)
        text = text_of(Graph({str(k): v for k, v in enumerate(values)}))
        if text is None:
            return None
        others = (self.turns, self.reverse, self.shape, self.depth, len(self.carries),
                  len(self.buffers), len(self.outs), self.going)
        return hashlib.sha256(f"{text}\n{others}".encode()).hexdigest()

    def __repr__(self) -> str:
        """What equal recurrences share: attributes of nodes are compared by it."""
        return f"<recurrence {self.text or id(self)}>"


# -- nodes of the graph ----------------------------------------------------------------------------


def _infer(*args: Value, recurrence: Recurrence) -> tuple[tuple[int, ...], DType]:
    return (), boolean  # by itself it is no tensor


def _result_infer(node: Value, index: int) -> tuple[tuple[int, ...], DType]:
    r: Recurrence = node.attrs["recurrence"]
    if index < len(r.carries):
        return r.carries[index].shape, r.carries[index].dtype
    out = r.outs[index - len(r.carries)]
    return (r.turns, *out.shape), out.dtype


def _not_evaluated(*args: Any, **attrs: Any) -> Any:
    raise AssertionError("recurrences are made after graphs are evaluated")


RECURRENCE = Op("recurrence", "recurrence", _infer, _not_evaluated)
RECURRENCE_RESULT = Op("result", "recurrence_result", _result_infer, _not_evaluated)
# The element of a sequence at the turn of the recurrence around.
AT_TURN = Op("at_turn", "map", lambda x, depth: (x.shape[1:], x.dtype), _not_evaluated,
             movement=True, body=lambda e, index, depth: e.read(
                 0, (Index.of(Var(f"turn{depth}", e.shape(0)[0])), *index)))
NESTED = Op("nested", "nested", _infer, _not_evaluated)
NESTED_RESULT = Op("result", "nested_result", _result_infer, _not_evaluated)


def recurrence_region(v: Value) -> Region:
    """The region of a recurrence, whose results join it."""
    r: Recurrence = v.attrs["recurrence"]
    outer = Var("o", r.size)
    region = Region("recurrence", outer, r.turn, Index.of(outer), r.size, shape=r.shape)
    region.add(v, region.full)
    return region


def buffer_reads(v: Value, outer: Var) -> list[tuple[Value, Index]]:
    """Which arguments of a recurrence an element reads, and where."""
    r: Recurrence = v.attrs["recurrence"]
    arg_of = dict(zip(r.buffers, v.args, strict=True))
    return [(arg_of[leaf], at) for leaf, at in reads_of(r, outer) or ()]


# -- which loops are recurrences -------------------------------------------------------------------


def as_recurrence(loop: Value, results: Collection[int], private: Collection[Value],
                  limits: Limits) -> Value | None:
    """The recurrence that a loop is; None if it is none.

    Args:
        loop: The loop.
        results: The numbers of its results that are read.
        private: The arguments that nothing else reads.
        limits: Those of the machine.
    """
    body: Body = loop.attrs["body"]
    size = max((v.size for v in body.roots), default=0)
    if body.turns == 1 or not size:
        return None
    shape = next(v.shape for v in (*body.carries, *body.outs, *body.roots) if v.size == size)
    turn = _turn_of(body, shape, results)
    if turn is None:
        return None
    inits, sequences, shared = arguments(body, loop.args)
    buffers = _Buffers()
    known = {v: buffers.leaf(v) for v in topological(turn.roots)
             if v.op.kind == "leaf" and v not in body.leaves}  # constants
    for s, x in zip(body.slices, sequences, strict=True):
        x = _side_by_side(x, size, limits)
        joined = x in private and x.op.kind == "map" and not x.op.opcode and (
            x.op.cost <= RECURRENCE_JOIN_SLOTS and not x.op.partial)
        known[s] = AT_TURN(rebuilt(x, tuple(map(buffers.expression, x.args))) if joined
                           else buffers.expression(x), depth=0)
    known |= {s: buffers.expression(x) for s, x in zip(body.shared, shared, strict=True)}
    r = _nested(replace(turn.substituted(known), inits=tuple(map(buffers.expression, inits)),
                        buffers=tuple(buffers.leaves.values())))
    if r is None or len(topological(r.roots)) > RECURRENCE_VALUES or (
            reads_of(r, Var("o", size)) is None):
        return None
    if limits.grid and len(r.buffers) + len(results) > limits.grid.max_buffers:
        return None
    return RECURRENCE(*buffers.leaves, recurrence=r)


def _turn_of(body: Body, shape: tuple[int, ...], results: Collection[int]) -> Recurrence | None:
    """A loop as a recurrence of elements of a shape, so far without first values and buffers; None
    if elements cannot take their turns by themselves."""
    size = math.prod(shape)
    if any(v.size not in (1, size) for v in (*body.carries, *body.outs)):
        return None
    flag = flag_of_any(body)
    news, going = list(body.news), body.proceed
    if flag is not None:
        assert going is not None
        if flag.size != size or going in results:
            return None
        news[going] = body.carries[going]
    if going is not None:
        if body.outs or not settles(body, going, flag, results):
            return None
    elif not body.outs:
        going = next((k for k, c in enumerate(body.carries) if c.dtype is boolean
                      and c.size == size and settles(body, k, None, results)), None)
    return Recurrence(body.turns, body.reverse, shape, 0, body.carries, (), (), tuple(news),
                      body.outs, going, flag)


def _nested(r: Recurrence) -> Recurrence | None:
    """The recurrence with those inside it in place of the loops of its body; None if one of them
    is none, or if it is not elementwise."""
    results: dict[Value, set[int]] = {}
    for v in topological(r.roots):
        if v.op.kind == "result":
            results.setdefault(v.args[0], set()).add(v.attrs["index"])
    new: dict[Value, Value] = {}
    for v in topological(r.roots):
        args = tuple(new[a] for a in v.args)
        if v.op.kind == "loop":
            inner = _inner(v.attrs["body"], args, r, results.get(v, ()))
            if inner is None:
                return None
            new[v] = inner
        elif v.op.kind == "result":
            new[v] = NESTED_RESULT(*args, index=v.attrs["index"])
        elif v.op.kind not in ("leaf", "map") or v.op.partial:
            return None
        else:
            new[v] = rebuilt(v, args)
    return r.substituted(new)


def _inner(body: Body, args: Sequence[Value], around: Recurrence,
           results: Collection[int]) -> Value | None:
    """The recurrence that a loop in the body of another one is."""
    turn = _turn_of(body, around.shape, results)
    if turn is None or body.outs or turn.flag is not None:
        return None
    inits, sequences, shared = arguments(body, args)
    outside = _Buffers()
    known = {s: AT_TURN(outside.leaf(x), depth=around.depth + 1)
             for s, x in zip(body.slices, sequences, strict=True)}
    known |= {s: outside.leaf(x) for s, x in zip(body.shared, shared, strict=True)}
    first = tuple(map(outside.leaf, inits))
    r = _nested(replace(turn.substituted(known), inits=first, depth=around.depth + 1,
                        buffers=tuple(outside.leaves.values())))
    return None if r is None else NESTED(*outside.leaves, recurrence=r)


@functools.lru_cache(64)
def opened(node: Value) -> Recurrence:
    """A nested recurrence in terms of the values around it."""
    r: Recurrence = node.attrs["recurrence"]
    return r.substituted(dict(zip(r.buffers, node.args, strict=True)))


class _Buffers:
    """What a recurrence reads from memory: a leaf for each value."""

    def __init__(self) -> None:
        self.leaves: dict[Value, Value] = {}

    def leaf(self, v: Value) -> Value:
        """What stands for a value in memory."""
        if v not in self.leaves:
            self.leaves[v] = leaf(SHARED, f"buffer {len(self.leaves)}", v.shape, v.dtype)
        return self.leaves[v]

    def expression(self, v: Value) -> Value:
        """A value in terms of buffers: views are looked through."""
        if not is_view(v):
            return self.leaf(v)
        return rebuilt(v, tuple(map(self.expression, v.args)))


def _side_by_side(sequence: Value, size: int, limits: Limits) -> Value:
    """The sequence; on a grid a copy of it, where neighbouring elements lie apart in each turn, as
    neighbouring threads read together. On a processor each lane goes along a row of its own, which
    takes half the time of a copy."""
    if limits.grid is None or size == 1 or not is_view(sequence) or (
            sequence.size == sequence.shape[0]):
        return sequence
    axes = [Var(f"d{k}", n) for k, n in enumerate(sequence.shape)]
    base = view_of(sequence, [Index.of(v) for v in axes])
    column = next(v for v in reversed(axes) if v.extent > 1)
    if base is None or base[1].factor(column) in (0, 1):
        return sequence
    return COPY(sequence)


def reads_of(r: Recurrence, outer: Var) -> list[tuple[Value, Index]] | None:
    """Which buffers an element reads, and where. None if it reads the state of another element, or
    computes too much that other elements compute, too."""
    at = Index.of(outer)
    own = {c: r.position(c, at) for c in r.carries}
    seen: set[tuple[Value, Index]] = set()
    places: list[tuple[Value, Index]] = []
    stack = [(v, r.position(v, at)) for v in r.roots]
    while stack:
        v, flat = stack.pop()
        if (v, flat) in seen:
            continue
        seen.add((v, flat))
        if v in own:
            if flat != own[v]:
                return None
        elif v.op.kind == "leaf":
            places.append((v, flat))
        elif v.op is NESTED_RESULT:
            if flat != r.position(v, at):
                return None
            inner = opened(v.args[0])
            own |= {c: r.position(c, at) for c in inner.carries}
            stack += [(w, r.position(w, at)) for w in inner.roots]
        else:
            stack += real_reads(v, unflatten(flat, v.shape))
        if len(seen) > RECURRENCE_READS:
            return None
    return places
