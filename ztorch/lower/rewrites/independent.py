"""Finds loops that are recurrences: their elements are independent of one another."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ztorch.dtypes import boolean
from ztorch.graph.body import SHARED, Body, arguments
from ztorch.graph.op import leaf
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Value, topological
from ztorch.ir.limits import Limits
from ztorch.lower.index import Index, Var
from ztorch.lower.insets import part_of
from ztorch.lower.positions import flatten
from ztorch.lower.region import COPY, is_view, view_of
from ztorch.lower.rewrites.early_exit import flag_of_any, unchanged_after_exit
from ztorch.lower.rewrites.recurrence import (
    AT_ITERATION,
    NESTED,
    NESTED_RESULT,
    RECURRENCE,
    Recurrence,
    reads_of,
)
from ztorch.lower.tuning import (
    RECURRENCE_JOIN_SLOTS,
    RECURRENCE_ROW_SLOTS,
    RECURRENCE_VALUES,
)


def as_recurrence(loop: Value, results: Collection[int], private: Collection[Value],
                  limits: Limits) -> Value | None:
    """A loop as a recurrence; None if its elements depend on one another.

    Args:
        loop: The loop.
        results: The numbers of its results that are read.
        private: The arguments that nothing else reads.
        limits: Those of the machine.
    """
    body: Body = loop.attrs["body"]
    size = max((v.size for v in body.roots), default=0)
    if body.trip_count == 1 or not size:
        return None
    shape = next(v.shape for v in (*body.carries, *body.outs, *body.roots) if v.size == size)
    iteration = _iteration_of(body, shape, results)
    if iteration is None:
        return None
    inits, sequences, shared = arguments(body, loop.args)
    buffers = _Buffers()
    leaves = {v: buffers.leaf(v) for v in _constants(iteration)}
    for s, x in zip(body.slices, sequences, strict=True):
        x = _contiguous_in_iteration(x, size, limits)
        joined = x in private and x.op.kind == "map" and not x.op.opcode and (
            x.op.cost <= RECURRENCE_JOIN_SLOTS and not x.op.partial and part_of(x) is x)
        leaves[s] = AT_ITERATION(rebuilt(x, tuple(map(buffers.expression, x.args))) if joined
                                else buffers.expression(x), depth=0)
    leaves |= {s: buffers.expression(x) for s, x in zip(body.shared, shared, strict=True)}
    first = tuple(map(buffers.expression, inits))
    r = _nested(replace(iteration.substituted(leaves), inits=first), buffers)
    if r is None or len(topological(r.roots)) > RECURRENCE_VALUES or (
            reads_of(r, Var("o", size)) is None):
        return None
    if limits.grid and len(buffers.leaves) + len(results) > limits.grid.max_buffers:
        return None
    return RECURRENCE(*buffers.leaves, recurrence=replace(r, buffers=tuple(
        buffers.leaves.values())))


def iterations_last(recurrence: Value, results: Collection[Value],
                    readers: Mapping[Value, Sequence[Value]], limits: Limits) -> list[Value]:
    """The stacks of a recurrence that should be stored with the iterations of each element
    contiguous: sequences and stacks are all accessed in that layout, and iterations are so cheap
    that scalar code takes less time than vectors of elements and a transposed copy.

    Args:
        recurrence: The recurrence.
        results: The results of the loop, in the graph that it was made from.
        readers: The readers of each result there; an output counts as its own reader.
        limits: Those of the machine.
    """
    r: Recurrence = recurrence.attrs["recurrence"]
    stacks = [v for v in results if v.attrs["index"] >= len(r.carries)]
    if limits.grid is not None or r.size == 1 or r.slots > RECURRENCE_ROW_SLOTS:
        return []
    if any(at.factor(r.iteration) not in (0, 1) for _, at in reads_of(r, Var("o", r.size)) or ()):
        return []
    moved = all(_moves_first_axis_last(reader, v) for v in stacks for reader in readers[v])
    return stacks if moved else []


def _moves_first_axis_last(reader: Value, result: Value) -> bool:
    """Whether a view is a result with its first axis moved last."""
    trip_count, *shape = result.shape
    if not is_view(reader) or reader.shape != (*shape, trip_count):
        return False
    *axes, iteration = (Var(f"d{k}", n) for k, n in enumerate(reader.shape))
    index = [Index.of(v) for v in (*axes, iteration)]
    return view_of(reader, index) == (result, flatten((index[-1], *index[:-1]), result.shape))


def _iteration_of(body: Body, shape: tuple[int, ...],
                  results: Collection[int]) -> Recurrence | None:
    """A loop as a recurrence of elements of a shape, without initial values and buffers; None if
    elements depend on one another."""
    size = math.prod(shape)
    if any(v.size not in (1, size) for v in (*body.carries, *body.outs)):
        return None
    flag = flag_of_any(body)
    news, proceed = list(body.news), body.proceed
    if flag is not None:
        assert proceed is not None
        if flag.size != size or proceed in results:
            return None
        news[proceed] = body.carries[proceed]
    if proceed is not None:
        if body.outs or not unchanged_after_exit(body, proceed, flag, results):
            return None
    elif not body.outs:
        proceed = next((k for k, c in enumerate(body.carries) if c.dtype is boolean
                      and c.size == size and unchanged_after_exit(body, k, None, results)), None)
    return Recurrence(body.trip_count, body.reverse, shape, 0, body.carries, (), (), tuple(news),
                      body.outs, proceed, flag)


def _constants(r: Recurrence) -> list[Value]:
    """The constants of a body, which are in memory."""
    return [v for v in topological(r.roots) if v.attrs.get("role") == "constant"]


def _nested(r: Recurrence, buffers: _Buffers) -> Recurrence | None:
    """The recurrence with nested recurrences in place of the loops of its body; None if one of them
    is no recurrence or the body is not elementwise. `buffers`: those of the outermost recurrence.
    """
    results: dict[Value, set[int]] = {}
    for v in topological(r.roots):
        if v.op.kind == "result":
            results.setdefault(v.args[0], set()).add(v.attrs["index"])
    new: dict[Value, Value] = {}
    for v in topological(r.roots):
        args = tuple(new[a] for a in v.args)
        if v.op.kind == "loop":
            inner = _inner(v.attrs["body"], args, r, results.get(v, ()), buffers)
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
           results: Collection[int], buffers: _Buffers) -> Value | None:
    """A loop in the body of a recurrence as a nested recurrence; None if it is none."""
    iteration = _iteration_of(body, around.shape, results)
    if iteration is None or body.outs or iteration.flag is not None:
        return None
    inits, sequences, shared = arguments(body, args)
    outside = _Buffers()
    leaves = {v: outside.leaf(buffers.leaf(v)) for v in _constants(iteration)}
    leaves |= {s: AT_ITERATION(outside.leaf(x), depth=around.depth + 1)
              for s, x in zip(body.slices, sequences, strict=True)}
    leaves |= {s: outside.leaf(x) for s, x in zip(body.shared, shared, strict=True)}
    first = tuple(map(outside.leaf, inits))
    r = _nested(replace(iteration.substituted(leaves), inits=first, depth=around.depth + 1),
                buffers)
    return None if r is None else NESTED(*outside.leaves, recurrence=replace(
        r, buffers=tuple(outside.leaves.values())))


class _Buffers:
    """The values that a recurrence reads from memory: a leaf for each."""

    def __init__(self) -> None:
        self.leaves: dict[Value, Value] = {}

    def leaf(self, v: Value) -> Value:
        """The leaf in place of a value in memory."""
        if v not in self.leaves:
            self.leaves[v] = leaf(SHARED, f"buffer {len(self.leaves)}", v.shape, v.dtype)
        return self.leaves[v]

    def expression(self, v: Value) -> Value:
        """A value in terms of buffers: views are looked through."""
        if not is_view(v):
            return self.leaf(v)
        return rebuilt(v, tuple(map(self.expression, v.args)))


def _contiguous_in_iteration(sequence: Value, size: int, limits: Limits) -> Value:
    """The sequence, copied on a grid if the elements of an iteration are not contiguous, so that
    neighboring threads read neighboring elements. On a processor each lane reads its own row,
    which takes half the time of a copy."""
    if limits.grid is None or size == 1 or not is_view(sequence) or (
            sequence.size == sequence.shape[0]):
        return sequence
    axes = [Var(f"d{k}", n) for k, n in enumerate(sequence.shape)]
    base = view_of(sequence, [Index.of(v) for v in axes])
    column = next(v for v in reversed(axes) if v.extent > 1)
    if base is None or base[1].factor(column) in (0, 1):
        return sequence
    return COPY(sequence)
