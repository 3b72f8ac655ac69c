"""The sums of the terms that all iterations of a backward loop add to the gradient of a value that
they share.

    sum over iterations of h.T @ slopes   becomes   one product of the stacks of all h and all
    slopes

Many iterations are added in groups, in the order in which the loop goes back. So the sum of
iterations that are computed again, some groups at a time, has the same bits.

A stack is kept once: of slopes that differ in some columns, only those columns are kept twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby, pairwise

from ztorch.dtypes import DType, f32
from ztorch.graph.batching import pointwise, repeated, vectorized
from ztorch.graph.body import Body, carry_leaf, closed, iterations_of, results_of, slice_leaf
from ztorch.graph.op import OPS
from ztorch.graph.value import Op, Value, topological

GROUP_ROWS = 512  # that the product of a group adds: as many as fit the caches
EVEN_GROUPS = 2  # how much smaller groups may be, so that all are equal

Stacks = Mapping[Value, Value]  # of values of an iteration: those of several in a row
Stack = Callable[[Stacks, int], Value]  # the stack of a value, from those kept, and its length
Total = Callable[[Sequence[Value], Mapping[Value, Value]], Value]  # of long sums and own sums


# A sum of groups. To a loop outside, it is a single term, however its groups were added.
_OF_GROUPS = Op("of_groups", "map", lambda x: (x.shape, x.dtype), numpy=lambda x: x,
                grad=lambda o, g, y, x: (g,), body=lambda e, index: e.read(0, index),
                movement=True, alias=True, batch=pointwise)


def of_sums(d: DType) -> DType:
    """The dtype of sums over iterations: in 16-bit floats small terms would be lost."""
    return f32 if d.is_float and d.bits < f32.bits else d


def in_dtype(v: Value, d: DType) -> Value:
    """A value in a dtype, itself if it has it."""
    return v if v.dtype is d else OPS.cast(v, d)


@dataclass(frozen=True, eq=False)
class LongSum:
    """A sum over iterations that is computed from their stacks."""

    part: Stack  # the sum over the iterations of these stacks
    rows: int  # that one iteration adds
    shape: tuple[int, ...]
    dtype: DType


class Totals:
    """Sums over all iterations, as functions of the results of the loop that goes back.

    Args:
        loop: The op of loops.
        body: The body of the forward loop.
        slices: Leaves of the new body: values whose stacks are there before it.
        carries: Its other leaves.
        news: The next values of its carries.
        depends: Values that depend on the iteration.
    """

    def __init__(self, loop: Op, body: Body, slices: Iterable[Value], carries: Iterable[Value],
                 news: Iterable[Value], depends: set[Value]):
        self.loop, self.body, self.slices, self.depends = loop, body, {*slices}, depends
        self.outs: dict[Value, None] = {}  # values of which every iteration is kept
        self.read: dict[Value, None] = {}  # these and the slices that are read after the loop
        self.own_sums: dict[Value, None] = {}  # values accumulated in a separate carry
        self.long: list[LongSum] = []
        self.needed = {*topological(news, {*self.slices, *carries})}  # by the next iteration

    def of(self, v: Value) -> Total:
        """The sum of v over all iterations. A sum of products is one product of stacks, unless
        iterations are recomputed to save memory: then each iteration adds its term. A block is one
        iteration, which is recomputed as a whole. A branch adds its term, too: one that is not
        taken stores no stack."""
        if self.body.is_branch:
            return self._own_sum(v)
        if self.body.recompute and self.body.trip_count == 1:
            stack = self._kept(v)
            return self._long_sum(lambda stacks, n: OPS.reshape(stack(stacks, n), v.shape), 1, v)
        if v.op.kind == "contract" and not self.body.recompute:
            return self._product(v)
        if v.op.kind == "reduce" and v.op.opcode == "add":
            [x], axes = v.args, v.attrs["axes"]
            rows = self.stack(x)
            return self._long_sum(lambda stacks, n: OPS.sum(
                rows(stacks, n), axis=(0, *(a + 1 for a in axes))), x.size // max(1, v.size), v)
        if v.op.name == "add" and v in self.depends:
            parts = [self.of(x) for x in v.args]
            return lambda long, own: OPS.add(*(part(long, own) for part in parts))
        if v in self.depends and (v.op.name in ("reshape", "slice", "transpose") or (
                v.op.name == "pad" and not v.attrs["value"])):
            part = self.of(v.args[0])
            return lambda long, own: Value(v.op, (part(long, own),), v.attrs, v.shape, v.dtype)
        if v in self.outs:
            rows = self.stack(v)
            return self._long_sum(lambda stacks, n: OPS.sum(rows(stacks, n), axis=0), 1, v)
        return self._own_sum(v)

    def _own_sum(self, v: Value) -> Total:
        """The sum of v in a carry of its own."""
        self.own_sums[v] = None
        return lambda long, own: own[v]

    def _long_sum(self, part: Stack, rows: int, like: Value, columns: int | None = None) -> Total:
        """A sum from stacks, of the shape of `like` or of some columns of it."""
        shape = like.shape if columns is None else (*like.shape[:-1], columns)
        self.long.append(LongSum(part, rows, shape, like.dtype))
        number = len(self.long) - 1
        return lambda long, own: long[number]

    def _product(self, v: Value) -> Total:
        left, k = self.stack(v.args[0]), v.args[0].shape[-1]
        parts = [self._long_sum(partial(_long_product, v, left, right), k, v, columns)
                 for right, columns in self._columns(v.args[1])]
        return lambda long, own: OPS.concat(*(part(long, own) for part in parts), axis=-1)

    # -- groups ------------------------------------------------------------------------------------

    @property
    def group(self) -> int:
        """The iterations of a group; all of them if there is only one."""
        trip_count = self.body.trip_count
        most = max(1, GROUP_ROWS // max([1, *(s.rows for s in self.long)]))
        if trip_count <= most:
            return trip_count
        return next((n for n in range(most, most // EVEN_GROUPS, -1) if trip_count % n == 0), most)

    @property
    def has_groups(self) -> bool:
        """Whether there are several groups."""
        return self.group < self.body.trip_count

    def firsts(self) -> list[Value]:
        """The long sums before any group."""
        return [OPS.full(s.shape, 0, of_sums(s.dtype)) for s in self.long]

    def sums(self, stacks: Stacks) -> list[Value]:
        """The long sums over all iterations."""
        if not self.has_groups:
            return [s.part(stacks, self.group) for s in self.long]
        return self.whole(self.added(self.firsts(), stacks, self.body.trip_count))

    def whole(self, totals: Iterable[Value]) -> list[Value]:
        """Long sums to which all groups were added."""
        return [_OF_GROUPS(in_dtype(t, s.dtype)) for t, s in zip(totals, self.long, strict=True)]

    def added(self, totals: Sequence[Value], stacks: Stacks, count: int) -> list[Value]:
        """The totals with the terms of further iterations, a group after the other.

        Args:
            totals: Of the long sums, so far.
            stacks: Of these iterations.
            count: How many there are; groups are counted from the first one of the sequence.
        """
        main = count - count % self.group

        def of_part(totals: Sequence[Value], start: int, end: int) -> list[Value]:
            if start == end:
                return [*totals]
            part = {v: iterations_of(x, start, end) for v, x in stacks.items()}
            return [t + in_dtype(s.part(part, end - start), t.dtype)
                    for t, s in zip(totals, self.long, strict=True)]

        if main > self.group:
            groups = partial(self._groups, stacks=stacks, count=main // self.group)
        else:
            groups = partial(of_part, start=0, end=main)
        if self.body.reverse:
            return of_part(groups(totals), main, count)
        return groups(of_part(totals, main, count))

    def _groups(self, totals: Sequence[Value], stacks: Stacks, count: int) -> list[Value]:
        """The totals with the terms of some whole groups, in a loop."""
        size = self.group
        rows = {v: OPS.reshape(iterations_of(x, 0, count * size), (count, size, *x.shape[1:]))
                for v, x in stacks.items()}
        slices = {v: slice_leaf(x, k) for k, (v, x) in enumerate(rows.items())}
        results: list[Value] = []
        for total, term in zip(totals, self.long, strict=True):
            carry = carry_leaf(total, 0)
            new = carry + in_dtype(term.part(slices, size), carry.dtype)
            used = {*topological([new])}
            read = {v: s for v, s in reversed(slices.items()) if s in used}
            body, shared = closed(Body(count, not self.body.reverse, (carry,),
                                       tuple(read.values()), (), (new,), ()))
            loop = self.loop(total, *(rows[v] for v in read), *shared, body=body)
            results += results_of(loop)[0]
        return results

    # -- stacks ------------------------------------------------------------------------------------

    def stack(self, v: Value) -> Stack:
        """The stack of v. Products that no iteration waits for are computed after the loop."""
        if v in self.slices:
            self.read[v] = None
            return lambda stacks, n: stacks[v]
        if v not in self.depends:
            return lambda stacks, n: repeated(v, n)
        if (v.op.movement and len(v.args) == 1) or self._is_late(v):
            below = {a: self.stack(a) for a in v.args if a in self.depends}

            def made(stacks: Stacks, n: int) -> Value:
                known = {a: stack(stacks, n) for a, stack in below.items()}
                return vectorized([v], known, n, shared={*v.args} - {*known})[v]

            return made
        return self._kept(v)

    def _is_late(self, v: Value) -> bool:
        """Whether v is a product of a value of the iteration with a matrix that all share, or made
        of some, and no iteration waits for it."""
        if v in self.needed or v not in self.depends or self.body.recompute:
            return False
        if v.op.kind == "contract":
            return v.args[1] not in self.depends and v.args[1].rank == 2
        return v.op.kind == "map" and any(map(self._is_late, v.args))

    def _kept(self, v: Value) -> Stack:
        """The stack of a value that the loop keeps."""
        self.outs[v] = self.read[v] = None
        return lambda stacks, n: stacks[v]

    def _columns(self, v: Value) -> list[tuple[Stack, int]]:
        """v of every iteration, or columns of it side by side, some of which are kept anyway:
        the slopes of a GRU's gates but the last are the same for its input and its state."""
        own = columns(v)
        if sum(x.shape[-1] for x in own.values()) < v.shape[-1]:
            own = {}
        shared = ((out, own.items() & columns(out).items()) for out in self.outs)
        out, same = next(((out, same) for out, same in shared if same), (v, set()))
        if out is v:
            return [(self.stack(v), v.shape[-1])]
        parts: list[tuple[Stack, int]] = []
        for together, run in groupby(sorted(own.items()), lambda part: part in same):
            places = list(run)
            if together:
                start, end = places[0][0], places[-1][0] + places[-1][1].shape[-1]
                self.read[out] = None
                parts.append((partial(_cut, out, start, end), end - start))
            else:
                parts += [(self.stack(x), x.shape[-1]) for _, x in places]
        return parts


