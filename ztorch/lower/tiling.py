"""The schedule of a matrix product on a processor: how large its tiles are, in which order they
come, and how its operands are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.lower.index import Index, Quotient, Remainder, Var, flatten
from ztorch.lower.region import COPY, view_of
from ztorch.lower.tuning import (
    L1_SHARE,
    L2_SHARE,
    PREFETCH_STEPS,
    TILE_RESULT_CYCLES,
    TILE_ROWS_MAX,
    TILE_START_CYCLES,
    TILE_VECTORS_MAX,
    TILING_GAIN,
)


@dataclass(frozen=True)
class Run:
    """`count` equal tiles of `size` along one axis, from `start`."""

    start: int
    size: int
    count: int


@dataclass(frozen=True)
class Tiling:
    """The schedule of a product: tiles of rows and of vectors of columns, and their order.

    `block` tiles of rows are done for one panel of columns before the next panel: they stay in the
    second level of cache while panels pass by.
    """

    rows: tuple[Run, ...]
    panels: tuple[Run, ...]  # in vectors
    lanes: int
    tail: int  # columns in the last vector, where it is not whole; else 0
    block: int
    ahead: int  # how far rows of B are fetched ahead; 0 where they are close already


@dataclass(frozen=True)
class Reading:
    """How a product can read its left operand where it lies: `depths` are the loops along k, from
    the outermost, in which positions are sums; `heights` how many rows a tile may have for them to
    lie as far apart in every tile."""

    depths: tuple[int, ...]
    heights: tuple[int, ...]


def reading(left: Value) -> Reading | None:
    """The way to read the rows of a matrix, which may be windows of an image; None if there is
    none but a copy."""
    *batch, m, k = left.shape
    where = [Index.of(Var(f"b{a}", n)) for a, n in enumerate(batch)]
    depths = _depths(left, [*where, Index.of(Var("m", m))], [k])
    if depths is None:
        return None
    loops = [Var(f"k{a}", n) for a, n in enumerate(depths)]
    along = flatten([Index.of(v) for v in loops], depths)
    return Reading(depths, tuple(h for h in range(1, min(m, TILE_ROWS_MAX) + 1) if _even(
        left, where, h, along)))


def _depths(left: Value, at: list[Index], sizes: list[int]) -> tuple[int, ...] | None:
    """Loops along k, the outermost split again wherever it is counted in other units."""
    loops = [Var(f"k{a}", n) for a, n in enumerate(sizes)]
    base = view_of(left, (*at, flatten([Index.of(v) for v in loops], sizes)))
    if base is None:
        return tuple(sizes)
    parts = [a for a in base[1].parts if a.inner.mentions(loops[0])]
    if not parts:
        return None if any(a.inner.mentions(v) for a in base[1].parts for v in loops) else (
            tuple(sizes))
    inside = [*parts, *(b for a in parts for b in a.inner.parts)]
    units = {a.by for a in inside} | {sizes[0] // a.by for a in inside}
    for unit in sorted(units, reverse=True):
        if 1 < unit < sizes[0] and sizes[0] % unit == 0:
            found = _depths(left, at, [sizes[0] // unit, unit, *sizes[1:]])
            if found is not None:
                return found
    return None


def _even(left: Value, where: list[Index], height: int, along: Index) -> bool:
    """Whether rows of a tile lie the same way in every tile of that height."""
    tile, row = Var("t", left.shape[-2] // height), Var("r", height)
    base = view_of(left, (*where, Index.of(tile) * height + Index.of(row), along))
    return base is None or not any(
        a.inner.mentions(row) and not _only(a.inner, row) for a in base[1].parts)


def _only(index: Index, var: Var) -> bool:
    """Whether an index depends on nothing but one variable."""
    return all(a == var or (isinstance(a, (Quotient, Remainder)) and _only(a.inner, var))
               for a, _ in index.terms)


def split(total: int, most: int) -> tuple[Run, ...]:
    """As few tiles as possible, as equal as possible.

    >>> split(64, 14)
    (Run(start=0, size=13, count=4), Run(start=52, size=12, count=1))
    """
    tiles = math.ceil(total / most)
    size = math.ceil(total / tiles)
    large = total - tiles * (size - 1)
    runs = [Run(0, size, large), Run(large * size, size - 1, tiles - large)]
    return tuple(r for r in runs if r.count and r.size)


def _equal(total: int, size: int) -> tuple[Run, ...]:
    """Tiles of one size and a smaller last one."""
    whole = total // size
    runs = [Run(0, size, whole), Run(whole * size, total - whole * size, 1)]
    return tuple(r for r in runs if r.count and r.size)


def choose(m: int, n: int, k: int, limits: Limits, d: DType, packed: bool = False,
           heights: Sequence[int] = tuple(range(1, TILE_ROWS_MAX + 1))) -> Tiling:
    """The tiling with the least estimated time; `packed` keeps all panels but the last as wide.
    Tiles have one of the `heights`, and what is left at the end any.

    A step along k costs a tile the most of: rows * vectors multiply-adds and rows + vectors loads,
    two of each a cycle; the latency of the adds; and the way of the vectors of B from the second
    level of cache, unless its panel stays in the first. Accumulators, the vectors of B and one
    broadcast element of A must fit the registers; a single row takes B from memory.
    """
    lanes, element, cpu = limits.lanes(d), d.bytes, limits.processor
    vectors = math.ceil(n / lanes)
    cut = _equal if packed else split
    heights = [h for h in heights if h <= m]
    down = split if len(heights) == min(m, TILE_ROWS_MAX) else _equal
    best: tuple[float, int, int] | None = None
    for rows in heights:
        for wide in range(1, min(vectors, TILE_VECTORS_MAX) + 1):
            if rows * wide + (wide if rows > 1 else 0) + 1 > limits.vector_registers:
                break
            time = 0.0
            for r in down(m, rows):
                for p in cut(vectors, wide):
                    far = p.size * k * lanes * element > cpu.l1_bytes * L1_SHARE
                    fetch = p.size * lanes * element / cpu.l2_bytes_per_cycle if far else 0.0
                    step = max(r.size * p.size / cpu.fma_ports, (r.size + p.size) / cpu.load_ports,
                               float(cpu.fma_cycles), fetch)
                    time += r.count * p.count * (step * k + TILE_START_CYCLES
                                                 + TILE_RESULT_CYCLES * r.size * p.size)
            if best is None or time < best[0] * TILING_GAIN:
                best = (time, rows, wide)
    assert best is not None
    _, rows, wide = best
    tail = n % lanes
    panels = cut(vectors, wide)
    if tail and (panels[-1].count > 1 or len(panels) > 1):  # only the last panel needs a mask
        last = panels[-1]
        panels = (*panels[:-1], Run(last.start, last.size, last.count - 1),
                  Run(last.start + last.size * (last.count - 1), last.size, 1))
        panels = tuple(p for p in panels if p.count)
    tiles = down(m, rows)
    close = k * wide * lanes * element <= cpu.l1_bytes * L1_SHARE
    for_rows = int(cpu.l2_bytes * L2_SHARE)
    fits = max(1, for_rows // (tiles[0].size * k * element))
    block = fits if k * n * element > for_rows else 1
    return Tiling(tiles, panels, lanes, tail, block, 0 if close or m == 1 else PREFETCH_STEPS)


def pack(right: Value, m: int, limits: Limits, of: DType) -> Value:
    """The right operand of a product of dtype `of` with each panel of columns in one piece, seen
    as the same matrix."""
    k, n = right.shape
    tiling = choose(m, n, k, limits, of, packed=True)
    width = tiling.panels[0].size * tiling.lanes
    count = math.ceil(n / width)
    padded = OPS.pad(right, (0, 0), (0, count * width - n))
    panels = COPY(OPS.transpose(OPS.reshape(padded, (k, count, width)), (1, 0, 2)))
    whole = OPS.reshape(OPS.transpose(panels, (1, 0, 2)), (k, count * width))
    return OPS.slice(whole, (0, 0), (1, 1), (k, n))


def is_packed(right: Value) -> bool:
    """Whether the right operand is a view of what `pack` made."""
    base = view_of(right, [Index() for _ in right.shape])
    return base is not None and base[0].rank == 3 and right.rank == 2
