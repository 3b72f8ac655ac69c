"""Axes, joining, repeating, triangles and creation: NumPy's results for all kinds of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch import ops
from ztorch.errors import ShapeError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, constant

X = np.random.default_rng(0).normal(size=(3, 4, 5))
N = np.arange(12).reshape(3, 4) % 5
V = constant(X)


def same(ours: Any, want: Any) -> None:
    """One tensor, or several of them."""
    values = ours if isinstance(ours, tuple) else (ours,)
    arrays = want if isinstance(want, (tuple, list)) else (want,)
    assert len(values) == len(arrays)
    for got, array in zip(evaluate(list(values), {}), arrays, strict=True):
        assert got.shape == np.shape(array)
        np.testing.assert_allclose(got, array, rtol=1e-6)


CALLS: list[tuple[str, tuple, Callable[..., Any]]] = [  # the op, its arguments, NumPy's function
    *(("moveaxis", at, np.moveaxis) for at in ((1, 0), ((0, -1), (-1, 0)), ((2, 0), (0, 1)))),
    ("expand_dims", ((0, 3),), np.expand_dims), ("expand_dims", ((-1, 1),), np.expand_dims),
    *(("roll", at, np.roll) for at in ((2,), (-1, 1), ((1, 2), (0, 2)), (3, (0, 1)), ((1, 2), 1))),
    *(("rot90", (k, axes), np.rot90) for k in range(-1, 5) for axes in ((0, 1), (2, 1))),
    *(("tile", (n,), np.tile) for n in (2, (2,), (2, 1, 3), (2, 1, 1, 2), 0)),
    *(("repeat", at, np.repeat) for at in ((2,), (3, 1), ((1, 2, 0), 0), (0, 2), ((2,), 1))),
    *(("split", at, np.split) for at in ((2, 1), ((1, 3), 1), (5, 2), ((2, 9), 2), ((-1,), 0))),
    ("split", (3, 1), np.array_split), ("array_split", (2, 0), np.array_split),
    *((name, (k,), getattr(np, name)) for name in ("tril", "triu") for k in range(-4, 6)),
    *(("diagonal", (k, 0, 2), np.diagonal) for k in range(-3, 6)),
    *(("trace", (k, 2, 1), np.trace) for k in range(-5, 5)),
    *(("diff", (n, axis), lambda x, n, axis: np.diff(x, n, axis)) for axis in (0, -1)
      for n in range(4)),
]


@together()
@pytest.mark.parametrize(("name", "arguments", "numpys"), CALLS)
def test_calls_are_numpys(name: str, arguments: tuple, numpys: Callable[..., Any]) -> None:
    same(getattr(ops, name)(V, *arguments), numpys(X, *arguments))


@pytest.mark.parametrize("k", range(-3, 4))
def test_diagonal_matrices_are_numpys(k: int) -> None:
    same(ops.diag(constant([1.0, 2.0, 3.0]), k), np.diag([1.0, 2.0, 3.0], k))
    same(ops.diag(constant(N), k), np.diag(N, k))
    same(OPS.eye(3, 4, k), np.eye(3, 4, k))


def test_several_tensors_are_numpys() -> None:
    n = constant(N)
    same(ops.unstack(V, 1), [X[:, k] for k in range(4)])
    same(ops.stack([V, V], axis=-1), np.stack([X, X], -1))
    same(ops.hstack([n, n]), np.hstack([N, N]))
    same(ops.vstack([n, n[0]]), np.vstack([N, N[0]]))
    same(ops.concat([n, n[:1]], axis=None), np.concatenate([N, N[:1]], None))
    same(ops.diff(n, prepend=1, append=n[:, :1]), np.diff(N, prepend=1, append=N[:, :1]))
    same(ops.broadcast_arrays(n, n[:, :1], n[0]), np.broadcast_arrays(N, N[:, :1], N[0]))


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_grids_are_numpys(indexing: str) -> None:
    for count in (1, 2, 3):
        vectors = [np.arange(k + 2.0) for k in range(count)]
        same(ops.meshgrid(*map(constant, vectors), indexing=indexing),
             np.meshgrid(*vectors, indexing=indexing))


@pytest.mark.parametrize("bounds", [(5,), (2, 9, 3), (1.0, 0.0, -0.3), (5, 2), (0, 1, 0.1)])
def test_ranges_are_numpys(bounds: tuple) -> None:
    got = evaluate([OPS.arange(*bounds)], {})[0]
    want = np.arange(*bounds)
    assert got.shape == want.shape and got.dtype.kind == want.dtype.kind
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bounds", [(0, 1, 1), (0, 1, 0), (2, 5, 4), (1, -1, 3, False), (0.1, 0.3)])
def test_points_at_equal_distances_are_numpys_and_end_exactly(bounds: tuple) -> None:
    [got] = evaluate([OPS.linspace(*bounds)], {})
    np.testing.assert_allclose(got, np.linspace(*bounds), rtol=1e-6)
    if len(bounds) == 2:
        assert got[0] == np.float32(bounds[0]) and got[-1] == np.float32(bounds[1])


@pytest.mark.parametrize("how", [{}, {"endpoint": False}, {"axis": -1}, {"dtype": "int32"}])
@pytest.mark.parametrize("bounds", [([0, 1], 3.0), (np.zeros((2, 3)), np.ones(3)), ([-5.5, 2], [4, 9])])
def test_points_between_arrays_are_numpys(bounds: tuple, how: dict) -> None:
    want = np.linspace(*bounds, 5, **{"dtype": "float32", **how})
    got = [evaluate([OPS.linspace(*bounds, 5, **how)], {})[0], zt.linspace(*bounds, 5, **how).numpy(),
           zt.linspace(zt.tensor(bounds[0]), bounds[1], 5, **how).numpy()]
    for points in got:
        assert points.dtype == want.dtype
        np.testing.assert_allclose(points, want, rtol=1e-6, atol=1e-6)


def test_points_between_other_numbers() -> None:
    assert zt.linspace(-5, 0, 4, dtype="int32").tolist() == [-5, -4, -2, 0]  # rounded down, as in NumPy
    want = np.linspace([0, 1j], 2, 3)
    np.testing.assert_allclose(zt.linspace([0, 1j], 2, 3, dtype="complex64").numpy(), want)
    x = zt.tensor([0.0, 1.0])
    assert zt.grad(lambda x: (zt.linspace(x, 2.0, 3) ** 2).sum())(x).tolist() == [1.0, 3.5]


def test_filled_like_others() -> None:
    x = constant(N)
    assert ops.full_like(x, 2.5, "float16").dtype.name == "f16"
    same(ops.zeros_like(x, "float32"), np.zeros((3, 4)))
    same(OPS.ones(3), np.ones(3))
    same(OPS.zeros((2, 0)), np.zeros((2, 0)))


@together()
@pytest.mark.parametrize(("wrong", "parts"), [
    (lambda: ops.squeeze(V, 0), ["axis=0", "(3, 4, 5)"]),
    (lambda: ops.moveaxis(V, (0, 0), (1, 2)), ["twice", "(0, 0)"]),
    (lambda: ops.moveaxis(V, (0, 1), 2), ["2 axes to 1"]),
    (lambda: ops.expand_dims(V, (0, 0)), ["axis (0, 0)", "twice"]),
    (lambda: ops.stack(V, constant(N)), ["one shape", "(3, 4)", "ops.concat"]),
    (lambda: ops.split(V, 0), ["0 parts"]), (lambda: ops.tile(V, -1), ["-1"]),
    (lambda: ops.repeat(V, (1, 2), 0), ["(1, 2)", "3 elements"]),
    (lambda: ops.roll(V, (1, 2), (0, 1, 2)), ["2 shifts for 3 axes"]),
    (lambda: ops.tril(constant([1.0])), ["matrices", "(1,)"]),
    (lambda: ops.diagonal(V, 0, 1, 1), ["two axes"]), (lambda: ops.diag(V), ["vector or a matrix"]),
    (lambda: ops.meshgrid(V), ["vectors"]), (lambda: OPS.arange(1, 2, 0), ["a step of 0"]),
    (lambda: ops.matrix_transpose(constant([1.0])), ["matrices"]),
])
def test_errors_name_the_mismatch(wrong: Callable[[], Any], parts: list[str]) -> None:
    with pytest.raises(ShapeError) as caught:
        wrong()
    for part in parts:
        assert part in str(caught.value)


# -- names -----------------------------------------------------------------------------------------


def test_an_alias_is_the_op() -> None:
    pairs = {"multiply": "mul", "subtract": "sub", "negative": "neg", "pow": "power",
             "absolute": "abs", "clamp": "clip", "cat": "concat", "concatenate": "concat",
             "permute": "transpose", "permute_dims": "transpose", "unsqueeze": "expand_dims",
             "arctan2": "atan2", "amax": "max", "mod": "remainder", "true_divide": "divide",
             "cumulative_sum": "cumsum", "bitwise_invert": "bitwise_not"}
    for alias, name in pairs.items():
        assert getattr(zt.ops, alias) is getattr(zt.ops, name)
    assert not set(pairs) & set(dir(zt.ops))  # an op is listed once


@pytest.mark.parametrize(("name", "hint"), [
    ("multiplly", "did you mean 'multiply'"), ("argwhere", r"use ops.stack\(ops.nonzero"), ("compress", "shapes are fixed here"),
    ("fftn", "use zt.array_api.fft.fftn"), ("embedding", "ops.take"), ("astype", "use ops.cast"),
    ("masked_fill", "ops.where"), ("zzzqqq", "has no attribute 'zzzqqq'$"),
    ("eigvals", r"use ops.eig\(x\)\[0\]$"), ("detach", "stop_gradient"), ("expand", "broadcast_to"),
    ("reduce_sum", "use ops.sum")])
def test_the_error_of_an_absent_name_does_not_mislead(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=hint):
        getattr(zt.ops, name)
