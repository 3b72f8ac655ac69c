"""Eigenvalues, singular values and functions of them, compared with LAPACK, for matrices of all kinds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.spectra import decomposes, has_singular_values, matrices, of_all_kinds, of_values
from ztorch import ops
from ztorch.errors import ShapeError, Unsupported
from ztorch.graph import passes
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, constant, leaf
from ztorch.graph.rewrite import by_others
from ztorch.graph.value import Graph
from ztorch.ops.kernel_secular import roots
from ztorch.ops.pseudoinverse import squares_of_products

RANDOM = np.random.default_rng(0)


def run(*values: Any) -> list[np.ndarray]:
    return list(evaluate(list(values), {}))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 2), (5, 3), (3, 5), (8, 8), (40, 4), (33, 33)])
def test_singular_values_of_processors(m: int, n: int, dtype: str) -> None:
    of_kinds = matrices(m, n)
    kinds = [name for name, y in of_kinds.items() for _ in y]
    x, full = np.concatenate([*of_kinds.values()]).astype(dtype), m * n < 100
    has_singular_values(x.astype(float), kinds, zt.ops.svd(x, full), full, dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 2), (5, 3), (3, 5), (8, 8), (40, 4), (32, 32)])
def test_singular_values_by_rounds(m: int, n: int, dtype: str) -> None:
    of_kinds = matrices(m, n)
    kinds = [name for name, y in of_kinds.items() for _ in y]
    x, full = np.concatenate([*of_kinds.values()]).astype(dtype), m * n < 100
    graph = by_others(Graph({str(k): y for k, y in enumerate(ops.svd(constant(x), full))}))
    has_singular_values(x.astype(float), kinds, run(*graph.roots), full, dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
def test_eigenvalues_of_processors(n: int, dtype: str) -> None:
    kinds, x = of_all_kinds(n, dtype)
    values, vectors = zt.ops.eigh(x.astype(dtype))
    assert values.dtype == vectors.dtype == dtype
    decomposes(x, values, vectors, kinds, 10 * n * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 32])
def test_eigenvalues_by_rotations(n: int, dtype: str) -> None:
    kinds, x = of_all_kinds(n, dtype)
    values, vectors = ops.eigh(constant(x, dtype))
    graph = by_others(Graph({"values": values, "vectors": vectors}))
    values, vectors = run(*graph.roots)
    assert values.dtype == vectors.dtype == dtype
    decomposes(x, values, vectors, kinds, 10 * n * n * float(np.finfo(dtype).eps))


def test_eigenvalues_of_a_wide_matrix() -> None:
    x = RANDOM.normal(size=(100, 100))
    x = x + x.T
    values, vectors = zt.ops.eigh(x)
    decomposes(x, values, vectors, ["random"] * 100, 1e-13)
    bad = np.array([[1.0, 2.0], [np.nan, 1.0]])
    assert all(np.isnan(y).all() for y in zt.ops.eigh(bad))


def test_roots_that_are_met_exactly() -> None:
    """The first guess is the root itself where a matrix has one element."""
    poles, z = np.arange(5.0)[None] * 2e-11, np.array([[1.0, *[1e-20] * 4]])
    _, nearest, offsets = roots(poles, poles, z, np.array([5], np.int32))
    squares = poles[0] ** 2
    expected = np.linalg.eigvalsh(np.diag(squares) + z.T @ z)
    np.testing.assert_allclose(squares[nearest[0]] + offsets[0], expected, 1e-12, 1e-15)


def test_only_the_lower_triangle_is_read() -> None:
    x = RANDOM.normal(size=(5, 5))
    for got, want in zip(run(*ops.eigh(constant(x))),
                         run(*ops.eigh(constant(np.tril(x) + np.tril(x, -1).T))), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)])
def test_pseudoinverse_and_least_squares(shape: tuple[int, int]) -> None:
    m, n = shape
    for x in (RANDOM.normal(size=(2, m, n)), of_values([3.0, 1.0, 0.0], m, n)):
        [got] = run(ops.pinv(constant(x)))
        np.testing.assert_allclose(got, np.linalg.pinv(x), atol=1e-13)
        assert run(ops.matrix_rank(constant(x)))[0].tolist() == np.linalg.matrix_rank(x).tolist()
        b = RANDOM.normal(size=(m, 2))
        [y] = run(ops.lstsq(constant(x[0]), constant(b)))
        np.testing.assert_allclose(y, np.linalg.lstsq(x[0], b)[0], atol=1e-12)
    loose = run(ops.pinv(constant(x), rcond=0.5), ops.pinv(constant(x), rtol=0.5))
    np.testing.assert_allclose(loose[0], np.linalg.pinv(x, rcond=0.5), atol=1e-13)
    np.testing.assert_array_equal(*loose)


@pytest.mark.parametrize("shape", [(5, 5), (6, 3), (3, 6)])
@pytest.mark.parametrize("rank", [2, 3])
def test_least_squares_of_any_rank_and_their_gradients(shape: tuple[int, int], rank: int) -> None:
    """In a batch of which one matrix lacks rank, all go by singular values."""
    m, n = shape
    values = np.array([3.0, 2.0, 1.5, 1.0, 0.5])[:min(m, n)]
    a = of_values(values, m, n)[:2]
    a[1] = of_values(np.where(np.arange(min(m, n)) < rank, values, 0.0), m, n)[0]
    b = RANDOM.normal(size=(2, m, 2))
    x, y = leaf("input", "x", a.shape, "float64"), leaf("input", "y", b.shape, "float64")
    result = ops.lstsq(x, y)
    for k in (0, 1):  # the first alone goes by the QR decomposition
        np.testing.assert_allclose(run(ops.lstsq(constant(a[k]), constant(b[k])))[0],
                                   np.linalg.lstsq(a[k], b[k])[0], atol=1e-12)
    slope_x, slope_y, got = evaluate([*gradients(ops.sum(result ** 3.0), [x, y]), result],
                                     {x: a, y: b})
    np.testing.assert_allclose(got, np.linalg.pinv(a) @ b, atol=1e-12)
    np.testing.assert_allclose(slope_y, np.linalg.pinv(a).swapaxes(1, 2) @ (3 * got**2), atol=1e-11)
    for k in np.ndindex(m, n):
        ends = []
        for h in (1e-6, -1e-6):
            moved = a[0].copy()
            moved[k] += h
            ends.append(np.sum((np.linalg.pinv(moved) @ b[0]) ** 3))
        np.testing.assert_allclose(slope_x[0][k], (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-5)


def test_least_squares_of_a_large_regular_matrix() -> None:
    r = np.triu(RANDOM.normal(size=(2, 258, 258)))
    [squares] = run(squares_of_products(constant(r)))
    np.testing.assert_allclose(squares, np.sum((r @ r.swapaxes(1, 2)) ** 2, axis=(1, 2)), rtol=1e-13)
    a, b = RANDOM.normal(size=(270, 258)), RANDOM.normal(size=(270, 3))
    for rows in (258, 270):
        [y] = run(ops.lstsq(constant(a[:rows]), constant(b[:rows])))
        np.testing.assert_allclose(y, np.linalg.lstsq(a[:rows], b[:rows])[0], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("p", [None, 2, -2, 1, -1, "fro", "nuc", math.inf])
def test_condition_and_norms(p: Any) -> None:
    x = RANDOM.normal(size=(3, 4, 4))
    np.testing.assert_allclose(run(ops.condition_number(constant(x), p))[0], np.linalg.cond(x, p), rtol=1e-12)
    if p is not None:
        for keepdims in (False, True):
            np.testing.assert_allclose(run(ops.matrix_norm(constant(x), p, keepdims))[0],
                                       np.linalg.norm(x, p, (1, 2), keepdims), rtol=1e-12)


SYMMETRIC = np.array([[2.0, 0.3, 0.1], [0.3, -1.0, 0.4], [0.1, 0.4, 0.5]])
POSITIVE = np.array([[4.0, 1.0], [1.0, 3.0]])
TWICE: dict[str, tuple[Any, np.ndarray]] = {  # functions with a custom gradient
    "eigh": (lambda x: sum(ops.sum(y * y * y) for y in ops.eigh(x)), SYMMETRIC),
    "svd": (lambda x: sum(ops.sum(y * y * y) for y in ops.svd(x, False)), SYMMETRIC[:, :2] + 1),
    "svdvals": (lambda x: ops.sum(ops.svdvals(x) ** 3.0), SYMMETRIC),
    "pinv": (lambda x: ops.sum(ops.pinv(x) ** 3.0), SYMMETRIC[:2]),
    "cholesky": (lambda x: ops.sum(ops.cholesky(x) ** 3.0), POSITIVE),
    "inv": (lambda x: ops.sum(ops.inv(x) ** 3.0), POSITIVE),
    "solve": (lambda x: ops.sum(ops.solve(x, x * x) ** 3.0), POSITIVE),
    "qr": (lambda x: sum(ops.sum(y * y * y) for y in ops.qr(x)), SYMMETRIC),
    "slogdet": (lambda x: ops.slogdet(x)[1], SYMMETRIC)}


@pytest.mark.parametrize("name", TWICE)
def test_both_derivatives_are_finite_differences(name: str) -> None:
    function, at = TWICE[name]
    x = leaf("input", "x", at.shape, "float64")
    y = function(x)
    [first] = gradients(y, [x])
    weights = RANDOM.normal(size=at.shape)
    weighted = ops.sum(first * constant(weights))
    for total in (y, weighted):
        [got] = evaluate(gradients(total, [x]), {x: at})
        want = np.empty(at.shape)
        for k in np.ndindex(at.shape):
            ends = []
            for h in (1e-5, -1e-5):
                moved = at.copy()
                moved[k] += h
                ends.append(evaluate([total], {x: moved})[0])
            want[k] = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_equal_values_have_the_gradients_that_exist() -> None:
    x = leaf("input", "x", (3, 3), "float64")
    weights = constant(np.array([3.0, 1.0, 2.0]))
    slopes = [gradients(y, [x])[0] for y in (
        ops.sum(ops.eigvalsh(x)), ops.sum(ops.svdvals(x)), ops.sum(ops.eigh(x)[1] * weights))]
    trace, nuclear, vectors = evaluate(slopes, {x: np.eye(3)})
    np.testing.assert_allclose(trace, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(nuclear, np.eye(3), atol=1e-14)
    assert np.isfinite(vectors).all()
    [slope] = evaluate([gradients(ops.sum(ops.pinv(x)), [x])[0]], {x: 2 * np.eye(3)})
    np.testing.assert_allclose(slope, np.full((3, 3), -0.25), atol=1e-14)


def test_compiled_on_arrays() -> None:
    x = RANDOM.normal(size=(7, 5))
    u, s, vh = zt.ops.svd(x, full_matrices=False)
    np.testing.assert_allclose((u * s) @ vh, x, atol=1e-13)
    np.testing.assert_allclose(zt.ops.svd(x, compute_uv=False), s, rtol=1e-13)
    half = zt.ops.eigh(POSITIVE.astype(np.float16))
    assert [y.dtype for y in half] == [np.float16] * 2
    assert zt.ops.matrix_rank(np.array([[1, 2], [2, 4]])).item() == 1


def test_what_is_refused() -> None:
    x = leaf("input", "x", (33, 40), "float32")
    with pytest.raises(Unsupported, match=r"ops.svd of 513 x 600 matrices of f.*32.*at most 512"):
        ops.svd(leaf("input", "x", (513, 600), "float32"))
    with pytest.raises(ShapeError, match=r"ops.eigh needs square matrices.* not \(33, 40\)"):
        ops.eigh(x)
    with pytest.raises(ShapeError, match=r"matrices with elements, not \(0, 3\)"):
        ops.svdvals(leaf("input", "x", (0, 3), "float32"))
    with pytest.raises(ShapeError, match=r"ops.lstsq needs the same number of rows in \(33, 40\) and \(3, 1\)"):
        ops.lstsq(x, leaf("input", "b", (3,), "float32"))
    tall = leaf("input", "x", (3, 2), "float32")
    with pytest.raises(Unsupported, match="full_matrices=False"):
        gradients(ops.sum(ops.svd(tall)[0]), [tall])
    with pytest.raises(ShapeError, match="must be one of 'fro', 'nuc'"):
        ops.matrix_norm(tall, 3)


def test_a_gradient_that_decomposes_again_computes_nothing_twice() -> None:
    x = leaf("input", "x", (4, 4), "float32")
    values, vectors = OPS.eigh(x)
    [slope] = gradients(OPS.sum(values * vectors), [x])
    graph = passes.run(Graph({"values": values, "slope": slope}))
    assert sum(v.op.name == "eigen_rows" for v in graph.nodes()) == 1
