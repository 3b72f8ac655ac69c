"""Products with a large k as loops over blocks of k.

    the gradient of an LSTM's kernel over 1,000 steps of 16 rows: one loop of 32 iterations with 500
    steps along k each, in place of 8 products in separate kernels, each with copies of its operands

Each iteration multiplies one block of both operands and adds the result to the sum. A block of an
operand must be contiguous, as in weight gradients, where the left operand is a transposed matrix of
examples. Other products with a large k are split in `products.py`.
"""

from __future__ import annotations

import math
from typing import Any

from ztorch.dtypes import DType
from ztorch.graph.body import Body, carry_leaf, closed, results_of, slice_leaf
from ztorch.graph.loop import LOOP
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.ir.limits import Limits
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import summing
from ztorch.lower.region import certain, view_of
from ztorch.lower.rewrites.winograd import transformed_slope
from ztorch.lower.tuning import (
    DEEP_PRODUCT_SIZE,
    EVEN_PARTS,
    L2_SHARE,
    LINE_BYTES,
    LOOP_DEPTH,
    LOOP_LINES_SHARE,
    LOOP_PARTS,
    PRODUCT_DEPTH,
)


def loops_over_k(graph: Graph, limits: Limits) -> Graph:
    """The graph with products of large k as loops over blocks of k, if these are contiguous."""
    if limits.grid is not None:
        return graph
    new: dict[Value, Value] = {}
    for v in graph.nodes():
        new[v] = rebuilt(v, tuple(new[a] for a in v.args))
        if limits.lanes(v.dtype) > 1 and _is_deep_for_loop(v) and _is_loop(v, limits):
            with layer_scope(v.layer):
                new[v] = _in_short_vectors(new[v], limits) if limits.lanes(v.dtype) * (
                    v.dtype.bytes) < LINE_BYTES else _looped(new[v], LOOP_DEPTH)
    return graph.with_roots(new[r] for r in graph.roots)


def is_deep(v: Value) -> bool:
    """Whether a value is a product of two matrices whose k is worth splitting."""
    return (v.op.kind == "contract" and v.args[0].rank == v.args[1].rank == 2
            and v.args[0].shape[1] >= 2 * PRODUCT_DEPTH and min(v.shape) >= DEEP_PRODUCT_SIZE)


def _is_deep_for_loop(v: Value) -> bool:
    """Whether a product should be a loop over short blocks of k in one kernel. This includes
    products of smaller k whose operands are large compared with the result that a block updates.
    The stack of a loop, such as an LSTM's slopes, need not be that large: blocks of it are read in
    place, while a whole product may pack all of it."""
    if is_deep(v):
        return True
    if v.op.kind != "contract" or v.args[0].rank > 2 or v.args[1].rank > 2 or (
            min(v.shape) < DEEP_PRODUCT_SIZE):
        return False
    (m, n), k = v.shape, v.args[0].shape[1]
    return k >= LOOP_PARTS * max(LOOP_DEPTH, m, n) or (
        k > LOOP_DEPTH and k * (m + n) >= 2 * LOOP_PARTS * m * n and _is_stack(v.args[1]))


def _is_stack(b: Value) -> bool:
    """Whether the rows of a matrix are kept by a loop."""
    base = view_of(b, (Index.of(Var("row", b.shape[0])), Index.of(Var("column", b.shape[1]))))
    return base is not None and base[0].op.kind == "result"


def depth_of_parts(k: int) -> int:
    """The steps along k of each part; the last part may be shorter.

    >>> depth_of_parts(16_000)
    2000
    """
    return math.ceil(k / math.ceil(k / PRODUCT_DEPTH))


def in_sums(v: Value) -> tuple[DType, dict[str, Any]]:
    """The dtype in which parts of a product are added up, and the attributes of a part: they are
    rounded to 16 bits together."""
    d = summing(v.dtype)
    return d, v.attrs if d is v.dtype else {**v.attrs, "dtype": d}


def _is_loop(v: Value, limits: Limits) -> bool:
    """Whether a loop can sum a product of large k, and nothing better is known."""
    return _contiguous_along_k(v.args[0]) and transformed_slope(v, limits) is None


def _contiguous_along_k(a: Value) -> bool:
    """Whether the left operand is stored column by column, without repeated elements, so that a
    block of k is contiguous."""
    row, depth = Var("row", a.shape[0]), Var("k", a.shape[1])
    base = view_of(a, (Index.of(row), Index.of(depth)))
    return base is not None and a.size <= base[0].size and base[1].factor(row) == 1


def _cut_from(b: Value) -> tuple[Value, int]:
    """The matrix that the right operand is a range of columns of, and the first of these columns: a
    loop reads its rows in place. An operand that is no such range is its own matrix."""
    row, column = Index.of(Var("row", b.shape[0])), Index.of(Var("column", b.shape[1]))
    base = view_of(b, (row, column))
    if base is None or not certain(b, (row, column)):
        return b, 0
    matrix, at = base
    width, rest = divmod(matrix.size, b.shape[0])
    if rest or at != row * width + column + at.const:
        return b, 0
    return OPS.reshape(matrix, (b.shape[0], width)), at.const


def _in_short_vectors(v: Value, limits: Limits) -> Value:
    """The loop for vectors that are shorter than a cache line. A tile then reads a part of each
    line of the left operand. So its lines should stay in the L1 cache for the next tile, unless the
    result is too large to be updated so often. Where the left operand is copied, it is the smaller
    one: the result may be transposed."""
    (a, b), cpu = v.args, limits.processor
    depth = LOOP_DEPTH
    if v.nbytes <= cpu.l2_bytes * L2_SHARE:
        depth = min(depth, int(cpu.l1_bytes * LOOP_LINES_SHARE) // LINE_BYTES)
    if v.shape[0] <= v.shape[1] or not _contiguous_along_k(OPS.transpose(b)) or (
            _cut_from(b)[0].shape != b.shape):
        return _looped(v, depth)
    turned = Value(v.op, (OPS.transpose(b), OPS.transpose(a)), v.attrs, v.shape[::-1], v.dtype)
    return OPS.transpose(_looped(turned, depth))


def _looped(v: Value, depth: int) -> Value:
    """The product as a loop over blocks of at most `depth` steps along k, plus the product of the
    remaining steps."""
    a, (b, start) = v.args[0], _cut_from(v.args[1])
    k, n = a.shape[1], v.shape[1]
    d, attrs = in_sums(v)
    least = math.ceil(k / depth)
    even = next((parts for parts in range(least, EVEN_PARTS * least) if k % parts == 0), 0)
    size = k // even if even else math.ceil(k / least)
    trip_count = k // size
    # In a training step the right operand is computed last. It comes first here, so that the left
    # operand is copied after it.
    sequences = [OPS.reshape(x[:trip_count * size], (trip_count, size, x.shape[1]))
                 for x in (b, OPS.transpose(a))]
    total = OPS.full(v.shape, 0.0, d)
    carry, (right, left) = carry_leaf(total, 0), map(slice_leaf, sequences, (0, 1))
    part = Value(v.op, (OPS.transpose(left), right[:, start:start + n]), attrs, v.shape, d)
    body, shared = closed(Body(trip_count, False, (carry,), (right, left), (), (carry + part,), ()))
    [[total], _] = results_of(LOOP(total, *sequences, *shared, body=body))
    if rest := k - trip_count * size:
        left, right = OPS.transpose(OPS.transpose(a)[k - rest:]), v.args[1][k - rest:]
        total = total + Value(v.op, (left, right), attrs, v.shape, d)
    return OPS.cast(total, v.dtype)
