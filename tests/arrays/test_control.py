"""Loops and branches over tensors: eager, compiled, differentiated, vectorized, on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import COMPUTING, device
from ztorch.errors import ShapeError, Unsupported

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
W = np.array([0.5, -1.0, 2.0], np.float32)


def decayed(x: Any, w: Any) -> Any:
    """Uses a tensor from outside, a dict as state, and keeps two things of each turn."""
    last, kept = zt.ops.scan(
        lambda s, r: ({"h": s["h"] * w + r, "n": s["n"] + 1}, (s["h"], r * 2.0)),
        {"h": zt.ops.zeros_like(w), "n": zt.tensor(0, device=x.device, dtype="int32")}, x)
    return last["h"].sum() + (kept[0] * kept[1]).sum() + last["n"].astype("float32") * 0.5


def expected(x: np.ndarray, w: np.ndarray) -> float:
    h, total = np.zeros_like(w), 0.0
    for row in x:
        total += float((h * row * 2).sum())
        h = h * w + row
    return float(h.sum()) + total + len(x) * 0.5


@pytest.mark.parametrize("name", ["cpu", *COMPUTING])
def test_on_a_device(name: str) -> None:
    place = name if name == "cpu" else device(name).id
    x, w = zt.tensor(X, device=place), zt.tensor(W, device=place)
    want = expected(X.astype(np.float64), W.astype(np.float64))
    assert decayed(x, w).item() == pytest.approx(want, rel=1e-5)
    value, (dx, dw) = zt.value_and_grad(decayed, argnums=(0, 1))(x, w)
    assert value.item() == pytest.approx(want, rel=1e-5)
    for slope, array in ((dx, X), (dw, W)):
        for at in np.ndindex(array.shape):
            ends = []
            for sign in (1, -1):
                moved = [X.astype(np.float64), W.astype(np.float64)]
                moved[array is W][at] += sign * 1e-6
                ends.append(expected(*moved))
            assert slope.numpy()[at] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4,
                                                      abs=1e-4)


def test_compiled_and_vectorized_it_is_the_same() -> None:
    xs = zt.tensor(np.stack([X, X * 0.5, -X]))
    w = zt.tensor(W)
    many = zt.vmap(decayed, in_axes=(0, None))(xs, w).numpy()
    np.testing.assert_allclose(many, [expected(x, W) for x in (X, X * 0.5, -X)], rtol=1e-5)
    assert zt.compiled(decayed)(xs[0], w).item() == decayed(xs[0], w).item()
    slopes = zt.vmap(zt.grad(decayed), in_axes=(0, None))(xs, w).numpy()
    np.testing.assert_allclose(slopes[1], zt.grad(decayed)(xs[1], w).numpy(), rtol=1e-5)


def test_arrays_give_arrays() -> None:
    total, sums = zt.ops.scan(lambda s, x: (s + x, s), np.float32(0.0), X[:, 0])
    assert isinstance(sums, np.ndarray)
    np.testing.assert_allclose(total, X[:, 0].sum(), rtol=1e-6)
    assert isinstance(zt.ops.scan(lambda s, x: (s + x * zt.tensor(W), None),
                                  np.zeros(3, np.float32), X)[0], zt.Tensor)


def test_a_while_loop_and_a_branch() -> None:
    y = zt.ops.while_loop(lambda s: s["v"].sum() < 50.0, lambda s: {"v": s["v"] * zt.tensor(2.0)},
                          {"v": zt.tensor(np.abs(X[0]))}, max_steps=30)["v"]
    want = np.abs(X[0])
    while want.sum() < 50:
        want = want * 2
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-6)
    for sign in (1.0, -1.0):
        x = zt.tensor(X) * sign
        got = zt.ops.cond(x[0, 0] > 0, lambda x: x * 2.0, zt.ops.exp, x).numpy()
        np.testing.assert_allclose(got, X * sign * 2 if X[0, 0] * sign > 0 else np.exp(X * sign),
                                   rtol=1e-6)


def test_what_is_recorded_once_runs_again() -> None:
    """A second call compiles nothing, and sees new values of tensors from outside of the function."""
    for scale in (1.0, 2.0, 3.0):
        w = zt.tensor(W * np.float32(scale))
        assert decayed(zt.tensor(X), w).item() == pytest.approx(
            expected(X.astype(np.float64), W.astype(np.float64) * scale), rel=1e-5)


def test_wrong_calls() -> None:
    x = zt.tensor(X)
    with pytest.raises(ShapeError, match=r"float32\[3\] before an iteration, but float32\[\] after it"):
        zt.ops.scan(lambda s, r: (s.sum(), r), zt.zeros((3,)), x)
    with pytest.raises(Unsupported, match="draws random numbers or changes a state"):
        zt.ops.scan(lambda s, r: (s + zt.randn(3), r), zt.zeros((3,)), x)
