"""Sums and maxima of bags of rows, against NumPy: on processors, and by the ops of other machines."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import HERE, Job, compiled
from ztorch import ops
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.rewrite import by_others
from ztorch.graph.value import Graph, Value
from ztorch.ops.kernel_bags import totals_of_bags

random = np.random.default_rng(8)
STARTS = np.array([0, 3, 3, 9], np.int64)  # the second bag has no rows
AT = np.array([4, 0, 4, 1, 2, 3, 3, 1, 0, 4, 2], np.int64)


def _expected(table: np.ndarray, highest: bool) -> np.ndarray:
    bags = [table[AT[first:last]] for first, last in zip(STARTS, [3, 3, 9, 11], strict=True)]
    return np.stack([np.zeros(table.shape[1]) if not len(bag) else bag.max(0) if highest else bag.sum(0)
                     for bag in bags])


def _leaves(width: int, d: str) -> tuple[list[Value], list[np.ndarray]]:
    data = [random.normal(size=(5, width)).astype(d), AT, STARTS]
    return [leaf("input", n, x.shape, str(x.dtype)) for n, x in zip("tas", data, strict=True)], data


@pytest.mark.parametrize("highest", [False, True])
@pytest.mark.parametrize("d, width", [("float32", 3), ("float32", 37), ("float64", 64), ("float16", 5)])
def test_bags(d: str, width: int, highest: bool) -> None:
    (table, at, starts), data = _leaves(width, d)
    y = totals_of_bags(table, at, starts, highest)
    expected = _expected(data[0].astype(np.float64), highest)
    rtol = {"float16": 1e-2, "float32": 1e-6, "float64": 1e-14}[d]
    feeds = dict(zip((table, at, starts), data, strict=True))
    for level in HERE:
        np.testing.assert_allclose(compiled(Job(Graph({"y": y}), feeds), level)[0], expected, rtol, rtol)
    np.testing.assert_allclose(evaluate(by_others(Graph({"y": y})).roots, feeds)[0], expected, rtol, rtol)


@pytest.mark.parametrize("highest", [False, True])
def test_gradients_of_bags(highest: bool) -> None:
    """Finite differences; a row in two bags, or twice in one, has the gradients of both."""
    (table, at, starts), data = _leaves(2, "float64")
    upstream = random.normal(size=(4, 2))
    [slope] = gradients(ops.sum(totals_of_bags(table, at, starts, highest) * upstream), [table])
    feeds = dict(zip((table, at, starts), data, strict=True))
    slopes = compiled(Job(Graph({"y": slope}), feeds), HERE[-1])[0]
    for place in np.ndindex(5, 2):
        more, less = data[0].copy(), data[0].copy()
        more[place] += 1e-6
        less[place] -= 1e-6
        difference = ((_expected(more, highest) - _expected(less, highest)) * upstream).sum() / 2e-6
        np.testing.assert_allclose(slopes[place], difference, rtol=1e-6, atol=1e-8)


def test_places_outside_are_the_ends() -> None:
    """Neither rows nor starts are read beyond their arrays."""
    (table, at, starts), data = _leaves(20, "float32")
    far, late = np.where(AT == 4, 1 << 40, AT), np.where(STARTS == 9, 1 << 40, STARTS)
    job = Job(Graph({"y": totals_of_bags(table, at, starts, False)}), {table: data[0], at: far, starts: late})
    table64 = data[0].astype(np.float64)
    expected = [table64[AT[:3]].sum(0), np.zeros(20), table64[AT[3:]].sum(0), np.zeros(20)]
    np.testing.assert_allclose(compiled(job, HERE[-1])[0], np.stack(expected), rtol=1e-6, atol=1e-6)
