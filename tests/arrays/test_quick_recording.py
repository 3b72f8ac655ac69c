"""Calls that were recorded before are recorded by native functions, one for each op."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.arrays.node import TensorNode
from ztorch.arrays.quick_recording import INDEXING, recorder, recorder_of
from ztorch.arrays.recording import MAX_DEPTH
from ztorch.backends import python_calls
from ztorch.errors import ShapeError

X = np.random.default_rng(0).uniform(1, 2, (4, 6)).astype(np.float32)
OPS = zt.ops

CASES: dict[str, tuple[str, Callable[[Any], Any], Any]] = {  # an op, a call of it, NumPy's result
    "operator": ("add", lambda x: x + x, X + X),
    "number": ("mul", lambda x: x * 2.5, X * np.float32(2.5)),
    "reflected": ("sub", lambda x: 3 - x, 3 - X),
    "function": ("maximum", lambda x: OPS.maximum(x, 1.5), np.maximum(X, np.float32(1.5))),
    "number first": ("minimum", lambda x: OPS.minimum(1.5, x), np.minimum(X, np.float32(1.5))),
    "attribute": ("max", lambda x: OPS.max(x, 1), X.max(1)),
    "keyword": ("min", lambda x: OPS.min(x, axis=0), X.min(0)),
    "method": ("argmax", lambda x: x.argmax(1), X.argmax(1)),
    "list": ("concat", lambda x: OPS.concat([x, x, x]), np.concatenate([X, X, X])),
    "list and axis": ("concat", lambda x: OPS.concat([x, x], 1), np.concatenate([X, X], 1)),
    "three": ("where", lambda x: OPS.where(x > 1.5, x, -x), np.where(X > 1.5, X, -X)),
    "integer": (INDEXING, lambda x: x[2], X[2]),
    "slice": (INDEXING, lambda x: x[1:3], X[1:3])}
# The same of ops that return several tensors.
SEVERAL: dict[str, tuple[str, Callable[[Any], Any], Any]] = {
    "top_k": ("top_k", lambda x: OPS.top_k(x, 2), (-np.sort(-X, 1)[:, :2], np.argsort(-X, 1)[:, :2])),
    "split": ("split", lambda x: OPS.split(x, 3, axis=1), np.split(X, 3, axis=1)),
    "one": ("unstack", lambda x: OPS.unstack(x[:1]), [X[0]]),
    "unstack": ("unstack", lambda x: OPS.unstack(x), [*X]),
    "meshgrid": ("meshgrid", lambda x: OPS.meshgrid(x[0], x[1]), np.meshgrid(X[0], X[1]))}


@pytest.mark.parametrize("name", CASES)
def test_it_records_the_same_graph_as_the_general_path(name: str) -> None:
    op, f, true = CASES[name]
    x = zt.tensor(X, device="cpu")
    for _ in range(3):
        np.testing.assert_array_equal(f(x).numpy(), true)
    if sys.implementation.name == "cpython":
        assert recorder(op) is not None
    seen = f(x).node
    assert seen.block is None and seen.depth >= 1
    with zt.lazy(False):
        assert f(x).node.block is not None


@pytest.mark.parametrize("name", SEVERAL)
def test_several_results_are_computed_together_as_far_as_they_are_used(name: str) -> None:
    op, f, true = SEVERAL[name]
    x = zt.tensor(X, device="cpu")
    for kept in (slice(None), slice(None, 1), slice(1, None), slice(None), slice(None, 1)):
        for _ in range(3):
            tensors = f(x)
            assert type(tensors) is tuple and len(tensors) == len(true)
            tensors = tensors[kept]  # others are dropped
            for got, want in zip(tensors, true[kept], strict=True):
                np.testing.assert_array_equal(got.numpy(), want)
                assert all(t.node.block is not None for t in tensors)
    if sys.implementation.name == "cpython":
        assert recorder(op) is not None
    first, *others = f(x)
    assert first.node.block is None and [t.node.index for t in others] == [*range(1, len(true))]
    total = first.sum() + sum(t.sum() for t in others)
    assert total.item() == pytest.approx(sum(np.sum(t, dtype=np.float64) for t in true))
    with zt.lazy(False):
        assert all(t.node.block is not None for t in f(x))


def test_other_arguments_are_left_to_the_general_path() -> None:
    x = zt.tensor(X, device="cpu")
    for _ in range(3):
        OPS.max(x, 1)
    quick = recorder("max")
    if quick is None:
        pytest.skip("no native functions here")
    assert isinstance(quick(x, 1), zt.Tensor)
    for args, attrs in (((x, 0), {}), ((x, 1.0), {}), ((x, True), {}), ((x,), {"axis": 1}), ((x, [1]), {}),
                        ((X, 1), {}), ((), {}), ((x, x), {})):
        assert quick(*args, **attrs) is NotImplemented, (args, attrs)
    with pytest.raises(ShapeError):
        OPS.max(x, 2)
    for _ in range(3):
        OPS.concat([x, x])
    joins = recorder("concat")
    assert joins is not None and isinstance(joins([x, x]), zt.Tensor) and isinstance(joins(x, x), zt.Tensor)


def test_reference_counts_are_exact() -> None:
    x = zt.tensor(X, device="cpu")
    calls = [lambda: x + x, lambda: OPS.max(x, axis=1), lambda: OPS.concat([x, x]), lambda: x[1], lambda: x.sum(0),
             lambda: OPS.maximum(x, x[0] if x.ndim > 9 else X), lambda: OPS.top_k(x, 2)[1], lambda: OPS.unstack(x)[3]]
    for f in calls:
        for _ in range(3):
            node = f().node
    counted = [x.node, x.node.spec, node.call, node.spec, TensorNode, None, 0, "max"]
    before = [sys.getrefcount(o) for o in counted]
    for f in calls:
        for _ in range(1000):
            f()
    after = [sys.getrefcount(o) for o in counted]
    assert max(abs(b - a) for a, b in zip(after, before, strict=True)) < 100


def test_a_function_keeps_what_it_points_to_where_threads_make_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_calls, "_method", python_calls._method.__wrapped__)  # each makes its own
    function = recorder_of({}, "add", 3)
    assert function is not None
    parts = [x for part in gc.get_referents(function) if isinstance(part, tuple) for x in part]
    assert any(isinstance(x, python_calls._MethodDef) for x in parts)


def test_the_deepest_operand_counts_wherever_it_is() -> None:
    x = zt.tensor(X, device="cpu")
    for _ in range(3):
        deep = (x + 1.0) * 2.0
        joined = OPS.concat([x, deep, x])
    assert joined.node.depth == deep.node.depth + 1 == 3
    np.testing.assert_array_equal(joined.numpy(), np.concatenate([X, (X + 1) * 2, X]))


def test_long_chains_end() -> None:
    y = zt.tensor([0.0], device="cpu")
    for _ in range(3 * MAX_DEPTH + 5):
        y = y + 1.0
        assert y.node.depth <= MAX_DEPTH
    assert y.item() == 3 * MAX_DEPTH + 5


def test_keys_that_vary_copy() -> None:
    """Each of many keys would compile a program of its own."""
    x = zt.tensor(X, device="cpu").realize()
    for key in [(i, j) for i in range(-4, 4) for j in range(6)]:
        assert x[key].item() == X[key]
    for n in range(7):
        np.testing.assert_array_equal(x[:, :n].numpy(), X[:, :n])
    with pytest.raises(ShapeError, match="index 4 is out of range for axis 0"):
        x[4, 0]
    mask = X > 1.5
    for key in (mask, zt.tensor(mask), mask[:, 0]):
        np.testing.assert_array_equal(x[key].numpy(), X[key if key is not mask else mask])
    with pytest.raises(ShapeError, match="bools"):
        x[mask[:3]]
    chosen = zt.grad(lambda x: (x[mask] ** 2.0).sum() + (x[3, 5] + x[:, :5].sum()))(x)
    true = 2 * X * mask
    true[3, 5] += 1
    true[:, :5] += 1
    np.testing.assert_allclose(chosen.numpy(), true, rtol=1e-6)
