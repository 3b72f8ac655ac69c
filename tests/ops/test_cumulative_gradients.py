"""Cumulative sums and their gradients, which are cumulative sums from the other end."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from ztorch import ops
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph

random = np.random.default_rng(8)


@pytest.mark.parametrize(("shape", "axis"), [
    ((16,), 0), ((17,), 0), ((3, 5), -1), ((2, 70, 3), 1), ((300, 7), 0), ((2, 1000), 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    x, slope = random.normal(size=(2, *shape)).astype(dtype)

    def loss(t: zt.Tensor) -> zt.Tensor:
        return ops.sum(ops.cumsum(t, axis) * slope)

    gradient = zt.grad(loss)(zt.tensor(x)).numpy()
    true = np.flip(np.cumsum(np.flip(slope.astype("float64"), axis), axis), axis)
    np.testing.assert_allclose(gradient, true, rtol=0,
                               atol=np.finfo(dtype).eps * 64 * np.abs(true).max())
    curvature = zt.grad(lambda t: ops.sum(zt.grad(
        lambda s: ops.sum(ops.cumsum(s, axis) ** 2))(t) * slope))(zt.tensor(x)).numpy()
    sums = 2 * np.cumsum(slope.astype("float64"), axis)
    twice = np.flip(np.cumsum(np.flip(sums, axis), axis), axis)
    np.testing.assert_allclose(curvature, twice, rtol=0,
                               atol=np.finfo(dtype).eps * 64 * np.abs(twice).max())


def test_a_gradient_takes_the_work_of_the_sums() -> None:
    """Not that of the derivative of each of their steps."""
    x, slope = (leaf("input", name, (4, 1000), "float32") for name in ("x", "slope"))
    sums = ops.cumsum(slope, 1)
    [gradient] = gradients(ops.sum(ops.cumsum(x, 1) * slope), [x])
    assert len(Graph({"y": gradient}).nodes()) <= len(Graph({"y": sums}).nodes()) + 6
