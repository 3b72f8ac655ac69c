"""Sums and maxima of bags of rows of a table. Processors go through each bag, so that its rows are
read once and stored nowhere."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Op, Value
from ztorch.kernels import kernel, threads
from ztorch.ops.scattering import combined_at, summed_at

Shape = tuple[int, ...]


def totals_of_bags(table: Value, at: Value, starts: Value, highest: bool) -> Value:
    """The sum or the maximum of the rows of each bag, `(bags, width)`; zeros for one without rows.

    Args:
        table: Floats `(rows, width)`.
        at: The rows of all bags, one bag after the other: an integer vector.
        starts: Where each bag begins; the first at 0, each one not before the one before it.
        highest: Whether it is the maximum.
    """
    at = OPS.cast(OPS.clip(at, 0, table.shape[0] - 1), "int32")
    count = constant(np.array([at.shape[0]], np.int32))
    ends = OPS.concat(OPS.cast(OPS.clip(starts, 0, at.shape[0]), "int32"), count)
    return _BAGS(table, at, ends, highest=highest)


@kernel
def sums(table: Any, at: Any, ends: Any) -> Any:
    """The sum of each bag.

    Args:
        table: Floats `(rows, width)`.
        at: The rows of all bags.
        ends: The start of each bag, and the end of the last.
    """
    width = table.shape[1]
    out = np.zeros((ends.shape[0] - 1, width), table.dtype)
    for bag, _ in threads(ends.shape[0] - 1, 1):
        for k in range(ends[bag], ends[bag + 1]):
            row = at[k]
            for j in range(width):
                out[bag, j] += table[row, j]
    return out


@kernel
def maxima(table: Any, at: Any, ends: Any) -> Any:
    """The maximum of each bag; 0 for one without rows.

    Args:
        table: Floats `(rows, width)`.
        at: The rows of all bags.
        ends: The start of each bag, and the end of the last.
    """
    width = table.shape[1]
    out = np.zeros((ends.shape[0] - 1, width), table.dtype)
    for bag, _ in threads(ends.shape[0] - 1, 1):
        first, last = ends[bag], ends[bag + 1]
        if first < last:
            row = at[first]
            for j in range(width):
                out[bag, j] = table[row, j]
        for k in range(first + 1, last):
            row = at[k]
            for j in range(width):
                out[bag, j] = max(out[bag, j], table[row, j])
    return out


def _by_bags(table: Value, at: Value, ends: Value, highest: bool) -> Value:
    if table.dtype.bits < 32:  # sums of these are rounded at each step
        return _by_places(table, at, ends, highest)
    total: Value = (maxima if highest else sums)(table, at, ends)
    return total


def _by_places(table: Value, at: Value, ends: Value, highest: bool) -> Value:
    """The same for machines with many threads: each row is combined at the place of its bag."""
    rows, bag = OPS.take(table, at, 0)[None], _bag_of(at, ends)[None, :, None]
    total = combined_at("max" if highest else "add", rows, bag, ends.shape[0] - 1)[0]
    empty = OPS.expand_dims(OPS.equal(ends[1:], ends[:-1]), 1)
    return OPS.where(empty, 0.0, total) if highest else total


def _bag_of(at: Value, ends: Value) -> Value:
    """The number of the bag of each row."""
    return OPS.searchsorted(ends[:-1], OPS.iota(at.shape, 0), "right") - 1


def _infer(table: Value, at: Value, ends: Value, highest: bool) -> tuple[Shape, DType]:
    return (ends.shape[0] - 1, table.shape[1]), table.dtype


def _numpy(table: Any, at: Any, ends: Any, highest: bool) -> Any:
    total = np.zeros((len(ends) - 1, table.shape[1]), table.dtype)
    for bag, (first, last) in enumerate(pairwise(ends)):
        if first < last:
            rows = table[at[first:last]]
            total[bag] = rows.max(0) if highest else rows.sum(0)
    return total


def _grad(o: Any, g: Value, y: Value, table: Value, at: Value, ends: Value,
          highest: bool) -> tuple:
    """Each row has the gradient of its bag; the largest elements of a bag share it."""
    bag = _bag_of(at, ends)
    slopes = o.take(g, bag, 0)
    if highest:
        largest = o.cast(o.equal(o.take(table, at, 0), o.take(y, bag, 0)), g.dtype)
        count = summed_at(largest[None], bag[None, :, None], y.shape[0])[0]
        slopes = slopes * largest / o.take(o.maximum(count, 1.0), bag, 0)
    return summed_at(slopes[None], at[None, :, None], table.shape[0])[0], None, None


_BAGS = Op("bags", "order", _infer, _numpy, _grad, cost=64, others=_by_places, serial=_by_bags)
