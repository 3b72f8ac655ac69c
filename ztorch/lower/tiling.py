"""The schedule of a matrix product on a processor: how large its tiles are, in which order they
come, and how its operands are read."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.lower.index import Index, Var
from ztorch.lower.left_operand import Reading, Run, equal_runs, plain, split
from ztorch.lower.region import COPY, view_of
from ztorch.lower.schedule import ProductSchedule
from ztorch.lower.tuning import (
    BLOCK_TILES,
    BLOCK_TURNS,
    FETCH_SHARE,
    HALF_VECTORS_GAIN,
    K_UNROLL,
    L1_SHARE,
    L2_SHARE,
    LINE_BYTES,
    ONE_HEIGHT_CYCLES,
    ONE_HEIGHT_GAIN,
    PAGE_BYTES,
    PREFETCH_SHARE,
    PREFETCH_STEPS,
    PRODUCTS_KEPT,
    SPARE_REGISTERS,
    TILE_RESULT_CYCLES,
    TILE_START_CYCLES,
    TILE_VECTORS_MAX,
    TILING_GAIN,
)
from ztorch.machines.processors import Processor


@dataclass(frozen=True)
class Tiling:
    """The register tiles of a product: runs of rows, and panels of columns."""

    rows: tuple[Run, ...]
    panels: tuple[Run, ...]  # of columns, in vectors
    lanes: int  # of a vector
    tail: int  # columns in the last vector, where it is not whole; else 0

    @property
    def down(self) -> int:
        """Tiles from the first row to the last."""
        return sum(run.tiles for run in self.rows)


def product_lanes(n: int, limits: Limits, d: DType) -> int:
    """Lanes of the vectors of a product with n columns: the target's, or half of them where a whole
    vector occupies a port several times and so many columns fill fewer halves than wholes have."""
    lanes, bits = limits.lanes(d), limits.processor.port_bits
    halves = 2 * math.ceil(n / lanes)
    if 8 * lanes * d.bytes > bits and math.ceil(2 * n / lanes) <= HALF_VECTORS_GAIN * halves:
        return lanes // 2
    return lanes


@functools.lru_cache(PRODUCTS_KEPT)
def choose(m: int, n: int, k: int, limits: Limits, d: DType, packed: bool = False,
           way: Reading | None = None, panel: int = 0, distance: int = 0) -> ProductSchedule:
    """The schedule with the least estimated time. `packed` keeps all panels but the last as wide;
    rows are read in this `way`, or all have one stride; where B is packed already, the width of
    tiles divides its `panel` of so many vectors. Rows of B are `distance` bytes apart, if known.

    A step along k costs a tile the most of: its multiply-adds; its loads; the latency of the adds;
    and the way of the vectors of B from the second cache, unless their panel stays in the first.
    """
    lanes, cpu = product_lanes(n, limits, d), limits.processor
    vectors = math.ceil(n / lanes)
    way = way or plain(m, k)
    best: dict[int, tuple[float, int, int]] = {}  # by how many heights tiles have, at most
    gain = TILING_GAIN if m > 1 else 1.0  # a single row waits for long runs of B
    for rows in (h for h in way.heights if h <= m):
        for wide in range(1, min(vectors, TILE_VECTORS_MAX) + 1):
            used = registers(rows, wide) + way.kept(rows)
            if rows * wide > 1 and used > limits.vector_registers - SPARE_REGISTERS:
                break
            if panel % wide:
                continue
            tiles = tiling(rows, wide, m, n, lanes, packed, way)
            time = estimated_cycles(tiles, k, d, cpu)
            for heights in {len(tiles.rows), 2}:
                if heights not in best or time < best[heights][0] * gain:
                    best[heights] = (time, rows, wide)
    time, rows, wide = best[2]
    if 1 in best and time > best[1][0] * ONE_HEIGHT_GAIN and time <= ONE_HEIGHT_CYCLES:
        _, rows, wide = best[1]
    close = k * wide * lanes * d.bytes <= cpu.l1_bytes * L1_SHARE
    tiles = tiling(rows, wide, m, n, lanes, packed, way)
    for_rows = int(cpu.l2_bytes * L2_SHARE)
    fits = max(1, for_rows * m // (tiles.rows[0].size * way.elements * d.bytes))
    if k * n * d.bytes <= for_rows:
        tile_count = tiles.down * math.ceil(vectors / wide)
        fits = max(1, tile_count // BLOCK_TURNS) if tiles.down <= BLOCK_TILES else 1
    return ProductSchedule(
        rows, wide, block_rows=math.ceil(tiles.down / math.ceil(tiles.down / fits)),
        prefetch=0 if close or m == 1 else steps_ahead(distance, cpu), unroll=K_UNROLL,
        epilogue_inline=1)


def steps_ahead(distance: int, cpu: Processor) -> int:
    """How many steps along k ahead rows of B are prefetched. The rows are `distance` bytes apart;
    more than a share of those that the first cache can hold would evict one another.

    >>> from ztorch.machines.processors import PROCESSORS
    >>> [steps_ahead(n, PROCESSORS["zen4"]) for n in (2000, 2048, 4096)]
    [8, 2, 1]
    """
    return max(1, min(PREFETCH_STEPS, int(lines_held(distance, cpu) * PREFETCH_SHARE)))


def lines_held(distance: int, cpu: Processor) -> int:
    """How many lines, `distance` bytes apart, the first cache can hold. Each of its ways is as
    large as a page. A distance of 0 means that it varies."""
    return cpu.l1_bytes // max(LINE_BYTES, math.gcd(distance or LINE_BYTES, PAGE_BYTES))


def row_distance(right: Value) -> int:
    """Bytes from a row of a right operand to the next in memory; 0 if their distances differ."""
    row = Var("k", right.shape[-2])
    base = view_of(right, (*(Index() for _ in right.shape[:-2]), Index.of(row), Index()))
    return abs(base[1].factor(row)) * right.dtype.bytes if base and base[1].is_affine else 0


def registers(rows: int, wide: int) -> int:
    """Vector registers of a tile: its sums, a row of B, and one element of A. A single row takes B
    from memory.

    >>> registers(6, 2), registers(1, 14)
    (15, 15)
    """
    return rows * wide + (wide if rows > 1 else 0) + 1


def estimated_cycles(tiles: Tiling, k: int, d: DType, cpu: Processor) -> float:
    """Estimated cycles of all tiles of a product with k steps."""
    vectors = sum(p.size * p.count for p in tiles.panels)
    return sum(r.tiles * p.count * _tile_time(r.size, p.size, k, tiles.lanes, d, cpu,
                                              p.size if tiles.down > 1 else vectors)
               for r in tiles.rows for p in tiles.panels)


def product_cycles(m: int, n: int, k: int, limits: Limits, d: DType,
                   way: Reading | None = None) -> float:
    """Estimated cycles of a product with its best tiles, whose rows all have one stride or are read
    in a `way`."""
    s = choose(m, n, k, limits, d, way=way)
    tiles = tiling(s.tile_rows, s.tile_vectors, m, n, product_lanes(n, limits, d), way=way)
    return estimated_cycles(tiles, k, d, limits.processor)


def _tile_time(rows: int, wide: int, k: int, lanes: int, d: DType, cpu: Processor,
               between: int) -> float:
    """Estimated cycles of one tile. B's panel comes from the second cache unless the first keeps
    it: the vectors of B that are read `between` one reading and the next must fit there."""
    vector_bytes = lanes * d.bytes
    far = between * k * vector_bytes > cpu.l1_bytes * L1_SHARE
    fetch = wide * vector_bytes / cpu.l2_bytes_per_cycle if far else 0.0
    issues = max(1.0, 8 * vector_bytes / cpu.port_bits)  # of a port for one vector
    step = max(rows * wide * issues / cpu.fma_ports, (rows + wide * issues) / cpu.load_ports,
               float(cpu.fma_cycles), fetch)
    step += FETCH_SHARE * (rows * d.bytes + wide * vector_bytes) / cpu.l2_bytes_per_cycle
    return step * k + TILE_START_CYCLES + TILE_RESULT_CYCLES * rows * wide


def tiling(rows: int, wide: int, m: int, n: int, lanes: int, packed: bool = False,
           way: Reading | None = None) -> Tiling:
    """The tiles of a product of m rows and n columns: `rows` high and `wide` vectors wide, where
    that may differ as equal as possible. Where B is packed, only the last panel may be smaller. A
    partial vector is a separate panel, since only it needs a mask."""
    vectors, tail = math.ceil(n / lanes), n % lanes
    down = (way or plain(m, 1)).runs(m, rows)
    panels = (equal_runs if packed else split)(vectors, wide)
    if tail:
        last = panels[-1]
        panels = (*panels[:-1], Run(last.start, last.size, last.count - 1),
                  Run(last.start + last.size * (last.count - 1), last.size, 1))
        panels = tuple(p for p in panels if p.count)
    return Tiling(down, panels, lanes, tail)


def panel_columns(right: Value, m: int, limits: Limits, of: DType) -> int:
    """The columns of a panel for a product of dtype `of` with m rows."""
    k, n = right.shape
    return choose(m, n, k, limits, of, packed=True).tile_vectors * product_lanes(n, limits, of)


def pack(right: Value, width: int) -> Value:
    """The right operand of a product with each panel of columns in one piece, seen as the same
    matrix."""
    k, n = right.shape
    count = math.ceil(n / width)
    padded = OPS.pad(right, (0, 0), (0, count * width - n))
    panels = COPY(OPS.transpose(OPS.reshape(padded, (k, count, width)), (1, 0, 2)))
    whole = OPS.reshape(OPS.transpose(panels, (1, 0, 2)), (k, count * width))
    return OPS.slice(whole, (0, 0), (1, 1), (k, n))


def packed_columns(right: Value) -> int:
    """The columns of each panel, if the right operand is a view of one that `pack` made; else 0."""
    k, n = right.shape[-2:]
    row = Var("k", k)
    base = view_of(right, [*(Index() for _ in right.shape[:-1]), Index.of(Var("n", n))])
    down = view_of(right, [*(Index() for _ in right.shape[:-2]), Index.of(row), Index()])
    if right.rank != 2 or base is None or down is None or base[0].rank != 3:
        return 0
    count, depth, width = base[0].shape
    stacked = depth == k and count == math.ceil(n / width) and down[1].factor(row) == width
    return width if stacked else 0
