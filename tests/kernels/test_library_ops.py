"""Ops of `zt.ops` in kernels: the compiled kernel gives what its Python source does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf

X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
POSITIVE = np.abs(X[0]) + 0.1
STARTS = np.array([0, 2, 2, 5], np.int32)


@zt.kernel
def of_elements(x, g):
    out = np.empty_like(x)
    for i, j in zt.grid(*x.shape):
        out[i, j] = zt.ops.gelu(x[i, j]) * zt.ops.rsqrt(g[j]) + zt.ops.clamp(x[i, j], -0.5, 0.5)
    return out


@zt.kernel
def of_rows(x):
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = zt.ops.softmax(x[i]) + zt.ops.logsumexp(x[i])
    return out


@zt.kernel
def of_pairs(x, y):
    """Arguments that depend on different loops."""
    out = np.empty((x.shape[0], y.shape[0]), x.dtype)
    for i in range(x.shape[0]):
        for j in range(y.shape[0]):
            out[i, j] = zt.ops.vecdot(x[i], y[j]) + zt.ops.maximum(x[i, j], i * 0.25)
    return out


@zt.kernel
def of_lists(x):
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = zt.ops.concat([x[i, 3:], zt.ops.flip(x[i, :3])])
    return out


@zt.kernel
def with_counters(x):
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = zt.ops.one_hot(i, x.shape[1]) * zt.ops.take(x[i], i)
    return out


@zt.kernel
def of_several_results(x):
    out, places = np.empty((x.shape[0], 2), x.dtype), np.empty((x.shape[0], 2), np.int32)
    for i in range(x.shape[0]):
        values, at = zt.ops.top_k(x[i], 2)
        out[i] = values
        places[i] = at
    return out, places


@zt.kernel
def in_order(x):
    out, state = np.empty_like(x), np.zeros(x.shape[1], x.dtype)
    for t in range(x.shape[0]):
        state = zt.ops.layer_norm(zt.ops.sigmoid(state + x[t]))
        out[t] = state
    return out


@zt.kernel
def of_threads(g):
    out = np.empty_like(g)
    for block, thread in zt.threads(2, 3):
        i = block * 3 + thread
        out[i] = zt.ops.gelu(g[i]) + zt.ops.logaddexp(g[i], i)
    return out


@zt.kernel
def of_different_lengths(starts, g):
    out = np.empty(starts.shape[0] - 1, g.dtype)
    for r in range(starts.shape[0] - 1):
        total = 0.0
        for k in range(starts[r], starts[r + 1]):
            total += zt.ops.softplus(g[k])
        out[r] = total
    return out


CASES: dict[str, tuple[Any, ...]] = {
    "elements": (of_elements, X, POSITIVE), "rows": (of_rows, X), "pairs": (of_pairs, X, X[::-1] + 1),
    "lists": (of_lists, X), "counters": (with_counters, X), "results": (of_several_results, X),
    "order": (in_order, X), "threads": (of_threads, X[0]),
    "lengths": (of_different_lengths, STARTS, X[0])}


@pytest.mark.parametrize("name", CASES)
def test_compiled_is_plain_python(name: str) -> None:
    kernel, *arrays = CASES[name]
    got, want = kernel(*arrays), kernel.debug(*arrays)
    for a, b in zip(*((y if isinstance(y, tuple) else (y,)) for y in (got, want)), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_integers_beside_floats_are_numbers_of_python() -> None:
    @zt.kernel
    def larger(x):
        out = np.empty_like(x)
        for i in range(x.shape[0]):
            out[i] = zt.ops.maximum(x[i], i)
        return out

    x = leaf("input", "x", (3,), "float32")
    y = larger.trace({"x": x})
    assert y.dtype == "float32"
    assert evaluate([y], {x: np.array([5, 0, 0], np.float32)})[0].tolist() == [5, 1, 2]


def test_gradient_is_that_of_the_op() -> None:
    def rows(x: Any) -> Any:
        return zt.ops.softmax(x) + zt.ops.logsumexp(x, axis=-1, keepdims=True)

    x = zt.tensor(X)
    ours, theirs = (zt.grad(lambda x, f=f: (f(x) ** 2).sum())(x).numpy() for f in (of_rows, rows))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
