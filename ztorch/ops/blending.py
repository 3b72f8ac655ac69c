"""Weighted sums of a few elements along an axis, as images are resized: each new element blends its
neighbors, at places that are known when a program is compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.batching import Examples, per_example
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Op, Value

Shape = tuple[int, ...]

# Most elements that one blends, each with code of its own, and the least number of elements for
# each of them. Otherwise a product takes less time, although it multiplies by zeros.
BLENDED_MAX = 32
ELEMENTS_PER_TERM = 4


def blend(x: Value, matrix: np.ndarray, axis: int) -> Value:
    """Sums of elements along an axis.

    Args:
        x: A tensor of floats.
        matrix: The weight of each element, a column, in each new one, a row.
        axis: The axis, from 0 on.
    """
    before, n, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1:]
    flat = OPS.reshape(x, (math.prod(before), n, math.prod(after)))
    if _is_sparse(matrix) and _is_sparse(matrix.T):
        y = _blended(flat, *_tables(matrix, x.dtype), *_tables(matrix.T, x.dtype))
    else:
        y = OPS.matmul(constant(matrix, x.dtype), flat)
    return OPS.reshape(y, (*before, len(matrix), *after))


def _is_sparse(matrix: np.ndarray) -> bool:
    terms = int(np.count_nonzero(matrix, 1).max(initial=0))
    return 0 < terms <= min(BLENDED_MAX, matrix.shape[1] // ELEMENTS_PER_TERM)


def _tables(matrix: np.ndarray, d: DType) -> tuple[Value, Value]:
    """The places and weights of the elements that each new one blends, (terms, rows). Rows with
    fewer than the others repeat an element with weight 0."""
    terms = int(np.count_nonzero(matrix, 1).max())
    places = np.argsort(matrix == 0, 1, kind="stable")[:, :terms]  # the others first, in order
    weights = np.take_along_axis(matrix, places, 1)
    places = np.where(weights == 0, places[:, :1], places)
    return constant(places.T.astype(np.int32)), constant(weights.T, d)


def _blended(x: Value, places: Value, weights: Value, back: Value, shares: Value) -> Value:
    y = _BLEND(OPS.stop_gradient(x), places, weights)
    return _BLENDED(y, x, places, weights, back, shares)


def _infer(x: Value, places: Value, weights: Value) -> tuple[Shape, DType]:
    return (x.shape[0], places.shape[1], x.shape[2]), x.dtype


def _numpy(x: Any, places: Any, weights: Any) -> Any:
    return sum(x[:, at] * weight[:, None] for at, weight in zip(places, weights, strict=True))


def _body(e: Any, index: Any) -> Any:
    outer, row, inner = index
    total = None
    for term in range(e.shape(1)[0]):
        at = e.index(e.read(1, (term, row)), e.shape(0)[1])
        part = e.b.mul(e.read(0, (outer, at, inner)), e.read(2, (term, row)))
        total = part if total is None else e.b.add(total, part)
    return total


def _batch(one: Value, many: Examples) -> Value:
    """With the same tables for all examples, they form more outer elements."""
    images = [x for x, batched in zip(many.args, many.batched, strict=True) if batched]
    tables = many.args[len(images):]
    if many.batched != (True,) * len(images) + (False,) * len(tables) or (
            len(images) + len(tables) != len(one.args) or one.args[len(images)].rank != 2):
        return per_example(one, many)
    flat = [OPS.reshape(x, (math.prod(x.shape[:2]), *x.shape[2:])) for x in images]
    y = one.op(*flat, *tables)
    return OPS.reshape(y, (many.count, -1, *y.shape[1:]))


def _blended_grad(o: Any, g: Value, y: Value, result: Value, x: Value, places: Value,
                  weights: Value, back: Value, shares: Value) -> tuple:
    return g, _blended(g, back, shares, places, weights), None, None, None, None


_BLEND = Op("blend", "map", _infer, _numpy, lambda o, g, y, *args: (None,) * len(args), _body,
            cost=8, batch=_batch)
# The result, with what its gradient depends on: the sums of the transposed matrix.
_BLENDED = Op("blended", "map", lambda result, *args: (result.shape, result.dtype),
              numpy=lambda result, *args: result, grad=_blended_grad,
              body=lambda e, index: e.read(0, index), movement=True, alias=True, batch=_batch)