def _cut(v: Value, start: int, end: int, stacks: Stacks, n: int) -> Value:
    """Columns of a stack."""
    return stacks[v][..., start:end]


def columns(v: Value) -> dict[int, Value]:
    """The values that lie side by side along the last axis of v, by their first column, if v is a
    concatenation or a sum of zero-padded values; else nothing."""
    if v.op.name == "concat" and v.attrs["axis"] == v.rank - 1:
        starts = accumulate((x.shape[-1] for x in v.args), initial=0)
        return dict(zip(starts, v.args, strict=False))
    if v.op.name == "pad":
        [x] = v.args
        low, high = v.attrs["low"], v.attrs["high"]
        if v.attrs["value"] or any((*low[:-1], *high[:-1])):
            return {}
        return {low[-1] + at: y for at, y in (columns(x) or {0: x}).items()}
    if v.op.name != "add":
        return {}
    first, second = map(columns, v.args)
    parts = sorted((*first.items(), *second.items()), key=lambda part: part[0])
    apart = all(at + x.shape[-1] <= after for (at, x), (after, _) in pairwise(parts))
    return dict(parts) if first and second and apart else {}


def _long_product(v: Value, left: Stack, right: Stack, stacks: Stacks, count: int) -> Value:
    """The sum over iterations of a product v, as one product: iterations become part of the axis
    it sums over."""
    a, b = left(stacks, count), right(stacks, count)
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = a.shape[1:-2]
    rank = len(batch)
    order = (*range(1, rank + 2), 0, rank + 2)  # ..., m, iterations, k
    a = OPS.reshape(OPS.transpose(a, order), (*batch, m, count * k))
    order = (*range(1, rank + 1), 0, rank + 1, rank + 2)  # ..., iterations, k, n
    b = OPS.reshape(OPS.transpose(b, order), (*batch, count * k, n))
    return v.op(a, b, **v.attrs)
