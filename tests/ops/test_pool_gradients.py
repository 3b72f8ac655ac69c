"""The gradient of max pools whose windows overlap, by windows and by elements, against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.parity import Job, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.rewrite import by_others
from ztorch.graph.value import Graph, Value

LIMITS = TARGETS["cuda:sm_90a"].limits
# The shape, and the size, the stride and the padding of windows.
CASES: dict[str, tuple] = {
    "3 by 2": ((2, 9, 8, 3), 3, 2, "same"),
    "3 by 1": ((1, 6, 5, 2), 3, 1, "valid"),
    "two sizes": ((1, 11, 7, 2), (5, 2), (2, 1), "valid"),
    "elements between windows": ((1, 12, 11, 2), (4, 2), (3, 3), "valid"),
    "one axis": ((2, 17, 3), 5, 3, "same"),
    "three axes": ((1, 5, 6, 5, 2), 3, 2, ((1, 0), (0, 1), (1, 1))),
}


def sloped(name: str) -> tuple[Graph, dict[Value, np.ndarray], np.ndarray]:
    """A graph with the gradient of a pool, its numbers, of which many are equal, and what it is."""
    shape, size, stride, padding = CASES[name]
    x = leaf("input", "x", shape, f32)
    y = ops.max_pool(x, size, stride, padding)
    slope = leaf("input", "slope", y.shape, f32)
    random = np.random.default_rng(4)
    feeds = {x: random.integers(0, 4, shape).astype(np.float32),
             slope: random.standard_normal(y.shape).astype(np.float32)}
    [result] = gradients(ops.sum(ops.mul(y, slope)), [x])
    return Graph({"y": result}), feeds, by_loops(feeds[x], feeds[slope], size, stride, padding)


def by_loops(x: np.ndarray, slope: np.ndarray, size: Any, stride: Any, padding: Any) -> np.ndarray:
    """Each window by itself: its largest elements share its slope."""
    count = x.ndim - 2
    sizes, strides = (np.broadcast_to(n, count) for n in (size, stride))
    low = [max(0, (n - 1) * s + k - m) // 2 if padding == "same" else padding[a][0] if padding != "valid" else 0
           for a, (n, m, k, s) in enumerate(zip(slope.shape[1:], x.shape[1:], sizes, strides, strict=False))]
    out = np.zeros(x.shape)
    for at in np.ndindex(slope.shape):
        window = (at[0], *(slice(max(i * s - a, 0), i * s - a + k)
                           for i, s, a, k in zip(at[1:-1], strides, low, sizes, strict=True)), at[-1])
        hits = x[window] == x[window].max()
        out[window] += hits * (slope[at] / hits.sum())
    return out


@together()
@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    """Of the graph, of its form for processors and that for others, and of kernels of a GPU."""
    graph, feeds, want = sloped(name)
    for form in (graph, by_others(graph, serial=True), by_others(graph)):
        [got] = evaluate([*form.outputs.values()], feeds)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
    np.testing.assert_allclose(interpreted(Job(graph, feeds), LIMITS)[0], want, rtol=0, atol=1e-5)


def test_second_gradients() -> None:
    """The gradient is linear in the slope: its own gradient picks the largest elements."""
    shape, size, stride, padding = CASES["3 by 2"]
    x, seen = leaf("input", "x", shape, f32), leaf("input", "seen", shape, f32)
    y = ops.max_pool(x, size, stride, padding)
    slope = leaf("input", "slope", y.shape, f32)
    [first] = gradients(ops.sum(ops.mul(y, slope)), [x])
    [second] = gradients(ops.sum(ops.mul(first, seen)), [slope])
    random = np.random.default_rng(6)
    feeds = {v: random.standard_normal(v.shape).astype(np.float32) for v in (x, seen, slope)}
    got, by_slope = evaluate([second, first], feeds)
    # first is linear in slope: <first(slope), seen> = <slope, second>
    np.testing.assert_allclose((got * feeds[slope]).sum(), (by_slope * feeds[seen]).sum(), rtol=1e-5)
    assert got.shape == y.shape and np.abs(got).max() > 0.1


def test_a_gpu_stores_no_windows() -> None:
    """Not one kernel of the gradient of a pool of 3 x 3 writes more than the image has."""
    x = leaf("input", "x", (8, 56, 56, 32), f32)
    y = ops.max_pool(x, 3, 2, "same")
    [slope] = gradients(ops.sum(ops.square(y)), [x])
    plan, _ = plan_of(Graph({"y": slope}), LIMITS)
    sizes = [m.size for step in plan.steps for m in step.kernel.memories if m.space == "global"]
    assert max(sizes) <= 8 * 57 * 57 * 32 and len(plan.steps) <= 4
