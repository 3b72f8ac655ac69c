"""Deep products as loops over parts of k.

    the gradient of an LSTM's kernel over 1,000 steps of 16 rows: one loop of 32 iterations, each of
    500 steps along k, where 8 products would be as many kernels, each with copies of its operands

Each iteration adds the product of a part of both operands to the sum. That needs operands whose
rows along k are contiguous, such as those of weight gradients: the left one is a matrix of
examples, transposed. Other deep products are cut up in `products.py`.
"""

from __future__ import annotations

import math

from ztorch.graph.body import Body, carry_leaf, closed, results_of, slice_leaf
from ztorch.graph.loop import LOOP
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.ir.limits import Limits
from ztorch.lower.index import Index, Var
from ztorch.lower.region import certain, view_of
from ztorch.lower.tuning import (
    DEEP_PRODUCT_SIZE,
    EVEN_PARTS,
    LOOP_DEPTH,
    LOOP_PARTS,
    PRODUCT_DEPTH,
)


def loops_over_k(graph: Graph, limits: Limits) -> Graph:
    """The graph with deep products as loops over parts of k, where operands are stored along k."""
    if limits.grid is not None:
        return graph
    new: dict[Value, Value] = {}
    for v in graph.nodes():
        new[v] = rebuilt(v, tuple(new[a] for a in v.args))
        if _is_deep_for_loop(v) and limits.lanes(v.dtype) > 1 and _contiguous_along_k(v.args[0]):
            with layer_scope(v.layer):
                new[v] = _looped(new[v])
    return graph.with_roots(new[r] for r in graph.roots)


def is_deep(v: Value) -> bool:
    """Whether a value is a product of two matrices that is better computed in parts of k."""
    return (v.op.kind == "contract" and v.args[0].rank == v.args[1].rank == 2
            and v.args[0].shape[1] >= 2 * PRODUCT_DEPTH and min(v.shape) >= DEEP_PRODUCT_SIZE)


def _is_deep_for_loop(v: Value) -> bool:
    """Whether a value is a product that is better computed in short parts of k, by one kernel: also
    one that is less deep, but whose operands are large beside the result that each part adds to."""
    return is_deep(v) or (
        v.op.kind == "contract" and v.args[0].rank == v.args[1].rank == 2
        and v.args[0].shape[1] >= LOOP_PARTS * max(LOOP_DEPTH, *v.shape)
        and min(v.shape) >= DEEP_PRODUCT_SIZE)


def depth_of_parts(k: int) -> int:
    """The steps along k of each part; the last one may have fewer.

    >>> depth_of_parts(16_000)
    2000
    """
    return math.ceil(k / math.ceil(k / PRODUCT_DEPTH))


def _contiguous_along_k(a: Value) -> bool:
    """Whether neighbouring rows of the left operand are adjacent in memory, each of them once."""
    row, depth = Var("row", a.shape[0]), Var("k", a.shape[1])
    base = view_of(a, (Index.of(row), Index.of(depth)))
    return base is not None and a.size <= base[0].size and base[1].factor(row) == 1


def _cut_from(b: Value) -> tuple[Value, int]:
    """The matrix whose columns the right operand is, from which column on: a loop reads a part of
    its rows in place. A matrix that is not part of another one is all of itself."""
    row, column = Index.of(Var("row", b.shape[0])), Index.of(Var("column", b.shape[1]))
    base = view_of(b, (row, column))
    if base is None or not certain(b, (row, column)):
        return b, 0
    matrix, at = base
    width = matrix.size // b.shape[0]
    if at != row * width + column + at.const:
        return b, 0
    return OPS.reshape(matrix, (b.shape[0], width)), at.const


def _looped(v: Value) -> Value:
    """The product as a loop, plus the product of the remaining steps along k."""
    a, (b, start) = v.args[0], _cut_from(v.args[1])
    k, n = a.shape[1], v.shape[1]
    least = math.ceil(k / LOOP_DEPTH)
    even = next((parts for parts in range(least, EVEN_PARTS * least) if k % parts == 0), 0)
    size = k // even if even else math.ceil(k / least)
    trip_count = k // size
    # The right operand comes last in the step, so it is named first: a copy of the left one is
    # made when it is there.
    sequences = [OPS.reshape(x[:trip_count * size], (trip_count, size, x.shape[1]))
                 for x in (b, OPS.transpose(a))]
    total = OPS.full(v.shape, 0.0, v.dtype)
    carry, (right, left) = carry_leaf(total, 0), map(slice_leaf, sequences, (0, 1))
    part = Value(v.op, (OPS.transpose(left), right[:, start:start + n]), v.attrs, v.shape, v.dtype)
    body, shared = closed(Body(trip_count, False, (carry,), (right, left), (), (carry + part,), ()))
    [[total], _] = results_of(LOOP(total, *sequences, *shared, body=body))
    if rest := k - trip_count * size:
        left, right = OPS.transpose(OPS.transpose(a)[k - rest:]), v.args[1][k - rest:]
        total = total + Value(v.op, (left, right), v.attrs, v.shape, v.dtype)
    return total
