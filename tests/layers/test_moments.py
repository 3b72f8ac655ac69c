"""Means and variances of normalizations: one pass, without loss by rounding."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from tests.cases.proposals import proposed, x
from ztorch import layers as L
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


def test_one_pass() -> None:
    """The squares do not wait for the mean."""
    _, _, variance, _ = moments_of(x(130, 5, 6), (0, 1))
    assert "sums(1)" in proposed(variance)
    assert standardized_groups(x(3, 5, 6), 2, 1e-3).shape == (3, 5, 6)
