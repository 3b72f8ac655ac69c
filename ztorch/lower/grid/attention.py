"""Attention on a grid: one thread, or a few neighboring threads, computes a row of scores, with
its query and its result in registers. The workgroup copies keys and values to shared memory block
by block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ztorch.dtypes import f32
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.attention_rows import AttentionRows, sizes_of
from ztorch.lower.grid.workgroups import threads, where, workgroups
from ztorch.lower.index import Index
from ztorch.lower.loops import multiply_add
from ztorch.lower.region import Region
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import (
    ATTENTION_BLOCK,
    ATTENTION_GROUP,
    ATTENTION_STEP,
    ATTENTION_THREAD,
    SEEN_ROWS,
)


@dataclass(frozen=True, repr=False)
class GridAttentionSchedule(Schedule):
    """Attention on a grid, by threads."""

    kind = "grid_attention"
    threads: int  # per workgroup
    ways: int  # threads that share a row
    block: int  # columns whose keys and values are in shared memory at once
    step: int  # columns of a block that are computed together

    def tile(self, lanes: int) -> str:
        return f"{self.threads // max(1, self.ways)}x{self.block}"


def propose(region: Region, limits: Limits) -> GridAttentionSchedule:
    """One thread per row; several if one thread cannot hold a query and a result."""
    grid, sizes = limits.grid, sizes_of(region)
    assert grid is not None
    count, ways, block = min(ATTENTION_GROUP, grid.threads), 1, ATTENTION_BLOCK
    while (sizes.depth + sizes.width) // ways > ATTENTION_THREAD and ways * 2 <= grid.subgroup and (
            sizes.depth % (2 * ways) == 0 == sizes.width % (2 * ways)):
        ways *= 2
    while block > ATTENTION_STEP and _shared(region, block) > grid.declared_shared_bytes:
        block //= 2
    return GridAttentionSchedule(count, ways, block, ATTENTION_STEP)


def refusal(s: GridAttentionSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    grid, sizes = limits.grid, sizes_of(region)
    assert grid is not None
    if not 1 <= s.threads <= grid.threads or s.threads % (s.ways * SEEN_ROWS):
        return (f"threads({s.threads}) must be at most {grid.threads}, and a multiple of "
                f"{SEEN_ROWS} rows")
    if s.ways < 1 or s.ways & (s.ways - 1) or s.ways > max(1, grid.subgroup) or (
            sizes.depth % s.ways or sizes.width % s.ways):
        return f"ways({s.ways}) must divide a subgroup of {grid.subgroup} and the size of heads"
    if s.step < 1 or s.block % s.step:
        return f"block({s.block}) must be a multiple of step({s.step})"
    needed = _shared(region, s.block)
    return f"it shares {needed} bytes of {grid.declared_shared_bytes}" if (
        needed > grid.declared_shared_bytes) else ""


def _shared(region: Region, block: int) -> int:
    """Bytes of shared memory."""
    sizes = sizes_of(region)
    return block * (sizes.depth + sizes.width) * region.members[0].args[1].dtype.bytes


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridAttentionSchedule) -> None:
    """All rows, each by one thread or a few neighbors."""
    assert limits.grid is not None
    sizes, rows = sizes_of(region), s.threads // s.ways
    down = math.ceil(sizes.rows / rows)
    with workgroups(b, sizes.matrices * down, limits.grid) as g, threads(b, s.threads) as t:
        first = b.mul(b.rem(g, down), rows)
        _ThreadRows(b, region, memory, limits, s, b.div(g, down), first, t).run(target)


class _ThreadRows(AttentionRows):
    """The row of a thread."""

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str], limits: Limits,
                 s: GridAttentionSchedule, matrix: Operand, first: Operand, t: Operand):
        super().__init__(b, region, memory, matrix)
        assert limits.grid is not None
        self.limits, self.s, self.t, self.first = limits, s, t, first
        self.grid: GridLimits = limits.grid
        self.at = b.add(first, b.div(t, s.ways))
        self.share = b.rem(t, s.ways)
        self.keys, self.values = (
            b.memory(name, self.node.args[1].dtype, s.block * n, "shared", "rw")
            for name, n in (("keys", self.sizes.depth), ("values", self.sizes.width)))

    def run(self, target: Mapping[Value, str]) -> None:
        b, s, sizes = self.b, self.s, self.sizes
        inside = b.lt(self.at, sizes.rows) if sizes.rows % (s.threads // s.ways) else None
        row = self.at if inside is None else b.min(self.at, sizes.rows - 1)
        e = self.scope(row=row)
        query = self._query(row)
        largest, total = b.var(f32, 1, -math.inf), b.var(f32, 1, 0.0)
        sums = [b.var(f32, 1, 0.0) for _ in range(sizes.width // s.ways)]
        with b.loop(0, self.end(self.first, s.threads // s.ways), s.block) as start:
            b.barrier()  # before other threads' data are overwritten
            self._bring(self.keys, 1, start, sizes.depth)
            self._bring(self.values, 2, start, sizes.width)
            b.barrier()
            with b.loop(0, s.block, s.step) as k:
                self._step(e, row, start, k, query, largest, total, sums)
        factor = self.factor(e, b.get(total))
        stores = b.eq(self.share, 0) if s.ways > 1 else None
        stores = inside if stores is None else stores if inside is None else b.and_(stores, inside)
        self.store_state(e, b.get(largest), b.get(total), stores, target)
        with where(b, inside):
            for i, v in enumerate(sums):
                x = b.mul(b.get(v), factor)
                place = self.scope(row=row, place=self._mine(sizes.width, i))
                flat = Index.of(self.batch) * (sizes.rows * sizes.width) + (
                    Index.of(self.row) * sizes.width + Index.of(self.place))
                for result in self.result(0):
                    if result in target:
                        place.store(target[result], result, flat, b.cast(x, dtype=result.dtype))

    def _mine(self, size: int, i: int) -> Operand:
        """The i-th element of a thread's part of a vector."""
        n = self._lanes(size)
        return self.b.add(self.b.mul(self.share, n), i // n * n * self.s.ways + i % n)

    def _lanes(self, size: int) -> int:
        """The contiguous elements of a thread's part of a vector. Parts of threads alternate."""
        count, lanes = size // self.s.ways, self.grid.load_width
        vectors = self.grid.scalar_stores_readable_as_vectors
        return lanes if vectors and count % lanes == 0 else 1

    def _query(self, row: Operand) -> list[Operand]:
        n = self.sizes.depth
        places = [self.scope(row=row, depth=self._mine(n, i)) for i in range(n // self.s.ways)]
        return [self.b.cast(e.element(self.node.args[0], self.index(self.row, self.depth)),
                            dtype=f32) for e in places]

    def _bring(self, name: str, side: int, start: Operand, size: int) -> None:
        """Copies the keys or values of a block of columns to shared memory, element by element."""
        b, operand = self.b, self.node.args[side]
        with b.loop(self.t, self.s.block * size, self.s.threads) as k:
            column = b.min(b.add(start, b.div(k, size)), self.sizes.columns - 1)
            e = self.scope(column=column, **{"depth" if side == 1 else "place": b.rem(k, size)})
            axes = (self.depth, self.column) if side == 1 else (self.column, self.place)
            b.store(name, k, e.element(operand, self.index(*axes)))

    def _step(self, e: Emitter, row: Operand, start: Operand, k: Operand, query: list[Operand],
              largest: Operand, total: Operand, sums: list[Operand]) -> None:
        """Computes a few columns."""
        b, s, scores, scopes = self.b, self.s, [], []
        products = [b.const(0.0, f32)] * s.step
        for n, lines in self._vectors(self.keys, k, self.sizes.depth):
            for i, line in enumerate(lines):
                for x, y in zip(query[n:], line, strict=False):
                    products[i] = multiply_add(b, self.limits, x, y, products[i])
        for i, product in enumerate(products):
            for distance in (1 << n for n in range(s.ways.bit_length() - 1)):
                product = b.add(product, b.shuffle_xor(product, distance))
            column, inside = b.add(start, b.add(k, i)), None
            if self.sizes.columns % s.block:
                inside = b.lt(column, self.sizes.columns)
                column = b.min(column, self.sizes.columns - 1)
            scopes.append(self.scope(row=row, column=column))
            scores.append(self.score(scopes[-1], product, inside))
        before = after = b.get(largest)
        for x in scores:
            after = b.max(after, x)
        scale, shift = self.rescaled(e, before, after), self.shift(e, after)
        parts = [b.exp(b.sub(x, shift)) for x in scores]
        b.set(largest, after)
        new = b.mul(b.get(total), scale)
        for x in parts:
            new = b.add(new, x)
        b.set(total, new)
        parts = [self.used(e, x) for e, x in zip(scopes, parts, strict=True)]
        for v in sums:
            b.set(v, b.mul(b.get(v), scale))
        for n, lines in self._vectors(self.values, k, self.sizes.width):
            for part, line in zip(parts, lines, strict=True):
                for v, y in zip(sums[n:], line, strict=False):
                    b.set(v, multiply_add(b, self.limits, part, y, b.get(v)))

    def _vectors(self, name: str, k: Operand, size: int,
                 ) -> Iterator[tuple[int, list[list[Operand]]]]:
        """The contiguous pieces of a thread's part of each key or value of a step, each with its
        offset."""
        b, lanes = self.b, self._lanes(size)
        at = b.add(b.mul(k, size), b.mul(self.share, lanes))
        align = lanes * self.node.args[1].dtype.bytes if lanes > 1 else 0
        for n in range(0, size // self.s.ways, lanes):
            pieces = [b.load(name, at, off=i * size + n * self.s.ways, lanes=lanes, align=align)
                      for i in range(self.s.step)]
            yield n, [[b.cast(b.extract(x, lane) if lanes > 1 else x, dtype=f32)
                       for lane in range(lanes)] for x in pieces]
