"""Matrices whose row stride is a multiple of the page size. The lines of their rows map to the
same few sets of the L1 cache, so those of one tile cause conflict misses. Longer rows avoid that.

    attention of 1,024 positions: scores and weights of 64 x 1024 are in rows of 1,040 numbers
"""

from __future__ import annotations

import math

from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, layer_scope, topological
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.left_operand import access_pattern
from ztorch.lower.cpu.strides import has_conflicts
from ztorch.lower.cpu.tiling import copy_cycles, product_cycles
from ztorch.lower.insets import INSET
from ztorch.lower.region import COPY, is_view
from ztorch.lower.tuning import (
    COPY_GAIN,
    L2_SHARE,
    PAGE_BYTES,
    REGION_MEMBERS_MAX,
    ROW_PADDING_BYTES,
)


def pays_to_pad(a: Value, v: Value, limits: Limits) -> bool:
    """Whether a product reads a left operand whose rows are whole pages apart faster from a copy
    with other rows: in place, tiles have few rows."""
    (m, n), k, cpu, access = v.shape[-2:], a.shape[-1], limits.processor, access_pattern(a)
    if access is None or not has_conflicts(access, a.dtype):
        return False
    if access.period < m:  # a sequence, whose iterations are contiguous
        return m * k * a.dtype.bytes > cpu.l2_bytes
    copied = product_cycles(m, n, k, limits, v.dtype) + copy_cycles(a, cpu) / math.prod(
        v.shape[:-2])
    return m * k * a.dtype.bytes > cpu.l2_bytes * L2_SHARE and (
        copied < COPY_GAIN * product_cycles(m, n, k, limits, v.dtype, access))


def padded_rows(v: Value, padded: dict[Value, Value]) -> Value:
    """The operand with padded rows, if a kernel stores it in any case.

    Args:
        v: A left operand.
        padded: Values with padded rows, by the original value; new ones are added.
    """
    if v.op.name == "transpose":
        [x] = v.args
        source = padded_rows(x, padded)
        return v if source is x else rebuilt(v, (source,))
    if is_view(v) or v.op is COPY or v.op.kind not in ("map", "reduce", "contract") or (
            v.op.partial or v.rank < 2 or v.shape[-1] * v.dtype.bytes % PAGE_BYTES):
        return v
    if v not in padded:
        padded[v] = _in_longer_rows(v)
    return padded[v]


def _in_longer_rows(v: Value) -> Value:
    """A view of the value, which its kernel stores in longer rows."""
    shape = (*v.shape[:-1], v.shape[-1] + ROW_PADDING_BYTES // v.dtype.bytes)
    origin = (0,) * v.rank
    return OPS.slice(INSET(v, shape=shape, low=origin), origin, (1,) * v.rank, v.shape)


def with_padded_results(graph: Graph) -> Graph:
    """The graph with results of products in longer rows, if their rows are then reduced: tiles
    store such a result, and another kernel reads it."""
    padded = {v.args[0] for v in graph.nodes() if v.op.kind == "reduce"
              and v.attrs["axes"] == (v.args[0].rank - 1,) and _is_tile_result(v.args[0])}
    padded.difference_update(graph.roots)
    if not padded:
        return graph
    new: dict[Value, Value] = {}
    for v in graph.nodes():
        out = rebuilt(v, tuple(new[a] for a in v.args))
        with layer_scope(v.layer):
            new[v] = _in_longer_rows(out) if v in padded else out
    return graph.with_roots(new[r] for r in graph.roots)


def _is_tile_result(v: Value) -> bool:
    """Whether tiles of a product store a value whose row stride is a multiple of the page size:
    it is the epilogue of a product, without a reduction between."""
    if v.rank < 2 or v.shape[-2] < 2 or v.shape[-1] * v.dtype.bytes % PAGE_BYTES:
        return False
    epilogue, visited = [v], set[Value]()
    ends: list[Value] = []  # where the elementwise work begins
    while epilogue:
        below = epilogue.pop()
        if below not in visited:
            visited.add(below)
            if below.op.kind == "map" and len(visited) <= REGION_MEMBERS_MAX:
                epilogue += below.args
            elif below.op.kind != "leaf":
                ends.append(below)
    return any(p.op.kind == "contract" and p.shape == v.shape and p not in topological(
        [end for end in ends if end is not p]) for p in ends)


def padded_copy(v: Value) -> Value:
    """A copy whose row stride is not a multiple of the page size."""
    if v.shape[-1] * v.dtype.bytes % PAGE_BYTES:
        return COPY(v)
    origin = (0,) * v.rank
    padded = COPY(OPS.pad(v, origin, (*origin[:-1], ROW_PADDING_BYTES // v.dtype.bytes)))
    return OPS.slice(padded, origin, (1,) * v.rank, v.shape)
