"""Strip mining of loops that read large products: the product is computed for a block of iterations
at a time.

    an LSTM over 1,000 steps: 32 MB that a product writes before the loop become a block of 1 MB

A product of which a loop reads some rows in each iteration is computed before the loop. If it is
larger than the L2 cache, the loop becomes a loop over blocks of iterations: each block computes its
part of the product right before its iterations read it. A part fits in the L2 cache, or in the L3
cache if it would otherwise have too few rows to pay for reading all weights. Results are the same.
"""

from __future__ import annotations

import math
from collections import Counter
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
from ztorch.graph.loop import LOOP
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.ir.limits import Limits
from ztorch.lower.tuning import EVEN_PARTS, ITERATION_BLOCK_SHARE

Results = tuple[list[Value], list[Value]]  # last values of carries, stacks
Parts = Mapping[Value, Value]  # by value with an element per iteration: its part for a block


def strip_mined(graph: Graph, limits: Limits) -> Graph:
    """The graph with loops that read large products strip-mined."""
    if limits.grid is not None:
        return graph
    nodes = graph.nodes()
    readers = Counter(a for v in nodes for a in v.args)
    readers.update(graph.roots)
    cpu = limits.processor
    capacity = int(cpu.l2_bytes * ITERATION_BLOCK_SHARE), int(cpu.l3_bytes * ITERATION_BLOCK_SHARE)
    new: dict[Value, Value] = {}
    results: dict[Value, list[Value]] = {}  # of loops in blocks
    for v in nodes:
        if v.op.kind == "result" and v.args[0] in results:
            new[v] = results[v.args[0]][v.attrs["index"]]
            continue
        new[v] = rebuilt(v, tuple(new[a] for a in v.args))
        if v.op is LOOP:
            with layer_scope(v.layer):
                blocks = StripMinedLoop(v, new, readers)
                if block_size := blocks.block_size(capacity):
                    results[v] = blocks.results(block_size)
    return graph.with_roots(new[r] for r in graph.roots) if results else graph


