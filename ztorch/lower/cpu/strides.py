"""Strides of the operands of a product, and what the caches hold at them."""

from __future__ import annotations

import math

from ztorch.dtypes import DType
from ztorch.graph.body import SHARED, SLICE
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.left_operand import AccessPattern
from ztorch.lower.index import Index, Var
from ztorch.lower.region import view_of
from ztorch.lower.tuning import (
    BLOCK_PANEL_BYTES,
    FREE_WAYS,
    LINE_BYTES,
    PACK_BATCH_SHARE,
    PACK_DEPTH_PAGES,
    PACK_OVERFLOW,
    PACK_ROWS,
    PACK_ROWS_BLOCK,
    PACK_ROWS_BLOCK_PAGES,
    PACK_ROWS_MIN,
    PACK_ROWS_NEAR,
    PACK_ROWS_PAGES,
    PAGE_BYTES,
    PREFETCH_SHARE,
    PREFETCH_STEPS,
    TILE_ROWS_MAX,
)
from ztorch.machines.processors import Processor


def has_conflicts(access: AccessPattern, d: DType) -> bool:
    """Whether the rows of A are a multiple of the page size apart."""
    return access.row_step > 0 and access.row_step * d.bytes % PAGE_BYTES == 0


def rows_in_l1(access: AccessPattern, d: DType, cpu: Processor) -> int:
    """The most rows of a tile whose lines the L1 cache holds together: those of rows that are whole
    pages apart map to one set, and B needs some of its ways.

    >>> from dataclasses import replace
    >>> from ztorch.lower.cpu.left_operand import plain
    >>> from ztorch.dtypes import f32
    >>> from ztorch.machines.processors import PROCESSORS
    >>> pages = replace(plain(64, 1024), row_step=1024)
    >>> [rows_in_l1(pages, f32, PROCESSORS[name]) for name in ("zen4", "zen5")]
    [6, 10]
    """
    if not has_conflicts(access, d):
        return TILE_ROWS_MAX
    return max(1, lines_held(PAGE_BYTES, cpu) - FREE_WAYS)


def kept_for_iterations(right: Value, cpu: Processor) -> bool:
    """Whether every iteration of a loop multiplies by the same matrix, which fits in the L2 cache.
    Then each worker can read all of it. If workers share such products by rows, a worker goes on
    with rows that it computed itself; those of another one may be in caches of another die."""
    source = _source(right)
    return source is not None and source.attrs.get("role") == SHARED and (
        source.nbytes <= cpu.l2_bytes)


def comes_from_afar(right: Value) -> bool:
    """Whether a product reads its right operand for the first time: each iteration of a loop
    multiplies by another part of a sequence."""
    source = _source(right)
    return source is not None and source.attrs.get("role") == SLICE


def _source(right: Value) -> Value | None:
    """The buffer of a right operand."""
    base = view_of(right, [Index.of(Var(f"d{a}", n)) for a, n in enumerate(right.shape)])
    return None if base is None else base[0]


def steps_ahead(distance: int, cpu: Processor) -> int:
    """The prefetch distance of rows of B, in steps along k. `distance` is their stride in bytes.
    Prefetching more than a share of the lines that the L1 cache can hold at this stride would evict
    lines before they are used; the next step alone is not worth it.

    >>> from ztorch.machines.processors import PROCESSORS
    >>> [steps_ahead(n, PROCESSORS["zen4"]) for n in (2000, 2048, 4096)]
    [8, 2, 0]
    """
    steps = min(PREFETCH_STEPS, int(lines_held(distance, cpu) * PREFETCH_SHARE))
    return steps if steps > 1 else 0


def lines_held(distance: int, cpu: Processor) -> int:
    """The number of cache lines with a stride of `distance` bytes that the L1 cache can hold. Each
    way of it has the size of a page. A distance of 0 means that strides vary."""
    return cpu.l1_bytes // max(LINE_BYTES, math.gcd(distance or LINE_BYTES, PAGE_BYTES))


def row_distance(right: Value) -> int:
    """The row stride of a right operand in bytes; 0 if it is not constant."""
    row = Var("k", right.shape[-2])
    base = view_of(right, (*(Index() for _ in right.shape[:-2]), Index.of(row), Index()))
    return abs(base[1].factor(row)) * right.dtype.bytes if base and base[1].is_affine else 0


