"""Gradients where formulas have kinks or infinities: those of PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests import references
from tests.cases.grouping import together
from ztorch import ops
from ztorch.dtypes import f64
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf

INF = math.inf
POINTS = {
    "erfc": ("special.erfc", [0.0, -0.0, 0.3, -2.0, INF, -INF]),
    "erfinv": ("special.erfinv", [0.0, -0.0, 0.3, -0.99, 1.0, -1.0]),
    "hard_tanh": ("nn.functional.hardtanh", [-1.0, 1.0, 0.5, 2.0, -INF]),
    "soft_shrink": ("nn.functional.softshrink", [0.5, -0.5, 0.0, 0.6, INF]),
    "hard_shrink": ("nn.functional.hardshrink", [0.5, -0.5, 0.0, 0.6]),
    "relu6": ("nn.functional.relu6", [0.0, 6.0, 3.0]),
    "abs": ("abs", [0.0, -0.0, -1.0]),
}


@together()
@pytest.mark.parametrize("name", POINTS)
def test_at_odd_points(name: str) -> None:
    torch = references.torch()
    path, points = POINTS[name]
    function = torch
    for part in path.split("."):
        function = getattr(function, part)
    theirs = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    function(theirs).sum().backward()
    x = leaf("input", "x", (len(points),), f64)
    [slope] = evaluate(gradients(getattr(ops, name)(x), [x]), {x: np.array(points)})
    np.testing.assert_allclose(slope, theirs.grad.numpy(), rtol=1e-12)


def test_the_cube_root_is_steep_at_zero() -> None:
    x = leaf("input", "x", (4,), f64)
    [slope] = evaluate(gradients(ops.cbrt(x), [x]), {x: np.array([0.0, -0.0, -8.0, 27.0])})
    np.testing.assert_allclose(slope, [INF, INF, 1 / 12, 1 / 27], rtol=1e-12)


def test_a_limit_passes_the_whole_gradient() -> None:
    torch = references.torch()
    points = [np.array([-2.0, -1.0, 0.3, 1.0, 2.0, INF]), np.full(6, -1.0), np.full(6, 1.0)]
    theirs = [torch.tensor(p, requires_grad=True) for p in points]
    torch.clamp(*theirs).sum().backward()
    leaves = [leaf("input", n, (6,), f64) for n in ("x", "low", "high")]
    feeds = dict(zip(leaves, points, strict=True))
    slopes = evaluate(gradients(ops.clip(*leaves), leaves), feeds)
    np.testing.assert_array_equal(slopes, [t.grad.numpy() for t in theirs])
    [slope] = evaluate(gradients(ops.clip(leaves[0], -1, 1), leaves[:1]), feeds)
    np.testing.assert_array_equal(slope, theirs[0].grad.numpy())


def test_the_slope_of_sinc_near_zero() -> None:
    x, points = leaf("input", "x", (5,), f64), np.array([0.0, 1e-9, -1e-4, 1e-3, 0.5])
    y, slope = evaluate([ops.sinc(x), *gradients(ops.sinc(x), [x])], {x: points})
    near = -math.pi**2 * points / 3 + math.pi**4 * points**3 / 30
    np.testing.assert_allclose(slope, [*near[:4], -4 / math.pi], rtol=1e-11)
    np.testing.assert_allclose(y, np.sinc(points), rtol=1e-15)


@pytest.mark.parametrize("order", [0.5, 1, 2, 3, INF])
def test_norms_of_zeros(order: float) -> None:
    torch = references.torch()
    rows = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [2.0, -1.0, 2.0]])
    theirs = torch.tensor(rows, requires_grad=True)
    torch.linalg.vector_norm(theirs, order, dim=1).sum().backward()
    x = leaf("input", "x", rows.shape, f64)
    [slope] = evaluate(gradients(ops.norm(x, order, axis=1), [x]), {x: rows})
    np.testing.assert_allclose(slope, theirs.grad.numpy(), rtol=1e-12)


def test_the_slope_of_a_slope() -> None:
    x = leaf("input", "x", (3,), f64)
    points = np.array([0.0, 0.3, -0.7])
    [slope] = gradients(ops.erfinv(x), [x])
    y, curve = evaluate([ops.erfinv(x), *gradients(slope, [x])], {x: points})
    np.testing.assert_allclose(curve, math.pi / 2 * y * np.exp(2 * y * y), rtol=1e-12)
