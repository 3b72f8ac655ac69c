"""The largest and smallest rows of many segments, their products, and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from ztorch import ops
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.rewrite import by_others
from ztorch.graph.value import Graph, topological

random = np.random.default_rng(11)
MANY = 70


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


@pytest.mark.parametrize("way", ["looked through", "sorted", "halved"])
@pytest.mark.parametrize("name", ["segment_max", "segment_min", "segment_prod", "segment_sum"])
def test_machines_without_tables(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each algorithm for them gives what tables do."""
    monkeypatch.setattr("ztorch.ops.scattering.FEW", 0)
    if way != "looked through":
        monkeypatch.setattr("ztorch.ops.scattering.SCAN_LIMIT", 0)
        monkeypatch.setattr("ztorch.ops.scattering.effort", lambda n: -(1 << 40))
    if way == "halved":
        monkeypatch.setattr("ztorch.ops.scattering.LONGEST", 7)
    x, ids = random.normal(size=(53, 3)), random.integers(-1, 12, 53).astype(np.int32)
    leaves = leaf("input", "x", x.shape, "float64"), leaf("input", "ids", ids.shape, "int32")
    y = getattr(ops, name)(*leaves, 11)
    others = by_others(Graph({"y": y})).outputs["y"]
    assert any(v.op.kind == "scatter" for v in topological([y]))
    assert not any(v.op.kind == "scatter" for v in topological([others]))
    numbers = dict(zip(leaves, (x, ids), strict=True))
    got, want = (evaluate([v], numbers)[0] for v in (others, y))
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-14)


def test_gradients_of_products() -> None:
    """Also where one number of a segment is zero, or several are, by finite differences."""
    x, ids = random.normal(size=(30, 2)), np.tile(np.array([0, 1, 2, 3, 9, -1], np.int32), 5)
    x[[0, 1, 7], 0] = 0.0
    slope, step = random.normal(size=(5, 2)), 1e-6

    def loss(t: zt.Tensor) -> zt.Tensor:
        return ops.sum(ops.segment_prod(t, ids, 5) * slope)

    got, want = zt.grad(loss)(zt.tensor(x)).numpy(), np.zeros_like(x)
    for k in np.ndindex(*x.shape):
        there = np.zeros_like(x)
        there[k] = step
        want[k] = (loss(zt.tensor(x + there)).item() - loss(zt.tensor(x - there)).item()) / (2 * step)
    np.testing.assert_allclose(got, want, atol=1e-7)
    assert want[0, 0] and want[1, 0] == 0.0  # one zero, and two
