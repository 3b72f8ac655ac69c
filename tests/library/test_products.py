"""Products on raw buffers beside float64 of NumPy: layouts, leading dimensions, factors."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from tests.library.devices import Operand, close, library, sampled
from ztorch.errors import ConfigError, DeviceError, Unsupported


def matrix(rng: np.random.Generator, rows: int, columns: int, dtype: str, batch: int | None = None) -> np.ndarray:
    shape = (rows, columns) if batch is None else (batch, rows, columns)
    if np.dtype(dtype).kind == "f":
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(-5, 6, shape).astype(dtype)


def laid_out(own: Any, x: np.ndarray, layout: str, extra: int, offset: int = 0) -> tuple[Operand, int]:
    """A matrix in a buffer, and its leading dimension."""
    rows, columns = x.shape[-2:]
    ld = (columns if layout == "row" else rows) + extra
    strides = (ld, 1) if layout == "row" else (1, ld)
    if x.ndim == 3:
        strides = (ld * (rows if layout == "row" else columns) + 2, *strides)
    return Operand(own, x, strides, offset), ld


def gemm(name: str, m: int, n: int, k: int, dtype: str = "float32", alpha: float = 1.0, beta: float = 0.0,
         transposed: tuple[bool, bool] = (False, False), extra: tuple[int, int, int] = (0, 0, 0),
         layout: str = "row", offset: int = 0, seed: int = 0) -> None:
    """One product on a device, beside NumPy."""
    own, rng = library(name), np.random.default_rng(seed)
    a = matrix(rng, *((k, m) if transposed[0] else (m, k)), dtype)
    b = matrix(rng, *((n, k) if transposed[1] else (k, n)), dtype)
    c = matrix(rng, m, n, dtype)
    want = alpha * (a.T if transposed[0] else a).astype(float) @ (b.T if transposed[1] else b).astype(float)
    if beta:
        want = want + beta * c.astype(float)
    elif c.dtype.kind == "f":
        c[...] = np.nan  # which must not reach the result
    there = [laid_out(own, x, layout, e, offset) for x, e in zip((a, b, c), extra, strict=True)]
    (ta, lda), (tb, ldb), (tc, ldc) = there
    own.gemm(m, n, k, ta.start, tb.start, tc.start, dtype=dtype, alpha=alpha, beta=beta,
             transpose_a=transposed[0], transpose_b=transposed[1], lda=lda, ldb=ldb, ldc=ldc, layout=layout)
    close(tc.now(), want, terms=k)


CASES = [  # (transposed, extra, layout, alpha, beta)
    *((t, e, layout, alpha, beta) for (t, layout), (e, alpha, beta) in zip(
        [*product(product((False, True), repeat=2), ("row", "column"))],
        [((0, 0, 0), 1.0, 0.0), ((2, 1, 3), 0.5, 0.0), ((0, 3, 0), 1.0, 1.0), ((1, 0, 2), -1.5, 2.0)] * 2,
        strict=True))]


@pytest.mark.parametrize(("transposed", "extra", "layout", "alpha", "beta"), CASES)
def test_gemm(transposed: Any, extra: Any, layout: str, alpha: float, beta: float) -> None:
    gemm("cpu", 5, 7, 6, "float32", alpha, beta, transposed, extra, layout, offset=5)


@sampled
def test_gemm_on_each_device(name: str) -> None:
    gemm(name, 5, 7, 6, "float32", 0.5, 2.0, (True, False), (1, 2, 3), offset=5)
    gemm(name, 4, 8, 3, "float32", 1.0, 0.0, (False, True), (0, 0, 2))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int8"])
def test_gemm_of_other_dtypes(dtype: str) -> None:
    gemm("cpu", 3, 4, 5, dtype, 2.0, 3.0, extra=(0, 1, 1))


@settings(max_examples=12, deadline=None, derandomize=True)
@drawn(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.tuples(st.booleans(), st.booleans()),
       st.tuples(*[st.integers(0, 2)] * 3), st.sampled_from(["row", "column"]),
       st.sampled_from([0.0, 1.0, 0.5]), st.sampled_from([0.0, 1.0, -2.0]), st.integers(0, 3))
def test_gemm_of_anything(m: int, n: int, k: int, transposed: Any, extra: Any, layout: str, alpha: float,
                          beta: float, offset: int) -> None:
    gemm("cpu", m, n, k, "float32", alpha, beta, transposed, extra, layout, offset)


def test_a_large_product_has_many_workers() -> None:
    gemm("cpu", 200, 150, 300, extra=(0, 0, 10))


@sampled
def test_batched_gemm(name: str) -> None:
    own, rng = library(name), np.random.default_rng(1)
    a, b, c = (matrix(rng, *s, "float32", 3) for s in ((4, 5), (5, 6), (4, 6)))
    for shared in (False, True):
        right = b[0] if shared else b
        (ta, lda), (tb, ldb), (tc, ldc) = (laid_out(own, x, "row", 1, 2) for x in (a, right, c))
        own.batched_gemm(3, 4, 6, 5, ta.start, tb.start, tc.start, alpha=2.0, beta=0.5, lda=lda, ldb=ldb,
                         ldc=ldc, stride_a=ta.strides[0], stride_c=tc.strides[0],
                         stride_b=0 if shared else tb.strides[0])
        close(tc.now(), 2.0 * (a.astype(float) @ right.astype(float)) + 0.5 * c, terms=5)


@pytest.mark.parametrize(("transposed", "layout"), [*product((False, True), ("row", "column"))])
def test_gemv(transposed: bool, layout: str) -> None:
    own, rng = library("cpu"), np.random.default_rng(2)
    a = matrix(rng, 4, 6, "float32")
    x, y = (rng.normal(size=n).astype(np.float32) for n in ((4, 6) if transposed else (6, 4)))
    ta, lda = laid_out(own, a, layout, 2, 1)
    tx, ty = Operand(own, x, (3,), 1), Operand(own, y, (2,))
    own.gemv(4, 6, ta.start, tx.start, ty.start, alpha=0.5, beta=3.0, transpose_a=transposed, lda=lda,
             incx=3, incy=2, layout=layout)
    close(ty.now(), 0.5 * (a.T if transposed else a).astype(float) @ x + 3.0 * y.astype(float), terms=6)


def test_sizes_of_zero() -> None:
    """No rows or columns: nothing happens. No terms: c becomes beta * c."""
    own = library("cpu")
    c = Operand(own, np.arange(6, dtype=np.float32).reshape(2, 3), (4, 1))
    none = own.alloc(0)
    for m, n in ((0, 3), (2, 0)):
        own.gemm(m, n, 4, none, none, c.start, ldc=4)
        own.gemm(m, n, 0, none, none, c.start, ldc=4, beta=2.0)
    own.batched_gemm(0, 2, 3, 4, none, none, c.start)
    own.gemv(0, 0, none, none, none)
    np.testing.assert_array_equal(c.now(), np.arange(6).reshape(2, 3))
    own.gemm(2, 3, 0, none, none, c.start, ldc=4, beta=1.0)
    own.gemm(2, 3, 0, none, none, c.start, ldc=4, beta=2.0)
    np.testing.assert_array_equal(c.now(), 2 * np.arange(6).reshape(2, 3))
    own.gemm(2, 3, 0, none, none, c.start, ldc=4)
    np.testing.assert_array_equal(c.now(), np.zeros((2, 3)))


def test_a_factor_that_changes_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    own = library("cpu")
    a = Operand(own, np.eye(3, dtype=np.float32))
    c = Operand(own, np.zeros((3, 3), np.float32))
    own.gemm(3, 3, 3, a.start, a.start, c.start, alpha=0.25)
    monkeypatch.setattr("ztorch.library.programs.build", None)  # calling it would fail
    for alpha in (0.5, 3.0):
        own.gemm(3, 3, 3, a.start, a.start, c.start, alpha=alpha)
        np.testing.assert_array_equal(c.now(), alpha * np.eye(3))


def test_a_result_in_its_own_operand() -> None:
    """c may be where a is: a is read before c is written."""
    own, x = library("cpu"), np.random.default_rng(3).normal(size=(64, 64)).astype(np.float32)
    t = Operand(own, x)
    own.gemm(64, 64, 64, t.start, t.start, t.start)
    close(t.now(), x.astype(float) @ x, terms=64)


def test_wrong_calls() -> None:
    own = library("cpu")
    x = own.alloc(64)
    with pytest.raises(ConfigError, match="lda=2 is less than the 4 elements of a"):
        own.gemm(2, 2, 4, x, x, x, lda=2)
    with pytest.raises(DeviceError, match=r"takes 68 bytes, and the buffer has 64"):
        own.gemm(1, 17, 1, x, x, x)
    with pytest.raises(ValueError, match="unknown layout 'rows'"):
        own.gemm(1, 1, 1, x, x, x, layout="rows")
    with pytest.raises(ConfigError, match=r"alpha=0\.5 is not a factor of int32"):
        own.gemm(1, 1, 1, x, x, x, dtype="int32", alpha=0.5)
    with pytest.raises(ConfigError, match="takes buffers, not array"):
        own.gemm(1, 1, 1, x, np.zeros(1), x)
    with pytest.raises(ConfigError, match="elements along axis 1 are 2 apart, and each holds 3"):
        own.batched_gemm(2, 2, 2, 1, x, x, x, stride_c=1)


def test_a_dtype_that_a_device_lacks() -> None:
    own = library("webgpu:0")
    x = own.alloc(64)
    with pytest.raises(Unsupported, match="backend webgpu:0 cannot do gemm of float64"):
        own.gemm(2, 2, 2, x, x, x, dtype="float64")
