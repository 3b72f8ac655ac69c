"""Graph rewrites that make every value fit a loop nest: what must be copied, what must be split."""

from __future__ import annotations

import functools
import math

from ztorch.graph.body import SHARED
from ztorch.graph.merging import merged
from ztorch.graph.narrow import narrowed
from ztorch.graph.op import OPS
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.ir.limits import GridLimits, Limits
from ztorch.ir.opcodes import identity
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import summing
from ztorch.lower.region import COPY, is_view, view_of
from ztorch.lower.tiling import pack, reading
from ztorch.lower.tuning import (
    L1_SHARE,
    L2_SHARE,
    LINE_BYTES,
    LONG_REDUCTION,
    LONG_REDUCTION_PARTS,
    LONG_REDUCTION_RESULTS,
    NARROW_ROWS,
    PACK_OVERFLOW,
    PACK_ROWS,
    PACK_ROWS_MIN,
    PAGE_BYTES,
    ROW_PADDING_BYTES,
    SPLIT_DEPTH,
    SPLIT_TILE,
    WINDOW_ROWS,
)
from ztorch.lower.turns import prepared_loop, prepared_result
from ztorch.machines.processors import Processor


def prepare(graph: Graph, limits: Limits, frozen: bool = False, fixed_role: str = "state",
            often: bool = True) -> Graph:
    """The graph with a kernel's own value wherever a root or a product needs one.

    With `frozen` leaves of `fixed_role` never change. If they are used `often` as well, packing
    them costs nothing.
    """
    graph = merged(graph)
    new: dict[Value, Value] = {}
    narrow: dict[Value, Value] = {}
    fixed: set[Value] = set()  # what is made of states alone
    for v in graph.nodes():
        if v.attrs.get("role") == fixed_role or (v.args and fixed.issuperset(v.args)):
            fixed.add(v)
        args = tuple(new[a] for a in v.args)
        out = v
        with layer_scope(v.layer):
            if args != v.args:
                out = Value(v.op, args, v.attrs, v.shape, v.dtype)
            if not all(x.size for x in (v, *v.args)):
                out = _empty(out)
            elif v.op.kind == "contract":
                out = _product(out, limits, frozen and v.args[1] in fixed, often, narrow)
            elif v.op.kind == "reduce":
                out = _reduction(out)
            elif v.op.kind == "loop":
                # a loop that may end early may take a single turn
                often_turned = v.attrs["body"].proceed is None
                inside = functools.partial(prepare, limits=limits, frozen=True, fixed_role=SHARED,
                                           often=often_turned)
                out = prepared_loop(out, inside, limits.buffer_align)
            elif v.op.kind == "result":
                out = prepared_result(v, args[0], limits.buffer_align)
        new[v] = out
    return merged(graph.with_roots(_roots([(new[r], r.layer) for r in graph.roots])))


def _empty(v: Value) -> Value:
    """What is made of no elements: nothing, or what its reduction starts from."""
    if not v.size or v.op.kind == "contract":
        return OPS.full(v.shape, 0, v.dtype)
    if v.op.kind == "reduce":
        return OPS.full(v.shape, identity(v.op.opcode, v.dtype), v.dtype)
    return v


def _roots(roots: list[tuple[Value, str]]) -> list[Value]:
    """Each root computed by a kernel, and none of them twice the same."""
    out: list[Value] = []
    for r, layer in roots:
        if r in out or r.op.kind in ("leaf", "result") or is_view(r):
            with layer_scope(layer):
                r = COPY(r)
        out.append(r)
    return out


def _product(v: Value, limits: Limits, fixed: bool, often: bool,
             narrow: dict[Value, Value]) -> Value:
    """`fixed`: the right operand is the same at every call; `often`: there are many calls."""
    a, b = v.args
    m, n, k = *v.shape[-2:], a.shape[-1]
    if n == 1:  # rows times one vector: sums along rows
        row = OPS.broadcast_to(OPS.reshape(_wide(b), (*b.shape[:-2], 1, k)), a.shape)
        y = _reduction(OPS.sum(OPS.mul(_wide(a), row), axis=-1))
        return OPS.cast(OPS.reshape(y, v.shape), v.dtype)
    if limits.grid is not None:
        return _on_grid(v, limits.grid, narrow)
    if limits.lanes(v.dtype) == 1:
        return v
    bare = _bare(a)
    way = reading(bare)
    if way is not None and max(way.heights) >= min(m, WINDOW_ROWS):
        a = bare
    elif reading(a) is None:
        a = COPY(a)
    if _whole_pages(a) and m * k * v.dtype.bytes > limits.processor.l2_bytes * L2_SHARE:
        a = _padded_rows(a)
    short = narrowed(b, narrow) if m <= NARROW_ROWS and fixed else None
    b = b if short is None else short
    size = k * n * b.dtype.bytes
    free = fixed and often and size > limits.processor.l1_bytes * L1_SHARE
    large = m >= PACK_ROWS and size > limits.processor.l2_bytes
    if b.rank == 2 and (free or large or _evicts_itself(b, m, limits.processor)):
        b = pack(b, m, limits, v.dtype)
    elif not _readable(b):
        b = COPY(b)
    return _product_of(v, a, b)


