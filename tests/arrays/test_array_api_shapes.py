"""Functions of `zt.array_api` that create, sort and decompose, beside `array_api_strict`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.arrays.array_api_beside import (
    EVERY,
    FLOATS,
    NUMBERS,
    compare,
    compiles_some,  # noqa: F401  # for all tests here
    draw,
    generator,
    plain,
    strict,
    xp,
)
from ztorch.errors import ShapeError, ZtorchError


@pytest.mark.usefixtures("by_numpy")
def test_positions_in_a_dtype_that_does_not_hold_the_size() -> None:
    at = xp.asarray(np.array([-1, 2], np.int16))
    assert xp.take_along_axis(xp.arange(40_000), at).tolist() == [39_999, 2]


@pytest.mark.parametrize("dtype", EVERY)
def test_results_whose_shapes_depend_on_numbers(dtype: str) -> None:
    random = generator("sets", dtype)
    for shape in ((4, 5), (1,), (30,)):
        x = draw(random, shape, dtype)
        x = np.where((x == 0) | (x != x), np.zeros_like(x), x)  # of zeros any may come first
        compare("nonzero", [x])
        for name in ("unique_values", "unique_counts", "unique_inverse", "unique_all"):
            compare(name, [x])
    compare("unique_all", [np.zeros(0, dtype)])


def test_every_nan_is_different() -> None:
    result = xp.unique_all(xp.asarray([math.nan, 1.0, math.nan, 1.0]))
    np.testing.assert_array_equal(result.values.numpy(), [1.0, math.nan, math.nan])
    assert result.counts.tolist() == [2, 1, 1] and result.inverse_indices.tolist() == [1, 0, 2, 0]
    assert result.indices.tolist() == [1, 0, 2]


def test_shapes_that_depend_on_numbers_are_not_compiled() -> None:
    with pytest.raises(ZtorchError, match="has no value while"):
        zt.compiled(xp.unique_values)(zt.tensor([1.0, 2.0]))


@pytest.mark.parametrize("invert", [False, True])
def test_isin_is_numpys(invert: bool) -> None:  # the reference does not invert
    x, y = np.arange(12).reshape(3, 4), np.array([2, 7, 2, 30])
    got = xp.isin(xp.asarray(x), xp.asarray(y), invert=invert)
    np.testing.assert_array_equal(got.numpy(), np.isin(x, y, invert=invert))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_orders_and_sums_along_axes(dtype: str) -> None:
    random = generator("orders", dtype)
    x = np.nan_to_num(draw(random, (3, 7), dtype))
    for descending in (False, True):
        compare("sort", [x], axis=0, descending=descending)
        compare("argsort", [x], descending=descending)
    small = random.integers(0, 3, (3, 5)).astype(dtype)
    for name in ("cumulative_sum", "cumulative_prod"):
        compare(name, [small], axis=1)
        compare(name, [small], axis=0, include_initial=True)
        compare(name, [small[0]])
    compare("diff", [x], axis=0)
    compare("diff", [small], n=2, prepend=small[:, :1])
    compare("clip", [small, 1, 2])
    compare("clip", [small], max=1)
    compare("searchsorted", [np.sort(x[0]), x[1]], side="right")
    compare("searchsorted", [x[0], x[1]], sorter=np.argsort(x[0]))


def _linear() -> Iterator[Any]:
    random = np.random.default_rng(1)
    a, b, v = random.normal(size=(2, 4, 4)), random.normal(size=(2, 4, 3)), random.normal(size=(4,))
    positive = a @ a.swapaxes(1, 2) + np.eye(4)
    for name, args, attrs in [
            ("matmul", [a, b], {}), ("linalg.matmul", [a, v], {}), ("tensordot", [a, v], {"axes": 1}),
            ("tensordot", [a, b], {"axes": ((0, 2), (0, 1))}), ("vecdot", [a, v], {}),
            ("linalg.outer", [v, v], {}), ("linalg.cross", [b, b[::-1]], {}),
            ("linalg.cholesky", [positive], {}), ("linalg.cholesky", [positive], {"upper": True}),
            ("linalg.det", [a], {}), ("linalg.inv", [a], {}), ("linalg.solve", [a, b], {}),
            ("linalg.slogdet", [a], {}), ("linalg.qr", [b], {}), ("linalg.svdvals", [b], {}),
            ("linalg.eigvalsh", [positive], {}), ("linalg.pinv", [b], {}),
            ("linalg.matrix_rank", [b], {}), ("linalg.matrix_rank", [a], {"rtol": 0.5}),
            ("linalg.matrix_power", [a, 3], {}), ("linalg.diagonal", [b], {"offset": -1}),
            ("linalg.trace", [a], {"offset": 1}), ("linalg.vector_norm", [b], {"ord": 3, "axis": 1}),
            ("linalg.vector_norm", [b], {"keepdims": True}), ("linalg.matrix_norm", [b], {}),
            ("linalg.matrix_norm", [b], {"ord": "nuc"}),
            ("linalg.trace", [np.arange(9, dtype=np.int8).reshape(3, 3)], {})]:
        yield pytest.param(name, args, attrs, id=f"{name}-{attrs}")


@pytest.mark.parametrize(("name", "args", "attrs"), list(_linear()))
def test_linear_algebra(name: str, args: list[Any], attrs: dict[str, Any]) -> None:
    compare(name, args, **attrs)


def test_decompositions_have_named_parts() -> None:
    x = xp.asarray(np.random.default_rng(2).normal(size=(3, 3)))
    svd, eigh = xp.linalg.svd(x), xp.linalg.eigh(x + x.mT)
    np.testing.assert_allclose(((svd.U * svd.S) @ svd.Vh).numpy(), x.numpy(), atol=1e-14)
    np.testing.assert_allclose((x + x.mT) @ eigh.eigenvectors,
                               eigh.eigenvectors * eigh.eigenvalues, atol=1e-14)
    assert xp.linalg.qr(x).Q.shape == xp.linalg.qr(x).R.shape == (3, 3)
    assert xp.linalg.slogdet(x).sign.item() in (-1.0, 1.0)


@pytest.mark.parametrize("dtype", EVERY)
def test_creation(dtype: str) -> None:
    mine, theirs = getattr(xp, dtype), getattr(strict, dtype)
    for name, args in [("zeros", ((2, 3),)), ("ones", (4,)), ("full", ((2,), 1)), ("eye", (3, 2)),
                       ("arange", (1, 5, 2)), ("linspace", (0, 4, 5))]:
        if (dtype == "bool" and name in ("arange", "linspace")) or (
                name == "linspace" and dtype not in FLOATS):
            continue
        got = getattr(xp, name)(*args, dtype=mine)
        want = getattr(strict, name)(*args, dtype=theirs)
        np.testing.assert_array_equal(got.numpy(), plain(want), strict=True)
    x = xp.ones((2, 3), dtype=mine)
    for name in ("zeros_like", "ones_like", "empty_like"):
        like = getattr(xp, name)(x)
        assert like.shape == (2, 3) and like.dtype is mine
    assert xp.full_like(x, 1).dtype is mine and xp.empty((2,), dtype=mine).dtype is mine
    assert xp.asarray(x, dtype=xp.float32).dtype is xp.float32
    assert xp.astype(x, xp.float64).dtype is xp.float64
    np.testing.assert_array_equal(xp.from_dlpack(np.ones(2, dtype)).numpy(), np.ones(2, dtype))


# -- corners -----------------------------------------------------------------------------------------


def test_corner_cases_of_the_standards_suite() -> None:
    small, wide = (zt.tensor(np.array(v, d)) for v, d in (([0, 1, 200], np.uint8),
                                                          ([300, 2, 3], np.uint16)))
    assert (-small).tolist() == xp.negative(small).tolist() == [0, 255, 56]
    assert xp.linalg.outer(small, wide).dtype.long == xp.vecdot(small, wide).dtype.long == "uint16"
    assert xp.vecdot(small, wide).tolist() == 602
    assert xp.repeat(small, zt.tensor([1, 0, 2])).tolist() == [0, 200, 200]
    assert xp.unstack(xp.zeros((2, 0)), axis=1) == ()
    assert np.isnan(xp.std(xp.zeros((1, 2)), axis=0, correction=1.0).numpy()).all()
    for k in (-1 << 40, 1 << 31):
        assert xp.eye(2, k=k).tolist() == [[0, 0], [0, 0]]
        assert xp.tril(xp.ones((2, 2)), k=k).tolist() == np.tril(np.ones((2, 2)), k).tolist()
    assert not np.signbit(xp.sign(zt.tensor([-0.0])).numpy()).any()
    with pytest.raises(ShapeError, match="one axis or more"):
        xp.nonzero(xp.asarray(3.0))
    x = np.random.default_rng(0).normal(size=(2, 4, 3))
    rtol = np.array([1e-3, 0.5])
    np.testing.assert_allclose(xp.linalg.pinv(zt.tensor(x), rtol=zt.tensor(rtol)).numpy(),
                               np.linalg.pinv(x, rtol=rtol), atol=1e-12)
    assert xp.linalg.matrix_rank(zt.tensor(x), rtol=zt.tensor(rtol)).tolist() == [
        np.linalg.matrix_rank(a, rtol=r) for a, r in zip(x, rtol, strict=True)]
    many = xp.asarray(np.arange(300.0))
    for d in (np.int8, np.int64):  # a narrow dtype does not hold the size
        assert xp.take_along_axis(many, xp.asarray(np.array([-1, 2], d))).tolist() == [299, 2]
    assert xp.take(many, xp.asarray(np.array([7], np.uint8))).tolist() == [7]
    assert complex(zt.tensor(2.5)) == 2.5 and xp.imag(small).tolist() == [0, 0, 0]
    assert xp.real(small).tolist() == xp.conj(small).tolist() == small.tolist()
