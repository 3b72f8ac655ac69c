"""The schedule of a matrix product on a processor: the sizes and order of its register tiles, and
how its operands are read."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.left_operand import AccessPattern, Run, equal_runs, plain, split
from ztorch.lower.cpu.strides import rows_in_l1, steps_ahead
from ztorch.lower.schedule import ProductSchedule
from ztorch.lower.tuning import (
    BLOCK_ITERATIONS,
    BLOCK_PANEL_BYTES,
    BLOCK_TILES,
    COPY_SHARE,
    FAR_BLOCK_TILES,
    FETCH_SHARE,
    FEW_SUMS,
    FEW_SUMS_CYCLES,
    HALF_VECTORS_GAIN,
    INTEGER_REGISTERS,
    INTEGER_UNROLL,
    K_UNROLL,
    L1_SHARE,
    L2_SHARE,
    LINE_BYTES,
    ONE_HEIGHT_CYCLES,
    ONE_HEIGHT_GAIN,
    ONE_ROW_STRIDE,
    OWN_ROWS_COST,
    OWN_ROWS_MIN,
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
    """The vector lanes of a product with n columns: the target's, or half of them if a full vector
    takes several cycles of a port and half vectors waste fewer lanes at the end of a row."""
    lanes, bits = limits.lanes(d), limits.processor.port_bits
    halves = 2 * math.ceil(n / lanes)
    if 8 * lanes * d.bytes > bits and math.ceil(2 * n / lanes) <= HALF_VECTORS_GAIN * halves:
        return lanes // 2
    return lanes


@functools.lru_cache(PRODUCTS_KEPT)
def choose(m: int, n: int, k: int, limits: Limits, d: DType, packed: bool = False,
           access: AccessPattern | None = None, panel: int = 0,
           distance: int = 0, own_rows: bool = False, far: bool = False,
           pack: bool = False, count: int = 1, batch: int = 1) -> ProductSchedule:
    """The schedule of an m x n x k product with the least estimated time.

    The time of a step along k is the maximum of four times: that of its multiply-adds, that of its
    loads, the latency of an addition, and the time to load its vectors of B from the L2 cache if
    the panel of B does not fit in the L1 cache.

    Args:
        m: Rows of A.
        n: Columns of B.
        k: Columns of A.
        limits: The machine.
        d: The dtype.
        packed: Whether B is packed, so that all panels but the last have the same width.
        access: The access pattern of A. Default: `None`, rows with one stride.
        panel: The width in vectors of the panels that B is packed in, of which a tile is a part
            or a multiple. Default: `0`, any width.
        distance: The row stride of B in bytes. Default: `0`, unknown.
        own_rows: Whether workers share rows if that takes little longer. Default: `False`.
        far: Whether B comes from an outer cache or from memory, although the L2 cache could hold
            it. Default: `False`.
        pack: Whether the first tile of a block copies the panel of B. Default: `False`.
        count: Products of these sizes that a tile computes together. Default: `1`.
        batch: Products that workers share. Default: `1`.
    """
    lanes, cpu = product_lanes(n, limits, d), limits.processor
    access = access or plain(m, k)
    # A copied panel has whole vectors, and tiles without a free register must prefetch.
    masks = 0 if pack or limits.mask_registers or n % lanes == 0 else 1
    ahead = 0 if pack else steps_ahead(distance, cpu)
    adds_apart = d.is_int and not limits.byte_dots  # a product waits in a register for its sum
    registers_max = limits.vector_registers - masks - (0 if ahead else SPARE_REGISTERS) - (
        INTEGER_REGISTERS if adds_apart else 0)
    best = functools.partial(
        _best_tile, m, n, k, limits, d, packed, access, panel, count, registers_max)
    time, rows, width = best()
    own = best(even=True) if own_rows and m >= OWN_ROWS_MIN else (math.inf, 1, 1)
    if own_rows := own[0] <= OWN_ROWS_COST * time:
        _, rows, width = own
    panel_bytes = k * width * count * lanes * d.bytes
    tiles = tiling(rows, width, m, n, lanes, packed, access)
    panels = math.ceil(n / (lanes * width))
    pack = pack and not own_rows and tiles.down > 1 and panel_bytes <= BLOCK_PANEL_BYTES
    l2_bytes, l3_bytes = int(cpu.l2_bytes * L2_SHARE), cpu.l3_bytes * COPY_SHARE
    fits = max(1, l2_bytes * m // (tiles.rows[0].size * access.elements * d.bytes))
    # The processor itself prefetches a panel that many tiles read in order, half a line at a time.
    streamed = packed and lanes * d.bytes < LINE_BYTES and tiles.down > BLOCK_TILES
    if own_rows:
        fits = 1
    elif pack:
        blocks = math.ceil(BLOCK_ITERATIONS / (panels * batch))
        fits = math.ceil(tiles.down / min(tiles.down // 2, blocks))
    elif k * n * count * d.bytes <= l2_bytes and not (far and m * k * d.bytes <= l2_bytes):
        iterations = tiles.down * panels
        fits = max(1, iterations // BLOCK_ITERATIONS) if tiles.down <= BLOCK_TILES else 1
    elif streamed and fits <= BLOCK_TILES and k * n * count * d.bytes > l3_bytes >= (
            FAR_BLOCK_TILES * rows * k * d.bytes):
        fits = FAR_BLOCK_TILES  # B comes from memory, once for each block; A from the L3 cache
    used = registers(rows, width * count) + access.shared_registers(rows) + masks
    full = rows > 1 and used > limits.vector_registers - SPARE_REGISTERS
    near = pack or m == 1 or streamed or panel_bytes <= cpu.l1_bytes * L1_SHARE
    return ProductSchedule(
        rows, width, block_rows=math.ceil(tiles.down / math.ceil(tiles.down / fits)), block_depth=0,
        block_pack=int(pack), prefetch=0 if near and not full else steps_ahead(distance, cpu),
        unroll=max(1, min(K_UNROLL, ONE_ROW_STRIDE // (panel * lanes * d.bytes)))
        if m == 1 and panel else INTEGER_UNROLL if adds_apart else K_UNROLL, epilogue_inline=1)


def _best_tile(m: int, n: int, k: int, limits: Limits, d: DType, packed: bool,
               access: AccessPattern, panel: int, count: int, registers_max: int,
               even: bool = False) -> tuple[float, int, int]:
    """The estimated cycles of products with their best register tile, and the tile's rows and
    vectors. With `even`, the number of row tiles is even; without such a tile, cycles are inf."""
    lanes, cpu = product_lanes(n, limits, d), limits.processor
    best: dict[int, tuple[float, int, int]] = {}  # by the number of different tile heights
    gain = TILING_GAIN if m > 1 else 1.0  # a single row waits for long runs of B
    most = min(m, rows_in_l1(access, d, cpu))
    vectors = math.ceil(n / lanes)
    widest = min(vectors, TILE_VECTORS_MAX // count)
    if m == 1 and k * n * count * d.bytes > cpu.l1_bytes:
        widest = min(widest, math.ceil(vectors / 2))  # two workers share a single row
    for rows in (h for h in access.heights if h <= most and not (even and math.ceil(m / h) % 2)):
        for width in range(1, widest + 1):
            used = registers(rows, width * count) + access.shared_registers(rows)
            if rows * width > 1 and used > registers_max:
                break
            if not whole_panels(width, panel):
                continue
            tiles = tiling(rows, width, m, n, lanes, packed, access)
            time = estimated_cycles(tiles, k, d, cpu, count, panel)
            for heights in {len(tiles.rows), 2}:
                if heights not in best or time < best[heights][0] * gain:
                    best[heights] = (time, rows, width)
    if not best:
        return math.inf, 1, 1
    if 1 in best and best[2][0] > best[1][0] * ONE_HEIGHT_GAIN and best[2][0] <= ONE_HEIGHT_CYCLES:
        return best[1]
    return best[2]


def whole_panels(width: int, panel: int) -> bool:
    """Whether a tile is a part of a panel or consists of whole panels; 0 stands for no panels.

    >>> [width for width in range(1, 10) if whole_panels(width, 4)]
    [1, 2, 4, 8]
    """
    return panel % width == 0 or width % panel == 0


def registers(rows: int, width: int) -> int:
    """The vector registers of a tile: its sums, a row of B, and one element of A. With a single
    row, B is a memory operand.

    >>> registers(6, 2), registers(1, 14)
    (15, 15)
    """
    return rows * width + (width if rows > 1 else 0) + 1


def estimated_cycles(tiles: Tiling, k: int, d: DType, cpu: Processor, count: int = 1,
                     panel: int = 0) -> float:
    """The estimated cycles of all tiles of `count` products with k steps. `panel` is the width in
    vectors of the panels that B is packed in."""
    vectors = sum(p.size * p.count for p in tiles.panels)
    return sum(r.tiles * p.count * _tile_time(r.size, p.size * count, k, tiles.lanes, d, cpu,
                                              (p.size if tiles.down > 1 else vectors) * count,
                                              panel > p.size)
               for r in tiles.rows for p in tiles.panels)


def product_cycles(m: int, n: int, k: int, limits: Limits, d: DType,
                   access: AccessPattern | None = None, distance: int = 0,
                   panel: int = 0) -> float:
    """The estimated cycles of a product with its best tiles. Without `access`, rows of A have one
    stride. Where the steps of A along k are a `distance` of bytes apart, of at least a cache line,
    each step of a tile loads a line of A. `panel` is the width in vectors of the panels that B may
    be packed in."""
    s, cpu = choose(m, n, k, limits, d, access=access, panel=panel), limits.processor
    tiles = tiling(s.tile_rows, s.tile_vectors, m, n, product_lanes(n, limits, d), access=access)
    cycles = estimated_cycles(tiles, k, d, cpu)
    if distance < LINE_BYTES or k * LINE_BYTES <= cpu.l1_bytes:
        return cycles
    line = LINE_BYTES * FETCH_SHARE / cpu.l2_bytes_per_cycle
    return cycles + line * k * tiles.down * sum(p.count for p in tiles.panels)


def copy_cycles(v: Value, cpu: Processor) -> float:
    """The estimated cycles to copy a value for a product that reads the copy."""
    near = v.nbytes <= cpu.l3_bytes * COPY_SHARE
    return 2 * v.nbytes / (cpu.outer_bytes_per_cycle if near else cpu.memory_bytes_per_cycle)


def _tile_time(rows: int, width: int, k: int, lanes: int, d: DType, cpu: Processor,
               between: int, is_part: bool) -> float:
    """The estimated cycles of one tile. Its panel of B is loaded from the L2 cache unless the
    vectors of B that are read `between` two uses of the panel fit in the L1 cache. If it is only a
    part of a packed panel, whole lines are loaded for it."""
    vector_bytes = lanes * d.bytes
    far = between * k * vector_bytes > cpu.l1_bytes * L1_SHARE
    step_bytes = width * vector_bytes
    if far and is_part:
        step_bytes = math.ceil(step_bytes / LINE_BYTES) * LINE_BYTES
    fetch = step_bytes / cpu.l2_bytes_per_cycle if far else 0.0
    issues = max(1.0, 8 * vector_bytes / cpu.port_bits)  # of a port for one vector
    sums = rows * width * issues
    # Addresses of rows beyond those that registers hold are loaded, too.
    loads = rows + max(0, rows - cpu.row_addresses) + width * issues
    step = max(sums / cpu.fma_ports, loads / cpu.load_ports, float(cpu.fma_cycles), fetch)
    if rows > 1 and sums < FEW_SUMS * cpu.fma_ports * cpu.fma_cycles:
        step += FEW_SUMS_CYCLES
    step += FETCH_SHARE * (rows * d.bytes + step_bytes) / cpu.l2_bytes_per_cycle
    return step * k + TILE_START_CYCLES + TILE_RESULT_CYCLES * rows * width


def tiling(rows: int, width: int, m: int, n: int, lanes: int, packed: bool = False,
           access: AccessPattern | None = None) -> Tiling:
    """The tiles of a product of m rows and n columns, of at most `rows` rows and `width` vectors,
    as equal as possible. If B is packed, only the last panel may be narrower. A partial vector is a
    separate panel, since only it needs a mask."""
    vectors, tail = math.ceil(n / lanes), n % lanes
    down = (access or plain(m, 1)).runs(m, rows)
    panels = (equal_runs if packed else split)(vectors, width)
    if tail:
        last = panels[-1]
        panels = (*panels[:-1], Run(last.start, last.size, last.count - 1),
                  Run(last.start + last.size * (last.count - 1), last.size, 1))
        panels = tuple(p for p in panels if p.count)
    return Tiling(down, panels, lanes, tail)
