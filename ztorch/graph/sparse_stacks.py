"""Loops of which only the states before every n-th iteration are read, as loops over segments of n
iterations: they keep these states and no others.

A gradient that computes iterations again reads the states where its segments begin. It slices them
out of the stacks of all states, which this removes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ztorch.graph.body import (
    Body,
    arguments,
    carry_leaf,
    closed,
    iterations_of,
    results_of,
    slice_leaf,
    with_own_leaves,
)
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt, substituted
from ztorch.graph.value import Graph, Value, layer_scope

Range = tuple[int, int, int]  # start, step and number of iterations
Results = tuple[list[Value], list[Value]]  # last values of carries, stacks


def sparse_stacks(graph: Graph) -> Graph:
    """The graph with such loops as loops over segments."""
    nodes = graph.nodes()
    readers: dict[Value, list[Value]] = {r: [r] for r in graph.roots}  # an output: itself
    for v in nodes:
        for a in v.args:
            readers.setdefault(a, []).append(v)
    new: dict[Value, Value] = {}
    for v in nodes:
        if v in new:
            continue
        if v.op.kind == "loop" and v.attrs["body"].proceed is None:
            with layer_scope(v.layer):
                segments = _Segments(v, [new[a] for a in v.args], readers)
                if segments.size > 1:
                    new |= segments.replacements()
        if v not in new and all(a in new for a in v.args):
            new[v] = rebuilt(v, tuple(new[a] for a in v.args))
    return graph.with_roots(new[r] for r in graph.roots)


class _Segments:
    """The loop over segments that takes the place of a loop.

    Args:
        loop: The loop as it is.
        args: Its new arguments.
        readers: The readers of each value.
    """

    def __init__(self, loop: Value, args: Sequence[Value],
                 readers: Mapping[Value, Sequence[Value]]):
        body: Body = loop.attrs["body"]
        self.loop, self.readers = loop, readers
        self.inits, self.sequences, shared = arguments(body, args)
        self.body = replace(body.with_roots(substituted(
            body.roots, dict(zip(body.shared, shared, strict=True)))), shared=())
        self.results = [*readers.get(loop, ())]
        count = len(body.carries)
        sliced = {y: body.carries.index(body.outs[y.attrs["index"] - count]) for y in self.results
                  if y.attrs["index"] >= count
                  and body.outs[y.attrs["index"] - count] in body.carries
                  and all(_is_slice_of(y, x) for x in readers[y])}
        self.size = max((_range(x)[1] for y in sliced for x in readers[y]), default=1)
        self.main = body.trip_count - body.trip_count % self.size  # the rest is no whole segment
        begin = self.size - 1 if body.reverse else 0
        self.first = begin, self.size, self.main // self.size
        self.other = (body.trip_count - 1 if body.reverse else self.main), 1, 1
        # Stacks of states that are only read where segments begin, and the carry of each.
        self.sparse = {y: k for y, k in sliced.items()
                       if {self.first, self.other}.issuperset(map(_range, readers[y]))}
        if not self.sparse:
            self.size = 1

    def replacements(self) -> dict[Value, Value]:
        """New values for the results of the loop, or for the slices of them."""
        body, states = self.body, list(self.inits)
        count = len(body.carries)
        dense = [k for k in range(len(body.outs))
                 if any(y.attrs["index"] == count + k and y not in self.sparse
                        for y in self.results)]
        body = replace(body, outs=tuple(body.outs[k] for k in dense))
        others: list[Value] = []
        if body.reverse:
            other, (states, others) = states, self._rest(body, states)
        states, stacks, starts = self._whole(body, states)
        if not body.reverse:
            other, (states, others) = states, self._rest(body, states)
        stacks = [OPS.concat(x, y, axis=0) for x, y in zip(stacks, others, strict=True)
                  ] if others else stacks
        new: dict[Value, Value] = {}
        for y in self.results:
            index = y.attrs["index"]
            if y not in self.sparse:
                new[y] = states[index] if index < count else stacks[dense.index(index - count)]
                continue
            k = self.sparse[y]
            for x in self.readers[y]:
                new[x] = starts[k] if _range(x) == self.first else OPS.expand_dims(other[k], 0)
        return new

    def _rest(self, body: Body, states: list[Value]) -> Results:
        """The results of the iterations after whole segments."""
        if self.main == body.trip_count:
            return states, []
        rows = [iterations_of(x, self.main, body.trip_count) for x in self.sequences]
        return self._looped(with_own_leaves(
            replace(body, trip_count=body.trip_count - self.main)), states, rows)

    def _whole(self, body: Body, states: list[Value]) -> tuple[list[Value], ...]:
        """The results of whole segments, and the stacks of the states where they begin."""
        count = self.main // self.size
        rows = [OPS.reshape(iterations_of(x, 0, self.main), (count, self.size, *x.shape[1:]))
                for x in self.sequences]
        carries = [carry_leaf(v, k) for k, v in enumerate(states)]
        slices = [slice_leaf(x, k) for k, x in enumerate(rows)]
        last, outs = self._looped(with_own_leaves(replace(body, trip_count=self.size)), carries,
                                  slices)
        last, stacks = self._looped(Body(
            count, body.reverse, tuple(carries), tuple(slices), (), tuple(last),
            (*outs, *carries)), states, rows)
        return last, [OPS.reshape(y, (self.main, *y.shape[2:])) for y in stacks[:len(outs)]], (
            stacks[len(outs):])

    def _looped(self, body: Body, inits: Sequence[Value], sequences: Sequence[Value]) -> Results:
        body, shared = closed(body)
        return results_of(self.loop.op(*inits, *sequences, *shared, body=body))


def _is_slice_of(y: Value, reader: Value) -> bool:
    """Whether a reader of a stack slices whole states out of it."""
    return reader is not y and reader.op.name == "slice" and reader.shape[1:] == y.shape[1:]


def _range(x: Value) -> Range:
    """The iterations of a slice of a stack."""
    return x.attrs["start"][0], x.attrs["step"][0], x.attrs["size"][0]
