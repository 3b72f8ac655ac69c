"""The loop nest of a transposing copy: square tiles are transposed in registers.

A read across rows uses one element of each cache line. Here a tile of lanes x lanes elements is
read along the source's rows, transposed by shuffles, and written along the result's rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ztorch.graph.body import SLICE
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.divided_axes import divided, loops_of, reads_at
from ztorch.lower.cpu.elements import merged_axes
from ztorch.lower.cpu.lanes import lanes_refusal
from ztorch.lower.cpu.strides import lines_held
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, LoadedIndex, Var
from ztorch.lower.loops import evaluate, spread, widest
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import Region, real_reads
from ztorch.lower.schedule import TransposeSchedule
from ztorch.lower.tuning import (
    L1_SHARE,
    LINE_BYTES,
    SHORT_ROW_BYTES,
    TILES_ABREAST_MAX,
    TILES_AHEAD,
    TRANSPOSE_EXTENT,
)


@dataclass(frozen=True)
class TransposePattern:
    """The one value that is read across its rows."""

    source: Value
    along: int  # the axis along which its elements are contiguous
    shape: tuple[int, ...]  # that loops run over: neighboring axes are one where they can be, and
    # one axis is several where a read needs its quotients, such as that of a flipped kernel


def find_transpose(region: Region) -> TransposePattern | None:
    """The value that an elementwise region reads across rows, if tiles for it pay."""
    if len(region.shape) < 2:
        return None
    shape = divided(region, merged_axes(region))
    if len(shape) < 2 or shape[-1] < TRANSPOSE_EXTENT:
        return None
    loops = loops_of(shape)
    last, across = loops[-1], set()
    for source, flat in reads_at(region, shape):
        if flat.factor(last) in (0, 1) and flat.is_affine:
            continue
        contiguous = [k for k, d in enumerate(loops[:-1]) if flat.factor(d) == 1]
        looked_up = any(isinstance(atom, LoadedIndex) for atom, _ in flat.terms)
        if not flat.is_affine or looked_up or not contiguous:
            return None
        if shape[contiguous[0]] < TRANSPOSE_EXTENT:
            return None
        across.add((source, flat, contiguous[0]))
    if len(across) != 1:
        return None
    [(source, _, along)] = across
    return TransposePattern(source, along, shape)


def source_at(region: Region, pattern: TransposePattern, at: Index) -> Index:
    """The position in the transposed operand that corresponds to a position of the region."""
    for v in region.members:
        flat = region.flat[v].replace({region.outer: at})
        for source, place in real_reads(v, unflatten(flat, v.shape)):
            if source is pattern.source:
                return place
    raise AssertionError("the region no longer reads its transposed operand")


def propose(region: Region, limits: Limits) -> TransposeSchedule | None:
    """Tiles of all lanes, if the region reads one value across. Half of them, if a full vector
    occupies a port for two cycles: on Zen 4 at AVX-512, a copy of 1152 x 1568 takes 525 us with 16
    lanes and 329 with 8. Tiles lie abreast to read whole lines of the source, if the lines of a row
    of tiles would not stay in the L1 cache; of short rows pairs of lines."""
    d = widest(region)
    lanes = limits.lanes(d)
    if lanes * d.bits > limits.processor.port_bits and lanes > 2:
        lanes //= 2
    pattern = find_transpose(region) if lanes > 1 else None
    if pattern is None:
        return None
    columns, cpu = pattern.shape[-1], limits.processor
    if columns < lines_held(_distance(region, pattern), cpu) * L1_SHARE:
        return TransposeSchedule(lanes, 1)
    short = columns * LINE_BYTES < cpu.l1_bytes * L1_SHARE
    width = SHORT_ROW_BYTES if short else LINE_BYTES
    most = min(TILES_ABREAST_MAX, pattern.shape[pattern.along] // lanes)
    return TransposeSchedule(lanes, max(1, min(width // (lanes * d.bytes), most)))


def _distance(region: Region, pattern: TransposePattern) -> int:
    """The bytes between elements of the source that are neighbors in the result."""
    last, source = loops_of(pattern.shape)[-1], pattern.source
    return max(abs(flat.factor(last)) for read, flat in reads_at(region, pattern.shape)
               if read is source) * source.dtype.bytes


def refusal(s: TransposeSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    if why := lanes_refusal(s.lanes, limits.lanes(widest(region))):
        return why
    pattern = find_transpose(region) if s.lanes > 1 else None
    if pattern is None:
        return "it reads no value across its rows"
    most = max(1, min(TILES_ABREAST_MAX, pattern.shape[pattern.along] // s.lanes))
    return "" if 1 <= s.abreast <= most else f"abreast({s.abreast}) must be between 1 and {most}"


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: TransposeSchedule) -> None:
    """Tiles over the two axes. Workers share the rows of tiles and all other axes."""
    lanes, pattern = s.lanes, find_transpose(region)
    assert pattern is not None
    shape, along = pattern.shape, pattern.along
    outer = [Var(f"o{k}", n) for k, n in enumerate(shape[:-1]) if k != along]
    rows, columns = shape[along], shape[-1]
    far = pattern.source in memory and (pattern.source.attrs.get("role") == SLICE
                                        or pattern.source.nbytes > limits.processor.l2_bytes)
    tile = _Tile(b, region, pattern, memory, target, outer, lanes, TILES_AHEAD if far else 0)
    count = math.prod(v.extent for v in outer)
    covered = 0
    for height, abreast in ((lanes, s.abreast), (lanes, 1), (1, 1)):
        tiles = (rows - covered) // (height * abreast)
        if height == 1 and tiles:  # the rest, in one tile
            height, tiles = rows - covered, 1
        if not tiles:
            continue
        with b.loop(0, count * tiles, kind="parallel") as t:
            bound = spread(Emitter(b, memory), b.div(t, tiles), outer)
            start = b.add(b.mul(b.rem(t, tiles), height * abreast), covered)
            starts = [b.add(start, k * height) for k in range(abreast)]
            tile.row_of_tiles(bound, starts, height, columns // lanes, columns)
        covered += tiles * height * abreast


class _Tile:
    def __init__(self, b: Builder, region: Region, pattern: TransposePattern,
                 memory: Mapping[Value, str], target: Mapping[Value, str], outer: Sequence[Var],
                 lanes: int, ahead: int):
        """`ahead`: how many tiles along a row the source is prefetched; 0: not at all."""
        self.b, self.region, self.pattern = b, region, pattern
        self.memory, self.target, self.outer, self.lanes = memory, target, outer, lanes
        self.ahead = ahead

    def row_of_tiles(self, bound: dict[Var, Operand], rows: Sequence[Operand], height: int,
                     tiles: int, columns: int) -> None:
        """Tiles from the first column to the last, at each of some rows."""
        b, lanes = self.b, self.lanes
        if tiles:
            with b.loop(0, tiles) as k:
                if self.ahead and height == lanes:
                    self._prefetch(bound, rows[0], b.mul(k, lanes), columns)
                for row in rows:
                    self.one(bound, row, height, b.mul(k, lanes), lanes, columns)
        if columns > tiles * lanes:
            for row in rows:
                self.one(bound, row, height, b.const(tiles * lanes, b.index),
                         columns - tiles * lanes, columns)

    def one(self, bound: dict[Var, Operand], row: Operand, height: int, column: Operand,
            width: int, columns: int) -> None:
        """height x width elements: read as `width` vectors down, written as `height` across."""
        b, lanes, shape = self.b, self.lanes, self.pattern.shape
        down = Var("r", shape[self.pattern.along] - (lanes if height == lanes else height) + 1)
        across = Var("c", columns - width + 1)
        lane_down, lane_across = Var("i", height, kept=True), Var("j", width, kept=True)
        zero = b.const(0, b.index)
        bound = {**bound, down: row, across: column, lane_down: zero, lane_across: zero}
        base = Emitter(b, self.memory, bound, members=self.region.flat)
        reader = base.within(lane=lane_down, lanes=lanes, mask=self._mask(height))
        writer = base.within(lane=lane_across, lanes=lanes, mask=self._mask(width))
        vectors = [self._read(reader, self._at(Index.of(down) + Index.of(lane_down),
                                               Index.of(across) + j)) for j in range(width)]
        blank = b.const(0, self.pattern.source.dtype, lanes)
        rows = transposed(b, vectors + [blank] * (lanes - width))
        for i in range(height):
            at = self._at(Index.of(down) + i, Index.of(across) + Index.of(lane_across))
            scope = writer.within()
            source_position = source_at(self.region, self.pattern, at)
            scope.known[self.pattern.source, source_position, None] = rows[i]
            evaluate(scope, self.region.members, self.region, {self.region.outer: at},
                     self.target)

    def _prefetch(self, bound: dict[Var, Operand], row: Operand, column: Operand,
                  columns: int) -> None:
        """Prefetches the lines that a later tile reads: they are too far apart for a processor to
        foresee."""
        down = Var("r", self.pattern.shape[self.pattern.along] - self.lanes + 1)
        across = Var("c", columns - self.lanes + 1)
        e = Emitter(self.b, self.memory, {**bound, down: row, across: column})
        for j in range(self.lanes):
            at = source_at(self.region, self.pattern,
                           self._at(Index.of(down), Index.of(across) + j))
            e.prefetch(self.pattern.source, at + at.factor(across) * self.ahead * self.lanes)

    def _mask(self, count: int) -> Operand | None:
        b = self.b
        return None if count == self.lanes else b.lt(b.iota(self.lanes), count)

    def _at(self, row: Index, column: Index) -> Index:
        rest = iter([Index.of(v) for v in self.outer])
        shape = self.pattern.shape
        index = [row if k == self.pattern.along else next(rest) for k in range(len(shape) - 1)]
        return flatten([*index, column], shape)

    def _read(self, e: Emitter, at: Index) -> Operand:
        """A vector of the source. At the edges of a padded one, lanes lie outside of it: they are
        not read, and not used."""
        source, flat = self.pattern.source, source_at(self.region, self.pattern, at)
        low, high = flat.range
        if source not in e.memory or (low >= 0 and high < source.size):
            return e.element(source, unflatten(flat, source.shape))
        position = e.value(flat)
        inside = e.b.and_(e.b.ge(position, 0), e.b.lt(position, source.size))
        return e.load(source, flat, inside)


def transposed(b: Builder, rows: list[Operand]) -> list[Operand]:
    """Transposes n vectors of n lanes: lane j of vector i becomes lane i of vector j. Each round
    swaps halves of blocks between pairs of vectors, and then halves the block size."""
    n = len(rows)
    out = list(rows)
    step = n // 2
    while step:
        keep = tuple(k if not k & step else n + k - step for k in range(n))
        move = tuple(k + step if not k & step else n + k for k in range(n))
        for i in range(n):
            if not i & step:
                x, y = out[i], out[i + step]
                out[i], out[i + step] = b.shuffle(x, y, keep), b.shuffle(x, y, move)
        step //= 2
    return out
