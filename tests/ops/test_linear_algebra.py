"""Linear algebra of small matrices beside LAPACK, and at matrices that have no answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import ops
from ztorch.errors import ShapeError, Unsupported
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.graph.rewrite import by_others
from ztorch.graph.value import Graph
from ztorch.ops.eigen import with_signs
from ztorch.ops.elimination import ELIMINATED_COLUMNS
from ztorch.ops.orthogonal import REFLECTED_COLUMNS

RANDOM = np.random.default_rng(0)


def same(ours: Any, want: Any) -> None:
    values, arrays = (x if isinstance(x, tuple) else (x,) for x in (ours, want))
    for got, array in zip(evaluate(list(values), {}), arrays, strict=True):
        assert got.shape == np.shape(array)
        np.testing.assert_allclose(got, array, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 100, 150])
def test_square_matrices_are_lapacks(n: int) -> None:
    a, b = RANDOM.normal(size=(2, n, n)), RANDOM.normal(size=(n, 3))
    positive = a @ a.swapaxes(1, 2) + np.eye(n)
    x = constant(a)
    same(ops.cholesky(constant(positive)), np.linalg.cholesky(positive))
    same(ops.cholesky(constant(positive), upper=True),
         np.linalg.cholesky(positive).swapaxes(1, 2))
    same(ops.solve(x, constant(b)), np.linalg.solve(a, b))
    same(ops.inv(x), np.linalg.inv(a))
    same(ops.det(x), np.linalg.det(a))
    same(ops.slogdet(x), tuple(np.linalg.slogdet(a)))
    same(ops.matrix_power(x, -2), np.linalg.matrix_power(a, -2))


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (1, 4), (4, 1), (4, 4), (33, 33), (100, 40), (40, 100)])
def test_qr_is_lapacks(shape: tuple[int, int], mode: str) -> None:
    a = RANDOM.normal(size=shape)
    same(ops.qr(constant(a), mode), tuple(np.linalg.qr(a, mode)))


def test_qr_of_columns_of_all_sizes_is_lapacks() -> None:
    """Columns whose squares vanish or overflow, in blocks."""
    a = RANDOM.normal(size=(70, 70)) * 10.0 ** RANDOM.integers(-200, 200, size=70)
    (q, r), (want, triangle) = evaluate(list(ops.qr(constant(a))), {}), np.linalg.qr(a)
    size = abs(a).max(axis=0)
    np.testing.assert_allclose(q, want, atol=1e-12)
    np.testing.assert_allclose(r / size, triangle / size, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_qr_of_the_largest_and_smallest_columns_has_numbers(dtype: Any) -> None:
    """The logarithm of the largest number is rounded up; numbers below the normal ones may be 0."""
    limits = np.finfo(dtype)
    sizes = np.array([limits.max, 1.0, limits.tiny / 4])
    q, r = map(np.asarray, ops.qr(np.diag(sizes).astype(dtype)))
    np.testing.assert_array_equal(q, np.eye(3))
    np.testing.assert_array_equal(np.diag(r)[:2], sizes[:2].astype(dtype))
    assert 0 <= r[2, 2] <= limits.tiny


@pytest.mark.parametrize("dtype, step", [(np.float32, 0.5), (np.float64, 2.6)])
def test_qr_of_rows_of_all_sizes_is_orthogonal(dtype: Any, step: float) -> None:
    """Rows that get smaller, until squares of their elements vanish."""
    a = RANDOM.normal(size=(64, 64)) * 10.0 ** (-step * np.arange(64))[:, None]
    q, r = (np.asarray(x, np.float64) for x in ops.qr(a.astype(dtype)))
    tolerance = 30 * np.finfo(dtype).eps
    np.testing.assert_allclose(q.T @ q, np.eye(64), atol=tolerance)
    np.testing.assert_allclose(q @ r, a, atol=tolerance)


def test_qr_of_zeros_below_the_diagonal_keeps_signs() -> None:
    a = np.triu(RANDOM.normal(size=(3, 3)))
    same(ops.qr(constant(a)), tuple(np.linalg.qr(a)))
    same(ops.qr(constant(np.zeros((3, 2)))), tuple(np.linalg.qr(np.zeros((3, 2)))))


def test_larger_matrices_need_hardly_more_kernels() -> None:
    for op in (ops.det, ops.slogdet, ops.inv):
        sizes = []
        for n in (256, 512):
            y = op(constant(np.eye(n)))
            sizes.append(len(Graph({f"y{k}": v for k, v in enumerate(
                y if isinstance(y, tuple) else (y,))}).nodes()))
        assert sizes[1] < 1.5 * sizes[0], op.__name__


@pytest.mark.parametrize("n", [300, 352])
def test_loops_over_panels_are_as_exact_as_lapacks(n: int) -> None:
    """Of sizes that are, or are not, whole panels."""
    a, b = RANDOM.normal(size=(n, n)), RANDOM.normal(size=(n, 2))
    same(ops.solve(constant(a), constant(b)), np.linalg.solve(a, b))
    same(ops.slogdet(constant(a)), tuple(np.linalg.slogdet(a)))
    swapped = a[[1, 0, *range(2, n)]]
    same(ops.slogdet(constant(swapped))[0], -np.linalg.slogdet(a)[0])


@pytest.mark.parametrize("rank", [39, 40])
def test_gradients_of_determinants_in_blocks_are_the_cofactors(rank: int) -> None:
    """Of regular matrices, and of singular ones, whose determinant is 0."""
    u, v = (np.linalg.qr(RANDOM.normal(size=(40, 40)))[0] for _ in range(2))
    s = np.where(np.arange(40) < rank, np.linspace(2, 1, 40), 0.0)
    cofactors = np.linalg.det(u) * np.linalg.det(v) * (
        u * [np.prod(np.delete(s, k)) for k in range(40)]) @ v
    a = (u * s) @ v
    x = leaf("input", "x", a.shape, "float64")
    slope, y = evaluate([*gradients(ops.det(x), [x]), ops.det(x)], {x: a})
    np.testing.assert_allclose(slope, cofactors, atol=1e-9 * abs(cofactors).max())
    np.testing.assert_allclose(y, np.linalg.det(a), atol=1e-9 * abs(cofactors).max())


@pytest.mark.parametrize("n", [33, 80])
def test_matrices_in_blocks_are_as_exact_as_lapacks(n: int) -> None:
    """Of a condition of ten thousand, in single precision: what remains of each equation."""
    left, right = (np.linalg.qr(RANDOM.normal(size=(4, n, n)))[0] for _ in range(2))
    scale = np.logspace(0, -4, n)
    a, b = ((left * scale) @ right).astype(np.float32), RANDOM.normal(size=(4, n, 2)).astype(np.float32)
    positive = ((left * scale) @ left.swapaxes(1, 2)).astype(np.float32)
    x, y = evaluate([ops.solve(constant(a), constant(b)), ops.cholesky(constant(positive))], {})
    x, y = x.astype(float), y.astype(float)
    assert abs(a @ x - b).max() < 2e-6 * abs(x).max()
    assert abs(y @ y.swapaxes(1, 2) - positive).max() < 5e-7


def test_pivots_are_the_largest_elements_of_a_block() -> None:
    """Rows in reverse, with elements on the diagonal that would be pivots of a billionth."""
    a = np.eye(70)[::-1] + 1e-9 * RANDOM.normal(size=(70, 70))
    b = RANDOM.normal(size=(70, 2))
    same(ops.solve(constant(a), constant(b)), np.linalg.solve(a, b))
    singular = np.where(np.arange(70) == 50, 0.0, a)
    assert not np.isfinite(evaluate([ops.inv(constant(singular))], {})[0]).all()


@pytest.mark.parametrize("width, m", [(1, 1), (6, 9), (64, 70)])
def test_eliminated_columns_of_processors_and_others_are_numpys(width: int, m: int) -> None:
    """Beside zeros, equal elements and NaN; longer columns share the code."""
    x = RANDOM.normal(size=(3, width, m))
    x[1, 0], x[1, -1], x[2, width // 2] = 0.0, 2.0, math.nan
    graph = Graph({"y": ELIMINATED_COLUMNS(constant(x), most=m + 3)})
    [want] = evaluate(graph.roots, {})
    for form in (by_others(graph), *([by_others(graph, serial=True)] if m < 20 else [])):
        [y] = evaluate(form.roots, {})
        np.testing.assert_allclose(y[:2], want[:2], rtol=1e-9, atol=1e-12)
        assert (np.sort(y[:, width, :m], axis=1) == np.arange(m)).all() and not y[..., m:].any()
        assert np.isnan(y[2, width - 1, width - 1])
    order = want[:, width, :m].astype(int)
    lower = np.tril(want[:, :width, :m].swapaxes(1, 2), -1) + np.eye(m, width)
    upper = np.tril(want[:, :width, :width]).swapaxes(1, 2)
    np.testing.assert_allclose((lower @ upper)[0], np.take_along_axis(
        x[0], order[0][None], -1).T, atol=1e-12)
    assert abs(lower[:2]).max() <= 1.0


@pytest.mark.parametrize("width, m", [(1, 2), (6, 9), (7, 7)])
def test_reflected_columns_of_processors_and_others_are_numpys(width: int, m: int) -> None:
    """Beside columns of zeros, and of elements whose squares vanish; longer columns share the code.
    """
    x = RANDOM.normal(size=(3, width, m))
    x[1, 0], x[2, 0, 1:] = 0.0, 1e-200
    graph = Graph({"y": REFLECTED_COLUMNS(constant(x), most=m + 3)})
    [want] = evaluate(graph.roots, {})
    for form in (by_others(graph), by_others(graph, serial=True)):
        np.testing.assert_allclose(evaluate(form.roots, {})[0], want, rtol=1e-9, atol=1e-12)
    assert not want[:, :width, m:].any() and not want[:, width, width:].any()
    for columns, y in zip(x, want, strict=True):
        for k in range(width):
            v = np.where(np.arange(m) > k, y[k, :m], 0.0)
            v[k] = 1.0
            columns -= y[width, k] * np.outer(columns @ v, v)
        np.testing.assert_allclose(np.tril(y[:width, :m]), columns, atol=1e-12)
    x[:, 0, -1] = math.nan
    graph = Graph({"y": REFLECTED_COLUMNS(constant(x), most=m)})
    for form in (graph, by_others(graph), by_others(graph, serial=True)):
        assert np.isnan(evaluate(form.roots, {})[0][:, 0, 0]).all()


def test_systems_of_processors_are_lapacks() -> None:
    """Of two blocks, with pivots from the last row to the first."""
    a = np.eye(40)[::-1] + 0.05 * RANDOM.normal(size=(2, 40, 40))
    b = RANDOM.normal(size=(2, 40, 3))
    x = zt.ops.solve(a.astype(np.float32), b.astype(np.float32))
    np.testing.assert_allclose(x, np.linalg.solve(a, b), atol=1e-5)
    sign, size = zt.ops.slogdet(a.astype(np.float32))
    want = np.linalg.slogdet(a)
    np.testing.assert_array_equal(sign, want[0])
    np.testing.assert_allclose(size, want[1], atol=1e-4)


def test_singular_matrices() -> None:
    ones = constant(np.ones((3, 3)))
    same(ops.det(ones), 0.0)
    same(ops.slogdet(ones), (np.float64(0.0), np.float64(-math.inf)))
    assert evaluate([ops.logdet(ones)], {})[0] == -math.inf
    assert np.isnan(evaluate([ops.logdet(constant(np.diag([1.0, -1.0])))], {})[0])
    assert not np.isfinite(evaluate([ops.inv(ones)], {})[0]).all()
    assert np.isnan(evaluate([ops.cholesky(-ones)], {})[0][0, 0])


def test_rows_in_any_order() -> None:
    for order in ([1, 0, 2], [2, 0, 1], [2, 1, 0]):
        a = np.eye(3)[order]
        same(ops.det(constant(a)), np.linalg.det(a))
        same(ops.inv(constant(a)), a.T)


def test_whole_numbers_and_16_bits() -> None:
    same(ops.det(constant(np.array([[2, 1], [1, 3]]))), 5.0)
    half = constant(np.array([[4.0, 2.0], [2.0, 5.0]]), "float16")
    for y in (ops.cholesky(half), ops.inv(half), *ops.qr(half), ops.det(half)):
        assert y.dtype.name == "f16"


@pytest.mark.parametrize("ord", ["fro", 1, -1, math.inf, -math.inf])
@pytest.mark.parametrize("keepdims", [False, True])
def test_norms_of_matrices_are_numpys(ord: Any, keepdims: bool) -> None:
    a = RANDOM.normal(size=(2, 3, 4))
    same(ops.matrix_norm(constant(a), ord, keepdims), np.linalg.norm(a, ord, (1, 2), keepdims))


@pytest.mark.parametrize("ord", [0, 0.5, 1, 2, 3, -1, math.inf, -math.inf])
def test_norms_of_vectors_are_numpys(ord: float) -> None:
    a = RANDOM.normal(size=(3, 4))
    same(ops.vector_norm(constant(a), axis=1, ord=ord), np.linalg.norm(a, ord, 1))


def test_missing_functions_are_named() -> None:
    with pytest.raises(Unsupported, match=r"ops.inv of 513 x 513 matrices of f(loat)?64.*512 columns"):
        ops.inv(constant(np.eye(513)))
    with pytest.raises(ShapeError, match=r"square matrices, not \(2, 3\)"):
        ops.det(constant(np.ones((2, 3))))
    with pytest.raises(ShapeError, match=r"rows in \(2, 2\) and \(3, 1\)"):
        ops.solve(constant(np.eye(2)), constant(np.ones((3, 1))))


def test_the_sign_of_vectors_is_that_of_their_largest_element() -> None:
    vectors = np.array([[-2.0, 1.0], [1.0, 3.0]])
    assert with_signs(vectors).tolist() == [[2, 1], [-1, 3]]
    assert with_signs(vectors, -1).tolist() == [[2, -1], [1, 3]]
