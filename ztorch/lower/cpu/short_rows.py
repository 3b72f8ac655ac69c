"""Elementwise loops over rows that are shorter than a vector, such as the colors of a pixel.

A vector for each row would leave most of its lanes idle. Here vectors cover a block of rows that
is a whole number of vectors. The positions that their lanes read are constants apart, so each is
shuffled out of whole vectors: images that are mirrored, scaled by channel or given channels last.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ztorch.dtypes import boolean
from ztorch.graph.value import Value
from ztorch.ir.kernel import Operand
from ztorch.lower.emit import Emitter, picked
from ztorch.lower.index import Index, LoadedIndex, Var
from ztorch.lower.loops import nested, spread
from ztorch.lower.positions import unflatten
from ztorch.lower.region import Region
from ztorch.lower.tuning import SHARED_ITERATIONS, SHUFFLED_VECTORS, VECTORS_TOGETHER

Reads = Collection[tuple[Value, Index]]


@dataclass(frozen=True)
class RowsBlock:
    """Rows whose elements fill some vectors, the last one perhaps in part."""

    rows: int
    row: Var  # in the region's positions
    column: Var
    number: Var  # of the block
    first: int  # row of block 0
    lanes: int

    @property
    def vectors(self) -> int:
        return math.ceil(self.rows * self.column.extent / self.lanes)

    def lanes_of(self, vectors: range) -> range:
        """The elements of some vectors, by their numbers in the block."""
        end = min(vectors.stop * self.lanes, self.rows * self.column.extent)
        return range(vectors.start * self.lanes, end)

    def position(self, at: Index, element: int) -> Index:
        """A position for an element of the block."""
        row, column = divmod(element, self.column.extent)
        return at.replace({self.row: Index.of(self.number) * self.rows + (self.first + row),
                           self.column: Index((), column)})

    def offsets(self, at: Index, elements: range) -> list[int] | None:
        """How far the positions of some elements are from that of the block's first one, if these
        are constants."""
        first = self.position(at, 0)
        apart = [self.position(at, k) - first for k in elements]
        return None if any(p.terms for p in apart) else [p.const for p in apart]


def blocks_of(axes: Sequence[Var], reads: Reads, stores: Collection[Index],
              lanes: int) -> list[RowsBlock]:
    """The blocks of a region's loops: whole ones, and one of the last rows. None if rows are not
    short, or are stored with gaps between them, as inside a border, or if a vector would be
    shuffled out of too many."""
    if len(axes) < 2 or lanes == 1 or axes[-1].extent >= lanes:
        return []
    row, column = axes[-2:]
    if any(isinstance(atom, LoadedIndex) for _, at in reads for atom, _ in at.terms):
        return []
    rows, blocks = lanes // math.gcd(lanes, column.extent), []
    if count := row.extent // rows:
        blocks.append(RowsBlock(rows, row, column, Var("block", count), 0, lanes))
    if rest := row.extent % rows:
        blocks.append(RowsBlock(rest, row, column, Var("block", 1), count * rows, lanes))
    fits = all(_fits(block, at) for block in blocks for _, at in reads) and all(
        _is_gapless(block, at) for block in blocks for at in stores)
    return blocks if fits else []


def _is_gapless(block: RowsBlock, at: Index) -> bool:
    """Whether the elements of a block are stored one after the other."""
    elements = block.lanes_of(range(block.vectors))
    return block.offsets(at, elements) == list(elements)


def _fits(block: RowsBlock, at: Index) -> bool:
    """Whether each vector of a block is shuffled out of few vectors."""
    for vector in range(block.vectors):
        table = block.offsets(at, block.lanes_of(range(vector, vector + 1)))
        if table is None or len(_pieces(table, block.lanes)) > SHUFFLED_VECTORS:
            return False
    return True


def _pieces(offsets: Sequence[int], lanes: int) -> list[tuple[int, int]]:
    """The vectors that hold all offsets: where each begins, and its number of elements. None reads
    before the first element of a run or beyond the last."""
    runs: list[list[int]] = []
    for k in sorted(set(offsets)):
        if runs and k - runs[-1][-1] < lanes:
            runs[-1].append(k)
        else:
            runs.append([k])
    pieces = []
    for run in runs:
        first, size = run[0], run[-1] - run[0] + 1
        starts = {first + min(k, max(0, size - lanes)) for k in range(0, size, lanes)}
        pieces += [(start, min(size, lanes)) for start in sorted(starts)]
    return pieces


@dataclass
class _BlockEmitter(Emitter):
    """A scope of one of the vectors that are computed together."""

    block: RowsBlock | None = None
    vector: int = 0
    together: range = range(0)

    def load(self, v: Value, flat: Index, where: Operand | None = None) -> Operand:
        block, b = self.block, self.b
        assert block is not None and (where is None or where.is_const)
        if where is not None and not where.number:
            return b.const(0, v.dtype)
        if not flat.mentions(block.row) and not flat.mentions(block.column):
            return super().load(v, flat)
        every, own = (block.offsets(flat, block.lanes_of(vectors)) for vectors in (
            self.together, range(self.vector, self.vector + 1)))
        assert every is not None and own is not None
        pieces = _pieces(every, self.lanes)
        own += own[-1:] * (self.lanes - len(own))  # idle lanes
        places = []
        for k in own:
            number = next(n for n, (start, size) in enumerate(pieces) if 0 <= k - start < size)
            places.append((number, k - pieces[number][0]))
        base, off = self._sum(block.position(flat, 0))
        vectors = {n: b.load(self.memory[v], base, off=off + pieces[n][0], lanes=self.lanes,
                             mask=self._first(pieces[n][1])) for n in {n for n, _ in places}}
        numbers = sorted(vectors)
        x = vectors[numbers[0]]
        if len(numbers) > 1 or [lane for _, lane in places] != [*range(self.lanes)]:
            x = picked(b, [vectors[n] for n in numbers],
                       [(numbers.index(n), lane) for n, lane in places])
        return b.ne(x, 0) if v.dtype is boolean else x

    def store(self, mem: str, v: Value, flat: Index, x: Operand) -> None:
        block, b = self.block, self.b
        assert block is not None
        base, off = self._sum(block.position(flat, 0))
        x = b.splat(x, self.lanes)
        if v.dtype is boolean:
            x = b.cast(x, dtype=b.memories[mem].dtype)
        elements = block.lanes_of(range(self.vector, self.vector + 1))
        b.store(mem, base, x, off=off + elements.start, mask=self._first(len(elements)))

    def _first(self, count: int) -> Operand | None:
        """The mask of so many lanes; None for all."""
        return self.b.lt(self.b.iota(self.lanes), count) if count < self.lanes else None


def emit_blocks(e: Emitter, region: Region, part: tuple[list[Var], Index],
                target: Mapping[Value, str], blocks: Sequence[RowsBlock]) -> None:
    """All elements of a part of a region. Workers share the axes before the rows, if these are
    enough, or else all blocks."""
    axes, flat = part
    b, outer = e.b, axes[:-2]
    alone = math.prod(v.extent for v in outer) >= SHARED_ITERATIONS
    for group in [blocks] if alone else [[block] for block in blocks]:
        shared = outer if alone else [*outer, group[0].number]
        with b.loop(0, math.prod(v.extent for v in shared), kind="parallel") as r:
            bound = spread(e, r, shared)
            for block in group:
                with nested(b, [block.number] if alone else []) as counters:
                    places = {**bound, **dict(zip([block.number], counters, strict=False))}
                    _emit_block(e.within(bound=places), region, flat, target, block)


def _emit_block(e: Emitter, region: Region, flat: Index, target: Mapping[Value, str],
                block: RowsBlock) -> None:
    """A block: a few vectors are read and computed together, then written."""
    full = {region.outer: flat}
    stores = [v for v in region.members if v in target]
    for start in range(0, block.vectors, VECTORS_TOGETHER):
        together = range(start, min(start + VECTORS_TOGETHER, block.vectors))
        results = []
        for vector in together:
            scope = _BlockEmitter(e.b, e.memory, dict(e.bound), lanes=block.lanes,
                                  members=region.flat, place=full, block=block, vector=vector,
                                  together=together)
            at = [region.flat[v].replace(full) for v in stores]
            results += [(scope, v, k, scope.element(v, unflatten(k, v.shape)))
                        for v, k in zip(stores, at, strict=True)]
        for scope, v, k, x in results:
            scope.store(target[v], v, k, x)
