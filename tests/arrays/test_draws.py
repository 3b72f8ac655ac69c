"""Random draws: the same numbers by every way to compute them, and few steps for each call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.arrays import realize as realizing

FIRST = 12  # draws of a gamma distribution, of which the first that is not rejected counts


def _drawn_at_once(alpha: np.ndarray, seed: int) -> np.ndarray:
    """Marsaglia and Tsang's method on all draws of each element, in float64."""
    z = zt.random.normal((2 * FIRST + 1, *alpha.shape), dtype="float64", seed=seed)
    z, u = z.numpy(), 0.5 * zt.ops.erfc(z * -0.5**0.5).numpy()
    d = np.where(alpha < 1, alpha + 1, alpha) - 1 / 3
    v = np.maximum(1 + z[:FIRST] / np.sqrt(9 * d), 0) ** 3
    logarithm = np.log(np.where(v > 0, v, 1))
    accepted = (v > 0) & (np.log(u[FIRST:-1]) < 0.5 * z[:FIRST] ** 2 + d * (1 - v + logarithm))
    chosen = np.take_along_axis(v, accepted.argmax(0)[None], 0)[0]
    return d * chosen * np.where(alpha < 1, u[-1] ** (1 / alpha), 1)


@pytest.mark.parametrize("shape", [(700,), (3, 211)])
def test_gamma_is_the_first_draw_that_is_not_rejected(shape: tuple[int, ...]) -> None:
    alpha = np.random.default_rng(0).uniform(0.2, 4.0, shape)
    x = zt.random.gamma(shape, alpha, dtype="float64", seed=9).numpy()
    np.testing.assert_allclose(x, _drawn_at_once(alpha, 9), rtol=1e-12)


def test_gradients_of_gamma_are_those_of_the_draw() -> None:
    alpha = np.random.default_rng(1).uniform(0.3, 4.0, 50)

    def total(a: Any) -> Any:
        return zt.random.gamma((50,), a, dtype="float64", seed=4).sum()

    slopes = zt.grad(total)(zt.tensor(alpha)).numpy()
    step = 1e-6
    for k in range(0, 50, 7):
        more, less = alpha.copy(), alpha.copy()
        more[k] += step
        less[k] -= step
        expected = (_drawn_at_once(more, 4).sum() - _drawn_at_once(less, 4).sum()) / (2 * step)
        np.testing.assert_allclose(slopes[k], expected, rtol=1e-5)


def test_draws_of_gamma_end_where_none_is_rejected() -> None:
    """Elements have a loop of their own, in one kernel."""
    lines = zt.explain(lambda a: zt.random.gamma((5000,), a), "f32[]", device="cpu:avx2")
    assert "recurrence lanes(8)" in lines


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="CPython's functions")
@pytest.mark.parametrize("draw", [
    lambda: zt.rand(7), lambda: zt.randn(2, 3), lambda: zt.permutation(9),
    lambda: zt.random.uniform((4,), 1.0, 2.0)], ids=["rand", "randn", "permutation", "uniform"])
def test_draws_of_a_kind_are_known_again(monkeypatch: pytest.MonkeyPatch,
                                         draw: Callable[[], zt.Tensor]) -> None:
    zt.set_seed(3)
    first = [draw().tolist() for _ in range(5)]
    assert all(a != b for a, b in pairwise(first))
    zt.set_seed(3)
    monkeypatch.setattr(realizing, "_compute", lambda roots: pytest.fail("the long way"))
    assert [draw().tolist() for _ in range(5)] == first


def test_lazy_draws_are_those_that_are_computed_at_once() -> None:
    zt.set_seed(5)
    at_once = [zt.rand(6).tolist() for _ in range(3)]
    zt.set_seed(5)
    later = [zt.rand(6) for _ in range(3)]
    assert [x.tolist() for x in reversed(later)] == at_once[::-1]
    zt.set_seed(5)
    compiled = zt.compiled(lambda: [zt.rand(6) for _ in range(2)])
    assert [x.tolist() for x in (*compiled(), zt.rand(6))] == at_once
