"""Products of a few rows, or with one column, as sums: these read matrices where they lie."""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.strides import is_readable
from ztorch.lower.rewrites.split_reductions import split_reduction, widened
from ztorch.lower.tuning import SUMMED_ROWS


def sums_along_rows(v: Value, limits: Limits) -> Value | None:
    """A product of few rows with a transposed matrix as sums along the rows of that matrix, which
    are read where they are. None if copying the matrix takes less time."""
    a, b = v.args
    near = b.nbytes <= limits.processor.l2_bytes
    if a.shape[-2] > (1 if near else SUMMED_ROWS) or is_readable(b):
        return None
    rows = OPS.transpose(b, (*range(b.rank - 2), b.rank - 1, b.rank - 2))
    if not is_readable(rows):
        return None
    pairs = OPS.mul(OPS.expand_dims(widened(a), -2), OPS.expand_dims(widened(rows), -3))
    return OPS.cast(OPS.sum(pairs, axis=-1), v.dtype)


def sums_down_columns(v: Value) -> Value | None:
    """A transposed matrix times one vector as sums over the rows of the matrix as it lies: vectors
    hold neighbors, which are far apart along a column. None if it lies otherwise."""
    a, b = v.args
    lying = OPS.transpose(a, (*range(a.rank - 2), a.rank - 1, a.rank - 2))
    if a.shape[-2] == 1 or is_readable(a) or not is_readable(lying):
        return None
    y = split_reduction(OPS.sum(OPS.mul(widened(lying), widened(b)), axis=-2), None)
    return OPS.cast(OPS.reshape(y, v.shape), v.dtype)


def sums_over_k(a: Value, b: Value) -> Value:
    """A product as sums over the rows of its right operand, which neighboring threads read."""
    (*batch, m, k), rank = a.shape, a.rank - 2
    if m == 1:
        column = OPS.reshape(a, (*batch, k, 1))
        return OPS.sum(OPS.mul(OPS.broadcast_to(column, b.shape), b), axis=-2)
    return OPS.sum(OPS.mul(OPS.expand_dims(a, -1), OPS.expand_dims(b, rank)), axis=-2)
