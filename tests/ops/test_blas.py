"""Products by the names of BLAS: alpha, beta, transposes, batches, and rows with gaps between."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.parity import HERE, Job, compiled
from ztorch import ops
from ztorch.dtypes import dtype, f64, from_storage, to_storage
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.graph.value import Graph, Value

random = np.random.default_rng(2)
BOTH = list(itertools.product((False, True), repeat=2))


def value(y: Value) -> np.ndarray:
    return evaluate([y], {})[0]


@pytest.mark.parametrize("batch", [(), (3,), (2, 1)])
@pytest.mark.parametrize(("ta", "tb"), BOTH)
def test_gemm(ta: bool, tb: bool, batch: tuple[int, ...]) -> None:
    a, b, c = (random.normal(size=(*batch, *s)) for s in ((5, 7), (7, 3), (5, 3)))
    operands = [constant(np.swapaxes(a, -1, -2) if ta else a),
                constant(np.swapaxes(b, -1, -2) if tb else b)]
    np.testing.assert_allclose(value(ops.gemm(*operands, None, 2.0, None, ta, tb)), 2 * (a @ b))
    np.testing.assert_allclose(value(ops.gemm(*operands, constant(c), 0.5, -3.0, ta, tb)),
                               0.5 * (a @ b) - 3 * c)


def test_c_is_not_read_where_beta_is_zero() -> None:
    eye = constant(np.eye(2))
    y = ops.gemm(eye, eye, constant(np.full((2, 2), np.nan)), beta=0.0)
    np.testing.assert_array_equal(value(y), np.eye(2))


@pytest.mark.parametrize("transpose", [False, True])
def test_gemv(transpose: bool) -> None:
    a, x, y = random.normal(size=(5, 7)), random.normal(size=7), random.normal(size=5)
    got = ops.gemv(constant(a.T if transpose else a), constant(x), constant(y), 2.0, 0.5, transpose)
    np.testing.assert_allclose(value(got), 2 * (a @ x) + 0.5 * y)


def flat(matrices: np.ndarray, ld: int, stride: int) -> np.ndarray:
    """A buffer in which matrices lie with gaps of NaN; it ends with the last element."""
    batch, rows, columns = matrices.shape
    buffer = np.full((batch - 1) * stride + (rows - 1) * ld + columns, np.nan)
    for k, r in np.ndindex(batch, rows):
        buffer[k * stride + r * ld:k * stride + r * ld + columns] = matrices[k, r]
    return buffer


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("ta", "tb"), BOTH)
def test_strided_reads_only_its_rows_and_writes_only_its_own(ta: bool, tb: bool,
                                                             batch: int) -> None:
    m, n, k = 4, 5, 3
    a, b, c = (random.normal(size=(batch, *s)) for s in ((m, k), (k, n), (m, n)))
    stored = [a.transpose(0, 2, 1) if ta else a, b.transpose(0, 2, 1) if tb else b]
    lda, ldb, ldc = (x.shape[2] + 2 for x in (*stored, c))
    strides = [x.shape[1] * ld + 3 for x, ld in zip((*stored, c), (lda, ldb, ldc), strict=True)]
    buffers = [flat(x, ld, s) for x, ld, s in zip((*stored, c), (lda, ldb, ldc), strides,
                                                  strict=True)]
    y = ops.gemm_strided(*map(constant, buffers), (m, n, k), 2.0, 0.5, ta, tb, lda, ldb, ldc, batch,
                         *strides)
    want = flat(2 * (a @ b) + 0.5 * c, ldc, strides[2])  # the gaps stay c's own: NaN
    np.testing.assert_allclose(value(y), want)


def test_strided_shares_a_matrix_and_leaves_gaps_zero() -> None:
    a, b = random.normal(size=(3, 2, 4)), random.normal(size=(4, 5))
    y = ops.gemm_strided(constant(a.reshape(-1)), constant(b.reshape(-1)), size=(2, 5, 4), batch=3,
                         stride_b=0, ldc=6, stride_c=20)
    want = np.nan_to_num(flat(a @ b, 6, 20))
    got = value(y)
    np.testing.assert_allclose(got[:want.size], want)
    assert not got[want.size:].any()


def test_strided_has_a_gradient() -> None:
    a, b = leaf("input", "a", (13,), f64), leaf("input", "b", (15,), f64)
    feeds = {a: random.normal(size=13), b: random.normal(size=15)}
    y = ops.gemm_strided(a, b, size=(3, 5, 3), lda=5)
    weights = random.normal(size=15)
    da, db = evaluate(gradients(ops.sum(y * weights), [a, b]), feeds)
    w, right = weights.reshape(3, 5), feeds[b].reshape(3, 5)
    want = np.zeros(15)
    want.reshape(3, 5)[:, :3] = w @ right.T
    np.testing.assert_allclose(da, want[:13])
    left = np.pad(feeds[a], (0, 2)).reshape(3, 5)[:, :3]
    np.testing.assert_allclose(db, (left.T @ w).reshape(-1))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "int32", "uint8"])
def test_every_dtype_compiled(name: str) -> None:
    d = dtype(name)
    shapes = {"a": (19,), "b": (17,), "c": (21,)}
    leaves = [leaf("input", n, s, d) for n, s in shapes.items()]
    feeds = {v: from_storage(d, to_storage(d, random.normal(size=v.shape))) if d.is_float else
             random.integers(0, 9, v.shape).astype(d.numpy) for v in leaves}
    y = ops.gemm_strided(*leaves, size=(3, 5, 3), lda=8, ldb=6, ldc=7)
    job = Job(Graph({"y": y}), feeds)
    [got], [want] = compiled(job, HERE[-1]), job.oracle()
    eps = {"float16": 2.0**-9, "bfloat16": 2.0**-6, "float32": 1e-6, "float64": 1e-15}.get(name, 0)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=eps, atol=eps * 8)


A, F = constant(np.ones((4, 6))), constant(np.ones(24))


@pytest.mark.parametrize(("wrong", "parts"), [
    (lambda: ops.gemm(A, A), ["(4, 6) and (4, 6)", "6, must equal"]),
    (lambda: ops.gemm(A, F), ["matrices", "(24,)", "ops.gemv"]),
    (lambda: ops.gemm(A, A, beta=2.0, transpose_b=True), ["beta=2.0", "no c"]),
    (lambda: ops.gemv(F, A), ["a matrix and a vector", "ops.gemm"]),
    (lambda: ops.gemm_strided(A, F, size=(2, 2, 2)), ["reads a from a flat buffer", "(4, 6)"]),
    (lambda: ops.gemm_strided(F, F, size=(4, 2, 6), lda=5), ["lda=5", "6 columns of a"]),
    (lambda: ops.gemm_strided(F, F, size=(5, 2, 6)), ["need 30 elements of a", "(24,)"]),
    (lambda: ops.gemm_strided(F, F, size=(2, 2, 2), batch=2, stride_a=3), ["stride_a=3", "overlap",
                                                                           "at least 4"]),
    (lambda: ops.gemm_strided(F, F, size=(2, 2, 2), batch=2, stride_c=0), ["stride_c=0"]),
])
def test_errors_name_the_mismatch(wrong, parts) -> None:
    with pytest.raises(ShapeError) as caught:
        wrong()
    for part in parts:
        assert part in str(caught.value)
