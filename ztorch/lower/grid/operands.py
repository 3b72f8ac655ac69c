"""The layout of a matrix product's operands in memory, for tiles that read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ztorch.dtypes import DType, i32
from ztorch.graph.value import Value
from ztorch.ir.kernel import SWIZZLE_LINE
from ztorch.ir.limits import Limits
from ztorch.lower.grid.epilogue import Block
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import proper, vector_start
from ztorch.lower.region import is_view, traced, view_of
from ztorch.lower.tuning import COPY_BYTES


def contiguous_along_k(product: Value, side: int) -> bool:
    """Whether contiguous elements of an operand are neighbors along k: all of them, or groups of
    two or three, such as the channels at one position of a window."""
    operand, k = product.args[side], product.args[0].shape[-1]
    axes = [Var(f"d{i}", n) for i, n in enumerate(operand.shape)]
    base = view_of(operand, [Index.of(v) for v in axes])
    axis = axes[-1] if side == 0 else axes[-2]
    return base is not None and (base[1].factor(axis) == 1 or any(
        k % n == 0 and vector_start(base[1], axis, n) is not None for n in (2, 3)))


def border(v: Value, index: Sequence[Index]) -> list[tuple[Index, int, int]] | None:
    """The indices that must be in range for a chain of views to read its base; elements outside are
    zeros. None if the chain has other values there."""
    tests: list[tuple[Index, int, int]] = []
    while is_view(v):
        trace = traced(v, index)
        if not v.op.movement or len(trace.reads) != 1 or (trace.computed and not trace.bounds):
            return None
        ends = iter(trace.bounds)
        tests += [(i, low, high) for (i, low), (_, high) in zip(ends, ends, strict=True)]
        v, at = trace.reads[0]
        index = proper(at, v.shape)
    return tests


def has_border(product: Value, side: int) -> bool:
    """Whether an operand is read through a border of zeros."""
    operand = product.args[side]
    return bool(border(operand, [Index.of(Var(f"d{i}", n)) for i, n in enumerate(operand.shape)]))


def contiguous(product: Value, side: int, tile: Block, widths: Sequence[int],
               bordered: bool = False) -> int:
    """The first of `widths` for which vectors of an operand are contiguous, aligned, and entirely
    inside or outside the operand; 1 if there is none. `bordered`: the operand may have borders of
    zeros, and the last vector of a line along the tile may go on into what is between lines, since
    no result is computed from it."""
    operand, along_k = product.args[side], contiguous_along_k(product, side)
    loops = [Var(f"d{i}", size) for i, size in enumerate(operand.shape)]
    index = [Index.of(v) for v in loops]
    base = view_of(operand, index)
    tests = border(operand, index)
    if base is None or tests is None or (tests and not bordered):
        return 1
    axis = loops[-1 if along_k == (side == 0) else -2]
    step = tile.depth if along_k else tile.rows if side == 0 else tile.columns
    goes_on = bordered and not along_k and not tests and base[1].is_affine
    extent = 0 if goes_on else axis.extent
    for n in widths:
        first = vector_start(base[1], axis, n) if n > 1 and axis.extent >= n else None
        if first is not None and not any(f % n for f in (
                step, extent, base[0].size, *(f for _, f in first.terms), first.const)
        ) and all(_is_uniform(i, axis, n) for i, _, _ in tests):
            return n
    return 1


def _is_uniform(index: Index, axis: Var, n: int) -> bool:
    """Whether an index is the same for n neighbors along an axis, from every multiple of n on."""
    block = Index.of(Var(axis.name, axis.extent // n)) * n
    return len({index.replace({axis: block + i}) for i in range(n)}) == 1


def load_width(product: Value, side: int, tile: Block, limits: Limits) -> int:
    """The elements of an operand that a thread loads at once: the machine's load width, half of it,
    or 1. Half the width pays only if every thread still has elements to load, or if the machine can
    read as vectors only what was stored as vectors.
    """
    grid, length = limits.grid, tile.rows if side == 0 else tile.columns
    assert grid is not None
    widest, stores_vectors = grid.load_width, not grid.scalar_stores_readable_as_vectors
    busy = length * tile.depth >= widest // 2 * tile.threads  # all threads, at half the width
    widths = (widest, widest // 2) if stores_vectors or busy else (widest,)
    return contiguous(product, side, tile, widths)


def strip_registers(product: Value, tile: Block, limits: Limits) -> int:
    """32-bit registers for a thread's parts of both strips before they are stored."""
    total = 0
    for side, length in enumerate((tile.rows, tile.columns)):
        n = load_width(product, side, tile, limits)
        loads = math.ceil(length * tile.depth / (n * tile.threads))
        total += loads * math.ceil(n * product.args[side].dtype.bits / i32.bits)
    return total


def narrow_loads(product: Value, tile: Block, limits: Limits) -> int:
    """The loads of fewer elements than the machine's load width that a thread makes for both
    strips."""
    grid, total = limits.grid, 0
    assert grid is not None
    for side, length in enumerate((tile.rows, tile.columns)):
        n = load_width(product, side, tile, limits)
        total += math.ceil(length * tile.depth / (n * tile.threads)) if n < grid.load_width else 0
    return total


def copy_width(product: Value, side: int, tile: Block, of: DType) -> int:
    """The elements that one asynchronous copy transfers; 0 if the operand cannot be copied so."""
    if product.args[side].dtype != of:
        return 0
    n = contiguous(product, side, tile, [size // of.bytes for size in COPY_BYTES], bordered=True)
    return n if n * of.bytes in COPY_BYTES else 0


def is_copied(product: Value, side: int, of: DType) -> bool:
    """Whether threads can copy an operand asynchronously, for tiles of whole lines."""
    tile = Block(*[SWIZZLE_LINE // of.bytes] * 3)
    return copy_width(product, side, tile, of) > 0