def _evicts_itself(b: Value, m: int, cpu: Processor) -> bool:
    """Whether tiles of m rows meet a panel of columns of the right operand so often that packing
    pays, since its rows push one another out of the second cache: rows whose distance shares a
    large power of two with the size of a way of the cache lie in few of its sets."""
    k, n = b.shape
    row = Var("k", k)
    base = view_of(b, (Index.of(row), Index()))
    distance = (base[1].factor(row) if base and _readable(b) else n) * b.dtype.bytes
    way = cpu.l2_bytes // cpu.l2_ways
    rows_held = cpu.l2_ways * way // max(LINE_BYTES, math.gcd(distance, way))
    return m >= PACK_ROWS_MIN and k > rows_held and m * k >= PACK_OVERFLOW * rows_held


def _product_of(v: Value, a: Value, b: Value) -> Value:
    """The same product of operands that may lie in fewer bits."""
    if (a, b) == v.args:
        return v
    attrs = v.attrs if {a.dtype, b.dtype} == {v.dtype} else {"dtype": v.dtype}
    return Value(v.op, (a, b), attrs, v.shape, v.dtype)


def _on_grid(v: Value, grid: GridLimits, narrow: dict[Value, Value]) -> Value:
    """One row times a matrix is a sum over rows of it. Where tiles are too few to occupy the
    machine and k is deep, parts of k are products of their own, added up afterwards: where it is
    cut depends on sizes only."""
    a, b = (_bare(x) for x in v.args)
    if (a, b) != v.args:
        v = Value(v.op, (a, b), v.attrs, v.shape, v.dtype)
    m, n, k = *v.shape[-2:], a.shape[-1]
    batch = v.shape[:-2]
    if m == 1:
        column = OPS.broadcast_to(OPS.reshape(_wide(a), (*batch, k, 1)), b.shape)
        y = _reduction(OPS.sum(OPS.mul(column, _wide(b)), axis=-2))
        return OPS.cast(OPS.reshape(y, v.shape), v.dtype)
    left, right = narrowed(a, narrow), narrowed(b, narrow)
    if left is not None and right is not None and left.dtype is right.dtype:
        a, b = left, right  # in 16 bits, as matrix units take them
        v = _product_of(v, a, b)
    tiles = math.ceil(m / SPLIT_TILE) * math.ceil(n / SPLIT_TILE) * math.prod(batch)
    wanted = min(k // SPLIT_DEPTH, grid.compute_units // tiles)
    parts = next((p for p in range(wanted, 1, -1) if k % p == 0), 1)
    if parts == 1:
        return v
    rank = len(batch)
    order = (*range(rank), rank + 1, rank, rank + 2)
    left = OPS.transpose(OPS.reshape(a, (*batch, m, parts, k // parts)), order)
    right = OPS.reshape(b, (*batch, parts, k // parts, n))
    return OPS.cast(OPS.sum(v.op(left, right, dtype=summing(v.dtype)), axis=-3), v.dtype)


def _wide(x: Value) -> Value:
    """x in the dtype that sums of it are held in."""
    return OPS.cast(x, summing(x.dtype))


def _bare(v: Value) -> Value:
    """The same with nothing written down on the way."""
    if not v.op.movement or len(v.args) != 1:
        return v
    [below] = v.args
    x = _bare(below)
    return x if v.op.written else v if x is below else Value(v.op, (x,), v.attrs, v.shape, v.dtype)


def _whole_pages(v: Value) -> bool:
    """Whether the rows of a matrix lie whole pages distance."""
    row = Var("row", v.shape[-2])
    base = view_of(v, (*(Index() for _ in v.shape[:-2]), Index.of(row), Index()))
    distance = base[1].factor(row) * v.dtype.bytes if base else 0
    return distance > 0 and distance % PAGE_BYTES == 0


def _padded_rows(v: Value) -> Value:
    """A copy whose rows are not whole pages apart: such rows would evict one another."""
    none = (0,) * v.rank
    wide = COPY(OPS.pad(v, none, (*none[:-1], ROW_PADDING_BYTES // v.dtype.bytes)))
    return OPS.slice(wide, none, (1,) * v.rank, v.shape)


def _readable(v: Value) -> bool:
    """Whether a product can read its right operand where it lies: at sums of loop variables, and
    with the columns side by side."""
    loops = [Index.of(Var(f"d{k}", n)) for k, n in enumerate(v.shape)]
    base = view_of(v, loops)
    if base is None or not base[1].is_affine:
        return False
    last = Var(f"d{v.rank - 1}", v.shape[-1])
    return v.shape[-1] == 1 or base[1].factor(last) == 1


def _reduction(v: Value) -> Value:
    """A long reduction to few results becomes two, so that workers can share the first. Where it
    is cut depends on sizes only, so every number of workers adds in the same order."""
    if v.op.kind != "reduce" or not v.size or v.args[0].size // v.size < LONG_REDUCTION or (
            v.size > LONG_REDUCTION_RESULTS):
        return v
    x, axes = v.args[0], v.attrs["axes"]
    longest = max(axes, key=lambda a: x.shape[a])
    n = x.shape[longest]
    parts = next((p for p in range(LONG_REDUCTION_PARTS, 1, -1) if n % p == 0), 1)
    if parts == 1:
        return v
    split = OPS.reshape(x, (*x.shape[:longest], parts, n // parts, *x.shape[longest + 1:]))
    first = tuple(a + (a >= longest) for a in axes)
    partial = v.op(_wide(split), axes=first)
    at = sum(1 for k in range(longest) if k not in axes)
    return OPS.cast(v.op(partial, axes=(at,)), v.dtype)


