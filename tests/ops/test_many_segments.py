"""The largest and smallest rows of many segments, which sorted rows tell, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from ztorch import ops
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ops.segments import COMPARED_SEGMENTS

random = np.random.default_rng(11)
MANY = COMPARED_SEGMENTS + 6


def reference(x: np.ndarray, ids: np.ndarray, count: int, slope: np.ndarray,
              name: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows, and the gradient of a sum of them, which rows that are equal to them share."""
    combine, instead = {"segment_max": (np.max, -np.inf), "segment_min": (np.min, np.inf)}[name]
    y, gradient = np.full(slope.shape, instead), np.zeros_like(x)
    for k in range(count):
        rows = np.flatnonzero(ids == k)
        if len(rows):
            y[k] = combine(x[rows], axis=0)
            hit = x[rows] == y[k]
            gradient[rows] = hit / hit.sum(0) * slope[k]
    return y, gradient


@pytest.mark.parametrize("name", ["segment_max", "segment_min"])
@pytest.mark.parametrize(("rows", "count", "shape"), [
    (300, MANY, (3,)), (257, MANY, ()), (40, 3 * MANY, (2, 2)), (1, MANY, (2,)), (90, 5, (4,))])
def test_values_and_gradients(name: str, rows: int, count: int, shape: tuple[int, ...]) -> None:
    x = np.round(random.normal(size=(rows, *shape)), 1)  # several rows are equal
    ids = random.integers(-2, count + 3, rows).astype(np.int32)  # some are outside
    slope = random.normal(size=(count, *shape))
    of_segments = getattr(ops, name)

    def loss(t: zt.Tensor) -> zt.Tensor:
        y = of_segments(t, ids, count)
        return ops.sum(ops.where(ops.isfinite(y), y, 0.0) * slope)

    y, gradient = reference(x, ids, count, slope, name)
    np.testing.assert_array_equal(of_segments(zt.tensor(x), ids, count).numpy(), y)
    np.testing.assert_allclose(zt.grad(loss)(zt.tensor(x)).numpy(), gradient, atol=1e-15)


def test_integers_and_reductions_of_updates() -> None:
    x = random.integers(-9, 9, (200, 2)).astype(np.int32)
    ids = random.integers(0, MANY, 200).astype(np.int32)
    true = np.full((MANY, 2), -5, np.int32)
    np.maximum.at(true, ids, x)
    start = zt.tensor(np.full((MANY, 2), -5, np.int32))
    y = ops.scatter_update(start, ids[:, None], x, reduction="max")
    np.testing.assert_array_equal(y.numpy(), true)


def test_rows_are_not_compared_with_each_segment() -> None:
    x, ids = leaf("input", "x", (1000, 8), "float32"), leaf("input", "ids", (1000,), "int32")
    largest = max(v.size for v in Graph({"y": ops.segment_max(x, ids, MANY)}).nodes())
    assert largest < MANY * 1000, largest
