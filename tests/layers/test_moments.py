"""Means and variances of normalizations: one pass, without loss by rounding."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from tests.cases.proposals import proposed, x
from ztorch import layers as L
from ztorch.dtypes import f32
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.layers.moments import moments_of, standardized_groups

random = np.random.default_rng(3)


def spread(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers whose mean is large, or of which some are far from the others."""
    numbers = random.normal(size=shape) * 0.1
    if kind == "far from 0":
        numbers += 5000
    elif kind == "a far row":
        numbers[:, 0] += 1000
    elif kind == "equal":
        numbers[...] = 1234.567
    return numbers.astype(np.float32)


@pytest.mark.parametrize("kind", ["plain", "far from 0", "a far row", "equal"])
@pytest.mark.parametrize(("shape", "axis"), [((5, 13, 7, 6), -1), ((3, 6, 13, 7), 1), ((2, 150, 4), -1)])
@pytest.mark.parametrize("groups", [1, 2, -1])
def test_groups(kind: str, shape: tuple[int, ...], axis: int, groups: int) -> None:
    data = spread(kind, shape)
    model = zt.Sequential([L.Input(shape[1:]), L.GroupNormalization(groups, axis=axis)])
    y = np.moveaxis(model.predict(data, verbose=0), axis, -1)
    last = np.moveaxis(data.astype(np.float64), axis, -1)
    grouped = last.reshape(shape[0], -1, last.shape[-1] if groups == -1 else groups,
                           1 if groups == -1 else last.shape[-1] // groups)
    centered = grouped - grouped.mean((1, 3), keepdims=True)
    true = centered / np.sqrt(centered.var((1, 3), keepdims=True) + 1e-3)
    rounding = 61 * 2**-24 * abs(true).max() if kind == "a far row" else 0  # as the docstring says
    np.testing.assert_allclose(y, true.reshape(y.shape), atol=2 * rounding + 2e-6)


@pytest.mark.parametrize("kind", ["plain", "far from 0", "a far row", "equal"])
@pytest.mark.parametrize(("shape", "axis"), [((130, 6), -1), ((7, 9, 5, 3), -1), ((5, 3, 8, 9), 1)])
def test_a_batch_and_its_gradient(kind: str, shape: tuple[int, ...], axis: int) -> None:
    torch = pytest.importorskip("torch")
    data, slope = spread(kind, shape), random.normal(size=shape).astype(np.float32)
    layer = L.BatchNormalization(axis=axis)
    theirs = torch.tensor(np.moveaxis(data, axis, 1), dtype=torch.float64, requires_grad=True)
    wanted = torch.nn.functional.batch_norm(theirs, None, None, training=True, eps=1e-3)
    (wanted * torch.tensor(np.moveaxis(slope, axis, 1))).sum().backward()

    def loss(t: zt.Tensor) -> zt.Tensor:
        return zt.ops.sum(layer(t, training=True) * slope)

    y = layer(zt.tensor(data), training=True).numpy()
    gradient = zt.grad(loss)(zt.tensor(data)).numpy()
    true, true_gradient = (np.moveaxis(t.detach().numpy(), 1, axis) for t in (wanted, theirs.grad))
    np.testing.assert_allclose(y, true, atol=3e-6 * max(1, abs(true).max()))
    np.testing.assert_allclose(gradient, true_gradient, atol=2e-5 * max(1, abs(true_gradient).max()))


@pytest.mark.parametrize("kind", ["plain", "far from 0", "a far row", "equal"])
@pytest.mark.parametrize(("shape", "axis"), [((130, 6), -1), ((31, 9, 5, 3), -1), ((35, 3, 8, 9), 1)])
@pytest.mark.parametrize("rows", [1, 3, 31])
def test_moments_of_the_first_rows(kind: str, shape: tuple[int, ...], axis: int, rows: int) -> None:
    """Rows that pad the last batch hold any numbers, and change nothing."""
    data, axis = spread(kind, shape), axis % len(shape)
    data[rows:] = -3e4
    axes = tuple(k for k in range(len(shape)) if k != axis)
    share = np.zeros((shape[0], *(1,) * (len(shape) - 1)), np.float32)
    share[:rows] = rows and shape[axis] / data[:rows].size
    v, weight = (leaf("input", name, a.shape, f32) for name, a in (("x", data), ("share", share)))
    moments = moments_of(v, axes, weight)
    roots = [moments.mean, moments.variance, moments.shifted - moments.apart]
    mean, second, rest = evaluate(roots, {v: data, weight: share})
    true = data[:rows].astype(np.float64)
    wanted, deviation = true.mean(axes, keepdims=True), true.std(axes, keepdims=True)
    rounding = 2**-22 * (61 * deviation + abs(wanted))  # as the docstring says
    assert (abs(mean - wanted) <= rounding).all()
    assert (abs(rest[:rows] - (true - wanted)) <= rounding + 2**-22 * abs(true - wanted)).all()
    np.testing.assert_allclose(second, deviation**2, rtol=2e-5, atol=1e-12)


def test_one_pass() -> None:
    """The squares do not wait for the mean, also where the last rows are padding."""
    v = x(130, 5, 6)
    for share in (None, leaf("input", "share", (130, 1, 1), f32)):
        assert "sums(1)" in proposed(moments_of(v, (0, 1), share).variance)
    assert standardized_groups(x(3, 5, 6), 2, 1e-3).shape == (3, 5, 6)
