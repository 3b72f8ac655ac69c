"""Random draws: the same numbers by every way to compute them, and few steps for each call."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.arrays import realize as realizing
from ztorch.dtypes import dtype
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, constant
from ztorch.ops.normals import normals, shares_below

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


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_shuffles_take_slices_in_the_order_of_random_words(axis: int) -> None:
    """One program, which treats no position as one from the end."""
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    words = zt.random.randint((x.shape[axis],), 0, (1 << 32) - 1, "uint32", seed=4).numpy()
    order = np.argsort(words, kind="stable")
    np.testing.assert_array_equal(zt.random.shuffle(x, axis, seed=4).numpy(), x.take(order, axis))


@pytest.mark.parametrize("d", ["float32", "float64"])
def test_shares_are_how_much_of_the_normal_distribution_is_below(d: str) -> None:
    """Also those of words at both ends and in the middle."""
    bits = 64 if d == "float64" else 32
    ends = [0, 1, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits - 1) + 1, (1 << bits) - 1]
    words = np.concatenate([np.array(ends, f"u{bits // 8}"), np.random.default_rng(2).integers(
        0, 1 << bits, 500, dtype=f"u{bits // 8}")])
    shares, z = (y.astype(np.float64) for y in evaluate(
        [shares_below(OPS, constant(words), dtype(d)), normals(constant(words), dtype(d))], {}))
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in z])
    np.testing.assert_allclose(shares, below, rtol=4e-6 if d == "float32" else 1e-13)
    assert shares.min() > 0 and shares.max() <= 1


@pytest.mark.parametrize("trials", [10, np.array([0, 3, 7, 10])[:, None]])
def test_binomial_numbers_count_the_successes_of_normal_draws(trials: Any) -> None:
    x = zt.random.binomial((4, 250), trials, 0.3, seed=9).numpy()
    z = zt.random.normal((10, 4, 250), seed=9).numpy().astype(np.float64)
    successes = 0.5 * zt.ops.erfc(z * -0.5**0.5) < 0.3
    possible = np.arange(10)[:, None, None] < np.broadcast_to(trials, (4, 1))
    np.testing.assert_array_equal(x, (successes & possible).sum(0))
    assert x.dtype == np.float32


def test_small_gammas_of_one_element_leave_others_as_they_are() -> None:
    """Powers are computed where there are such numbers; one that is rounded to 0 has no gradient of NaN."""
    alone = zt.random.gamma((64,), 2.0, seed=3).numpy()
    alpha = np.full(64, 2.0, np.float32)
    alpha[5] = 1e-4
    x = zt.random.gamma((64,), alpha, seed=3).numpy()
    np.testing.assert_array_equal(np.delete(x, 5), np.delete(alone, 5))
    slopes = zt.grad(lambda a: zt.random.gamma((64,), a, seed=3).sum())(zt.tensor(alpha)).numpy()
    assert np.isfinite(slopes).all() and 0 <= x[5] < 1e-3


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