def step_distance(left: Value) -> int:
    """The distance of a left operand's first two elements along k, in bytes; 0 if it is unknown.

    >>> from ztorch.graph.op import OPS, leaf
    >>> x = leaf("input", "x", (8, 6), "float32")
    >>> step_distance(x), step_distance(OPS.transpose(x))
    (4, 24)
    """
    start = [Index() for _ in left.shape[:-1]]
    bases = [view_of(left, (*start, Index((), k))) for k in range(min(2, left.shape[-1]))]
    if len(bases) < 2 or bases[0] is None or bases[1] is None:
        return 0
    apart = bases[1][1] - bases[0][1]
    return 0 if apart.terms else abs(apart.const) * left.dtype.bytes


def has_bad_rows(b: Value, m: int, d: DType, limits: Limits) -> bool:
    """Whether packing a right operand pays for a product of m rows: it is large, or its rows cause
    conflict misses. A row stride that has a large power of two in common with the size of a cache
    way maps all rows of a panel to few sets, and each tile of rows reads the panel again. Vectors
    that are cache lines are read once for so many multiply-adds that the L2 cache keeps up.

    Args:
        b: The right operand.
        m: Rows of the product.
        d: The dtype of the product.
        limits: The machine.
    """
    (k, n), cpu = b.shape[-2:], limits.processor
    if m >= PACK_ROWS and b.nbytes > cpu.l2_bytes:
        return True
    distance = row_distance(b) if is_readable(b) else n * b.dtype.bytes
    if limits.lanes(d) * b.dtype.bytes >= LINE_BYTES:
        return False
    if m >= PACK_ROWS_NEAR and k > lines_held(distance, cpu):
        return True
    if distance % PAGE_BYTES == 0 and m >= PACK_ROWS_PAGES and k >= PACK_DEPTH_PAGES:
        return True
    way_bytes = cpu.l2_bytes // cpu.l2_ways
    rows_held: float = cpu.l2_ways * way_bytes // max(LINE_BYTES, math.gcd(distance, way_bytes))
    # Pages are allocated at random, so some sets fill up early. Wider vectors miss less often.
    rows_held *= limits.lanes(d) * b.dtype.bytes / LINE_BYTES
    return m >= PACK_ROWS_MIN and k > rows_held and m * k >= PACK_OVERFLOW * rows_held


def packs_in_block(b: Value, m: int, d: DType, limits: Limits) -> bool:
    """Whether the first tile of each column of tiles copies its panel of a right operand. The L2
    cache holds the rows of the left operand, so that one block has all of them, and L1 cannot hold
    the lines of a panel where they are.

    Args:
        b: The right operand.
        m: Rows of the product.
        d: The dtype of the product.
        limits: The machine.
    """
    k, cpu, vector_bytes = b.shape[-2], limits.processor, limits.lanes(d) * b.dtype.bytes
    too_large = m * k * d.bytes > cpu.l2_bytes or 2 * k * vector_bytes > BLOCK_PANEL_BYTES
    too_small = b.rank > 2 and k * b.shape[-1] * d.bytes < cpu.l2_bytes * PACK_BATCH_SHARE
    if too_large or too_small or not is_readable(b):
        return False
    distance = row_distance(b)
    least = PACK_ROWS_BLOCK if distance % PAGE_BYTES else PACK_ROWS_BLOCK_PAGES
    conflicts = vector_bytes < LINE_BYTES and k > lines_held(distance, cpu)
    return (conflicts and m >= least) or (b.rank == 2 and has_bad_rows(b, m, d, limits))


def offsets_of(v: Value) -> Index | None:
    """The offsets of a matrix's elements, if they are affine in its row and column."""
    base = view_of(v, [Index.of(Var(f"d{k}", n)) for k, n in enumerate(v.shape)])
    return base[1] if base is not None and base[1].is_affine else None


def is_readable(v: Value) -> bool:
    """Whether a product can read its right operand in place: offsets are affine and the elements of
    a row are contiguous."""
    at, n = offsets_of(v), v.shape[-1]
    return at is not None and (n == 1 or at.factor(Var(f"d{v.rank - 1}", n)) == 1)
