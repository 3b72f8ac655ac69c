"""Reductions at their edges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import device as available
from tests.cases.grouping import together
from ztorch import ops
from ztorch.dtypes import dtype, f64
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.ir.opcodes import identity

AXES = [axes for n in range(4) for axes in itertools.combinations(range(3), n)]


def value(y):
    return evaluate([y], {})[0]


@together()
@pytest.mark.parametrize("axes", [None, -1, *AXES])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var"])
def test_every_choice_of_axes(name: str, axes) -> None:
    data = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4))
    for keep in (False, True):
        got = value(getattr(ops, name)(constant(data), axes, keep))
        want = getattr(np, name)(data, axis=axes, keepdims=keep)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_of_nothing() -> None:
    empty = leaf("input", "e", (2, 0), "float32")
    assert ops.sum(empty, 1).shape == (2,)
    with pytest.raises(ShapeError, match=r"max of no elements is undefined; got \(2, 0\)"):
        ops.max(empty, 1)
    with pytest.raises(ShapeError, match="bool tensor cannot be reduced; cast"):
        ops.sum(constant([True]))


def test_equal_extremes_share_the_gradient() -> None:
    x = leaf("input", "x", (4,), f64)
    [dx] = gradients(ops.max(x), [x])
    np.testing.assert_allclose(evaluate([dx], {x: np.array([3.0, 1.0, 3.0, 0.0])})[0],
                               [0.5, 0, 0.5, 0])


@pytest.mark.parametrize("row", [[2.0, 3.0, 4.0], [0.0, 3.0, 4.0], [0.0, 3.0, 0.0]])
def test_products_with_zeros_have_a_gradient(row: list[float]) -> None:
    x = leaf("input", "x", (3,), f64)
    [dx] = gradients(ops.prod(x), [x])
    want = [row[1] * row[2], row[0] * row[2], row[0] * row[1]]
    np.testing.assert_allclose(evaluate([dx], {x: np.array(row)})[0], want)


def test_nan_is_the_largest_and_the_smallest() -> None:
    x = constant([1.0, np.nan, 2.0])
    assert np.isnan(value(ops.max(x))) and np.isnan(value(ops.min(x)))


def test_nan_on_devices_whose_compilers_assume_none() -> None:
    available("webgpu")
    data = np.array([[1, np.nan, 3, -2], [np.nan, 1, 2, 0], [1, 2, 3, np.nan], [5, 4, -3, 0]], np.float32)
    turned = np.ascontiguousarray(data.T)
    with zt.device("webgpu:0"):
        x, y = zt.tensor(data), zt.tensor(turned)
        got = {name: getattr(ops, name)(x, axis=1) for name in ("min", "argmax", "all")}
        got |= {name: getattr(ops, name)(x, y) for name in ("maximum", "not_equal")}
        got["equal"] = ops.equal(x, x)
    for name, result in got.items():
        function = getattr(np, name)
        both = {"equal": data}.get(name, turned)
        want = function(data, axis=1) if result.ndim == 1 else function(data, both)
        np.testing.assert_allclose(result.numpy(), want, rtol=1e-6, err_msg=name)


def test_variance_of_large_numbers_is_exact() -> None:
    x = constant(1e6 + np.array([-1.0, 0.0, 1.0, 0.0]), "float32")
    assert value(ops.var(x)) == 0.5


def test_argmax_returns_the_first_and_propagates_nan() -> None:
    x = constant([[1.0, 3.0, 3.0], [np.nan, np.nan, np.nan]], "float32")
    got = value(ops.argmax(x, 1))
    assert got.dtype == np.int32 and got[0] == 1 and 0 <= got[1] < 3
    assert value(ops.argmin(constant([2, 1, 1], "int32"))) == 1


@together()
@pytest.mark.parametrize("axes", [None, -1, *(a for a in AXES if a)])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_along_any_axes(name: str, axes) -> None:
    """Where several axes are one, row by row, as in NumPy's position in a flat array."""
    data = np.random.default_rng(0).integers(0, 9, (2, 3, 4)).astype(np.float64)
    along = range(3) if axes is None else [a % 3 for a in np.atleast_1d(axes)]
    others = [k for k in range(3) if k not in along]
    rows = data.transpose(*others, *along).reshape(*(data.shape[k] for k in others), -1)
    want = getattr(np, name)(rows, -1)
    got = value(getattr(ops, name)(constant(data), axes))
    assert got.shape == want.shape and (got == want).all()
    kept = value(getattr(ops, name)(constant(data), axes, True))
    assert kept.shape == tuple(1 if k in along else n for k, n in enumerate(data.shape))
    assert (kept.reshape(want.shape) == want).all()


@together()
@pytest.mark.parametrize("name", ["float32", "int8", "uint32", "float64"])
@pytest.mark.parametrize(("combine", "function"), [
    ("add", np.add), ("mul", np.multiply), ("max", np.maximum), ("min", np.minimum)])
def test_identities_change_nothing(name: str, combine: str, function: np.ufunc) -> None:
    d = dtype(name)
    info = np.iinfo(d.numpy) if d.is_int else np.finfo(d.numpy)
    for x in (info.min, info.max, 0, 1):
        x = np.array(x, d.numpy)
        assert function(x, np.array(identity(combine, d), d.numpy)) == x
