"""The sums of the terms that all iterations of a backward loop add to the gradient of a value that
they share.

    sum over iterations of h.T @ slopes   becomes   one product of the stacks of all h and all
    slopes

A stack is kept once: of slopes that differ in some columns, only those columns are kept twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby, pairwise
from typing import Any

from ztorch.graph.batching import repeated, vectorized
from ztorch.graph.body import Body
from ztorch.graph.op import OPS
from ztorch.graph.value import Op, Value


class Totals:
    """Sums over all iterations, as functions of the results of the loop that goes back.

    Args:
        body: The body of the forward loop.
        slices: Leaves of the new body: their sequences.
        depends: Values that depend on the iteration.
        outs: Values of which every iteration is kept; this adds to them.
    """

    def __init__(self, body: Body, slices: Mapping[Value, Value], depends: set[Value],
                 outs: list[Value]):
        self.body, self.slices, self.depends, self.outs = body, slices, depends, outs
        self.own_sums: list[Value] = []  # values accumulated in a separate carry

    def of(self, v: Value) -> Callable[..., Value]:
        """The sum of v over all iterations, as a function of the results of this loop. A sum of
        products is one product of stacks, unless iterations are recomputed to save memory: then
        each iteration adds its term. A block is one iteration, which is recomputed as a whole. A
        branch adds its term, too: one that is not taken stores no stack."""
        if self.body.is_branch:
            return self._own_sum(v)
        if self.body.recompute and self.body.trip_count == 1:
            self.outs.append(v)
            return lambda stacks, sums: OPS.reshape(stacks[v], v.shape)
        if v.op.kind == "contract" and not self.body.recompute:
            left = self._stack(v.args[0])
            parts = self._columns(v.args[1])
            return lambda stacks, sums: OPS.concat(*(
                _long_product(left(stacks), part(stacks), v.op, v.attrs) for part in parts),
                axis=-1)
        if v.op.kind == "reduce" and v.op.opcode == "add":
            [x], axes = v.args, v.attrs["axes"]
            rows = self._stack(x)
            return lambda stacks, sums: OPS.sum(rows(stacks), axis=(0, *(a + 1 for a in axes)))
        if v.op.name == "add" and v in self.depends:
            parts = [self.of(x) for x in v.args]
            return lambda stacks, sums: OPS.add(*(part(stacks, sums) for part in parts))
        if v in self.depends and (v.op.name in ("reshape", "slice", "transpose") or (
                v.op.name == "pad" and not v.attrs["value"])):
            part = self.of(v.args[0])
            return lambda stacks, sums: Value(v.op, (part(stacks, sums),), v.attrs, v.shape,
                                              v.dtype)
        return self._own_sum(v)

    def _own_sum(self, v: Value) -> Callable[..., Value]:
        """The sum of v in a carry of its own."""
        if v not in self.own_sums:
            self.own_sums.append(v)
        return lambda stacks, sums: sums[v]

    def _columns(self, v: Value) -> list[Callable[..., Value]]:
        """v of every iteration, or columns of it side by side, some of which are kept anyway:
        the slopes of a GRU's gates but the last are the same for its input and its state."""
        own = columns(v)
        if sum(x.shape[-1] for x in own.values()) < v.shape[-1]:
            own = {}
        shared = ((kept, own.items() & columns(kept).items()) for kept in self.outs)
        kept, same = next(((kept, same) for kept, same in shared if same), (v, set()))
        if kept is v:
            return [self._stack(v)]
        parts: list[Callable[..., Value]] = []
        for together, run in groupby(sorted(own.items()), lambda part: part in same):
            places = list(run)
            if together:
                end = places[-1][0] + places[-1][1].shape[-1]
                parts.append(partial(_cut, kept, places[0][0], end))
            else:
                parts += [self._stack(x) for _, x in places]
        return parts

    def _stack(self, v: Value) -> Callable[..., Value]:
        """v of every iteration, as a function of this loop's stacks."""
        if v in self.slices:
            return lambda stacks: self.slices[v]
        if v not in self.depends:
            return lambda stacks: repeated(v, self.body.trip_count)
        if v.op.movement and len(v.args) == 1:
            below = self._stack(v.args[0])

            def moved(stacks: Mapping[Value, Value]) -> Value:
                stack = below(stacks)
                return vectorized([v], {v.args[0]: stack}, self.body.trip_count)[v]

            return moved
        self.outs.append(v)
        return lambda stacks: stacks[v]


def _cut(v: Value, start: int, end: int, stacks: Mapping[Value, Value]) -> Value:
    """Columns of a stack."""
    return stacks[v][..., start:end]


def columns(v: Value) -> dict[int, Value]:
    """The values that are concatenated along the last axis of v, by their first column, if v is a
    sum of zero-padded values; else nothing."""
    if v.op.name == "pad":
        [x] = v.args
        low, high = v.attrs["low"], v.attrs["high"]
        return {} if v.attrs["value"] or any((*low[:-1], *high[:-1])) else {low[-1]: x}
    if v.op.name != "add":
        return {}
    first, second = map(columns, v.args)
    parts = sorted((*first.items(), *second.items()), key=lambda part: part[0])
    apart = all(at + x.shape[-1] <= after for (at, x), (after, _) in pairwise(parts))
    return dict(parts) if first and second and apart else {}


def _long_product(a: Value, b: Value, op: Op, attrs: Mapping[str, Any]) -> Value:
    """The sum over iterations of a @ b, as one product: iterations become part of the axis it sums
    over."""
    trip_count, m, k, n = a.shape[0], a.shape[-2], a.shape[-1], b.shape[-1]
    batch = a.shape[1:-2]
    rank = len(batch)
    order = (*range(1, rank + 2), 0, rank + 2)  # ..., m, iterations, k
    left = OPS.reshape(OPS.transpose(a, order), (*batch, m, trip_count * k))
    order = (*range(1, rank + 1), 0, rank + 1, rank + 2)  # ..., iterations, k, n
    right = OPS.reshape(OPS.transpose(b, order), (*batch, trip_count * k, n))
    return op(left, right, **attrs)