class StripMinedLoop:
    """A loop over blocks of iterations.

    Args:
        loop: The loop as it is.
        new: The replacements of the values around it.
        readers: How many values read each value.
    """

    def __init__(self, loop: Value, new: Mapping[Value, Value], readers: Mapping[Value, int]):
        self.body: Body = loop.attrs["body"]
        inits, self.sequences, shared = arguments(self.body, loop.args)
        self.new, self.readers = new, readers
        self.inits, self.shared = ([new[v] for v in values] for values in (inits, shared))
        self.products = [product for s in self.sequences for product in self._products(s)]

    def block_size(self, capacity: tuple[int, int]) -> int:
        """The iterations of a block that fits in the L2 cache, or else in the L3 cache; 0 if blocks
        do not pay. `capacity` is the number of bytes that a block may fill of either cache."""
        count = self.body.trip_count
        size = sum(p.size * p.dtype.bytes for p in self.products)
        # The stacks of the loop can be stored over the product (`overwritten.py`).
        size_of_outs = sum(v.size * v.dtype.bytes for v in self.body.outs) * count
        if self.body.proceed is not None or size <= max(capacity[0], size_of_outs):
            return 0
        block, most = (n * count // size for n in capacity)
        block = max(1, block)
        block = next((n for n in range(block, block // EVEN_PARTS, -1) if count % n == 0), block)
        # Each block reads the right operands again, which pays only with enough rows.
        least = max(math.ceil(p.args[0].shape[1] * count / p.shape[0]) for p in self.products)
        if block < least:
            block = next((n for n in range(least, EVEN_PARTS * least) if count % n == 0), least)
        return block if block < count and block <= max(1, most) else 0

    def _products(self, v: Value) -> list[Value]:
        """The products that a sequence is computed from, if nothing else reads them."""
        if self.readers[v] > 1 or not v.rank or v.shape[0] != self.body.trip_count:
            return []
        if v.op.name == "reshape" and self._is_product(v.args[0]):
            return [v.args[0]]
        return [p for a in v.args for p in self._products(a)] if _is_elementwise(v) else []

    def _is_product(self, v: Value) -> bool:
        """Whether a value is a product of matrices with an equal number of rows per iteration."""
        return (v.op.kind == "contract" and self.readers[v] == 1 and v.rank == 2
                and v.args[0].rank == v.args[1].rank == 2
                and v.shape[0] % self.body.trip_count == 0)

    # -- blocks ------------------------------------------------------------------------------------

    def results(self, size: int) -> list[Value]:
        """The results of the loop, in blocks of `size` iterations and one block of the rest."""
        trip_count = self.body.trip_count
        main = trip_count - trip_count % size
        read: dict[Value, None] = {}  # values of which each block reads its part
        for s in self.sequences:
            self._read(s, read)
        states, rest = self.inits, None
        if main < trip_count and self.body.reverse:
            states, rest = self._rest(states, read, main)
        states, stacks = self._main(states, list(read), main, size)
        if main < trip_count and not self.body.reverse:
            states, rest = self._rest(states, read, main)
        if rest is not None:
            stacks = [OPS.concat(a, b, axis=0) for a, b in zip(stacks, rest, strict=True)]
        return [*states, *stacks]

    def _read(self, v: Value, read: dict[Value, None]) -> None:
        """Adds the values from which a block of `v` is computed."""
        if not self._products(v):
            if not _is_invariant(v):
                read[v] = None
        elif v.op.name == "reshape":
            read[v.args[0].args[0]] = None
        else:
            for a in v.args:
                self._read(a, read)

    def _by_iteration(self, v: Value) -> Value:
        """A value that blocks read, with iterations as its first axis."""
        rows = v.shape[0] // self.body.trip_count
        x = self.new[v]
        if rows == 1 and v.shape[0] == self.body.trip_count:
            return x
        x = x.args[0] if x.op.name == "reshape" else x
        return OPS.reshape(x, (self.body.trip_count, rows, *v.shape[1:]))

    def _main(self, inits: Sequence[Value], read: list[Value], trip_count: int, size: int
              ) -> Results:
        """A loop over blocks of equal size."""
        carries = [carry_leaf(v, k) for k, v in enumerate(inits)]
        rows = [iterations_of(self._by_iteration(v), 0, trip_count) for v in read]
        rows = [OPS.reshape(x, (trip_count // size, size, *x.shape[1:])) for x in rows]
        slices = [slice_leaf(x, k) for k, x in enumerate(rows)]
        last, stacks = self._block(carries, dict(zip(read, slices, strict=True)), size)
        body, shared = closed(Body(trip_count // size, self.body.reverse, tuple(carries),
                                   tuple(slices), (), tuple(last), tuple(stacks)))
        last, stacks = results_of(LOOP(*inits, *rows, *shared, body=body))
        return last, [OPS.reshape(y, (trip_count, *y.shape[2:])) for y in stacks]

    def _rest(self, inits: Sequence[Value], read: Mapping[Value, None], start: int) -> Results:
        """The last iterations of the sequences, as a block."""
        end = self.body.trip_count
        rest = {v: iterations_of(self._by_iteration(v), start, end) for v in read}
        return self._block(inits, rest, end - start)

    def _block(self, inits: Sequence[Value], parts: Parts, trip_count: int) -> Results:
        sequences = [self._part(s, parts, trip_count) for s in self.sequences]
        body = with_own_leaves(replace(self.body, trip_count=trip_count))
        return results_of(LOOP(*inits, *sequences, *self.shared, body=body))

    def _part(self, v: Value, parts: Parts, trip_count: int) -> Value:
        """A value for the iterations of a block."""
        if v in parts:
            return parts[v]
        shape = (trip_count, *v.shape[1:])
        if _is_invariant(v):
            return OPS.broadcast_to(self.new[v.args[0]], shape)
        if v.op.name == "reshape":
            [product] = v.args
            x, w = parts[product.args[0]], self.new[product.args[1]]
            y = product.op(OPS.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1])), w,
                           **product.attrs)
            return OPS.reshape(y, shape)
        return Value(v.op, tuple(self._part(a, parts, trip_count) for a in v.args), v.attrs, shape,
                     v.dtype)


def _is_elementwise(v: Value) -> bool:
    """Whether each element is computed from those at its place."""
    return v.op.kind == "map" and bool(v.op.opcode) and all(a.shape == v.shape for a in v.args)


def _is_invariant(v: Value) -> bool:
    """Whether a value is the same in every iteration."""
    return v.op.name == "broadcast_to" and (
        v.args[0].rank < v.rank or v.args[0].shape[0] == 1 != v.shape[0])
