"""Matrix products with the names and arguments of BLAS, in row-major order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, op, shape_error
from ztorch.graph.value import Value

Size = tuple[int, int, int]


def _transposed(x: Value) -> Value:
    return OPS.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def _combined(product: Value, c: Value | None, alpha: float, beta: float | None) -> Value:
    """alpha * product + beta * c; c is not read if beta is 0."""
    y = product if alpha == 1.0 else product * alpha
    beta = (1.0 if c is not None else 0.0) if beta is None else beta
    if c is None:
        if beta:
            raise shape_error(f"beta={beta} multiplies c, but there is no c")
        return y
    return y if not beta else y + (c if beta == 1.0 else c * beta)


def _gemm_numpy(a: Any, b: Any, c: Any = 0.0, alpha: float = 1.0, beta: float = 1.0,
                transpose_a: bool = False, transpose_b: bool = False) -> Any:
    a = np.swapaxes(a, -1, -2) if transpose_a else a
    b = np.swapaxes(b, -1, -2) if transpose_b else b
    return alpha * (a @ b) + beta * c


@op(Sample(((3, 5), (5, 4))), Sample(((5, 3), (4, 5), (3, 4)), {
    "alpha": 0.5, "beta": -2.0, "transpose_a": True, "transpose_b": True}),
    Sample(((2, 3, 5), (2, 5, 4), (4,)), {"alpha": 2.0}), numpy=_gemm_numpy)
def gemm(a: Value, b: Value, c: Value | None = None, alpha: float = 1.0,
         beta: float | None = None, transpose_a: bool = False, transpose_b: bool = False) -> Value:
    """`alpha * (a @ b) + beta * c`. Leading axes are batches and broadcast; `c` broadcasts too.

    Args:
        a: Matrices `(..., m, k)`, or `(..., k, m)` if transposed.
        b: Matrices `(..., k, n)`, or `(..., n, k)` if transposed, of the same dtype.
        c: Tensor that broadcasts to the product. `None` omits it. Default: `None`.
        alpha: Factor of the product. Default: `1.0`.
        beta: Factor of `c`. `None` means 1 if `c` is given. Default: `None`.
        transpose_a: Whether to transpose `a` first. Default: `False`.
        transpose_b: Whether to transpose `b` first. Default: `False`.

    Returns:
        A tensor `(..., m, n)`.

    Examples:
        >>> import ztorch as zt
        >>> a, b = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]])
        >>> zt.ops.gemm(a, b, np.array([1.0, 1.0]), alpha=2.0, transpose_b=True)
        array([[23., 35.]])
    """
    if a.rank < 2 or b.rank < 2:
        raise shape_error("ops.gemm needs matrices, not", a.shape, b.shape,
                          fix="ops.gemv takes a vector, ops.gemm_strided flat buffers")
    product = OPS.matmul(_transposed(a) if transpose_a else a, _transposed(b) if transpose_b else b)
    return _combined(product, c, alpha, beta)


@op(Sample(((3, 5), (5,))), Sample(((5, 3), (5,), (3,)), {"transpose_a": True, "beta": 0.5}),
    numpy=lambda a, x, y=0.0, alpha=1.0, beta=1.0, transpose_a=False: (
        alpha * ((a.T if transpose_a else a) @ x) + beta * y))
def gemv(a: Value, x: Value, y: Value | None = None, alpha: float = 1.0,
         beta: float | None = None, transpose_a: bool = False) -> Value:
    """`alpha * (a @ x) + beta * y` for a matrix and vectors.

    Args:
        a: Matrix `(m, n)`, or `(n, m)` if transposed.
        x: Vector `(n,)` of the same dtype.
        y: Vector `(m,)`. `None` omits it. Default: `None`.
        alpha: Factor of the product. Default: `1.0`.
        beta: Factor of `y`. `None` means 1 if `y` is given. Default: `None`.
        transpose_a: Whether to transpose `a` first. Default: `False`.

    Returns:
        A vector `(m,)`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.gemv(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]), transpose_a=True)
        array([4., 6.])
    """
    if a.rank != 2 or x.rank != 1:
        raise shape_error("ops.gemv needs a matrix and a vector, not", a.shape, x.shape,
                          fix="ops.gemm takes two matrices")
    return _combined(OPS.matmul(_transposed(a) if transpose_a else a, x), y, alpha, beta)


# -- flat buffers ----------------------------------------------------------------------------------


def _strided_numpy(a: Any, b: Any, c: Any = None, size: Size = (1, 1, 1), alpha: float = 1.0,
                   beta: float = 1.0, transpose_a: bool = False, transpose_b: bool = False,
                   lda: int | None = None, ldb: int | None = None, ldc: int | None = None,
                   batch: int = 1, stride_a: int | None = None, stride_b: int | None = None,
                   stride_c: int | None = None) -> Any:
    m, n, k = size
    rows = (k if transpose_a else m, n if transpose_b else k, m)
    wide = (m if transpose_a else k, k if transpose_b else n, n)
    steps = [ld or w for ld, w in zip((lda, ldb, ldc), wide, strict=True)]
    jumps = [r * ld if s is None else s for r, ld, s in zip(
        rows, steps, (stride_a, stride_b, stride_c), strict=True)]
    at = [np.arange(batch)[:, None, None] * s + np.arange(r)[:, None] * ld + np.arange(w)
          for r, w, ld, s in zip(rows, wide, steps, jumps, strict=True)]
    last = (batch - 1) * jumps[2] + m * steps[2]
    y = np.zeros(last, np.result_type(a)) if c is None else np.array(c)
    product = alpha * _gemm_numpy(a[at[0]], b[at[1]], 0.0, 1.0, 0.0, transpose_a, transpose_b)
    y[at[2]] = product if c is None else product + beta * y[at[2]]
    return y


@op(Sample(((15,), (20,)), {"size": (3, 4, 5)}),
    Sample(((19,), (35,), (25,)), {"size": (3, 4, 5), "lda": 7, "ldb": 7, "ldc": 9, "alpha": 0.5,
                                   "beta": 2.0, "transpose_b": True}),
    Sample(((32,), (21,), (32,)), {"size": (2, 3, 4), "batch": 3, "transpose_a": True, "ldb": 5,
                                   "ldc": 4, "stride_a": 12, "stride_b": 0, "stride_c": 12}),
    numpy=_strided_numpy)
def gemm_strided(a: Value, b: Value, c: Value | None = None, size: Size = (1, 1, 1),
                 alpha: float = 1.0, beta: float | None = None, transpose_a: bool = False,
                 transpose_b: bool = False, lda: int | None = None, ldb: int | None = None,
                 ldc: int | None = None, batch: int = 1, stride_a: int | None = None,
                 stride_b: int | None = None, stride_c: int | None = None) -> Value:
    """`gemm` on flat buffers, with the strides of BLAS.

    Args:
        a: Flat buffer of the left matrices, row by row.
        b: Flat buffer of the right matrices, of the same dtype.
        c: Flat buffer of the matrices to add. `None` omits it. Default: `None`.
        size: `(m, n, k)` of one product. Default: `(1, 1, 1)`.
        alpha: Factor of the product. Default: `1.0`.
        beta: Factor of `c`. `None` means 1 if `c` is given. Default: `None`.
        transpose_a: Whether to transpose `a` first. Default: `False`.
        transpose_b: Whether to transpose `b` first. Default: `False`.
        lda: Distance between the starts of rows of `a`. `None` means dense rows. Default: `None`.
        ldb: Distance between the starts of rows of `b`. `None` means dense rows. Default: `None`.
        ldc: Distance between the starts of rows of `c` and of the result. `None` means dense rows.
            Default: `None`.
        batch: Number of products. Default: `1`.
        stride_a: Distance between the matrices of `a`. 0 shares one matrix; `None` means dense.
            Default: `None`.
        stride_b: Distance between the matrices of `b`. 0 shares one matrix; `None` means dense.
            Default: `None`.
        stride_c: Distance between the matrices of `c` and of the result. `None` means dense.
            Default: `None`.

    Returns:
        A flat buffer with the layout of `c`. Elements between and after its rows are those of `c`,
        or 0 without `c`.

    Examples:
        >>> import ztorch as zt
        >>> a, b = np.array([1.0, 2.0, 0.0, 3.0, 4.0, 0.0]), np.eye(2).reshape(-1)
        >>> zt.ops.gemm_strided(a, b, size=(2, 2, 2), lda=3)
        array([1., 2., 3., 4.])
    """
    m, n, k = size
    left = _matrices("a", a, batch, k if transpose_a else m, m if transpose_a else k, lda, stride_a)
    right = _matrices("b", b, batch, n if transpose_b else k, k if transpose_b else n, ldb,
                      stride_b)
    row_step, matrix_step = _steps("c", m, n, ldc, stride_c)
    if batch > 1 and not matrix_step:
        raise shape_error("stride_c=0 would write all products of the batch to the same place")
    old = None if c is None else _matrices("c", c, batch, m, n, ldc, stride_c)
    y = gemm(left, right, old, alpha, beta, transpose_a, transpose_b)
    if c is None:
        gaps = OPS.pad(y, (0, 0, 0), (0, 0, row_step - n))
        flat = OPS.reshape(gaps, (batch, m * row_step))
        return OPS.reshape(OPS.pad(flat, (0, 0), (0, matrix_step - m * row_step)),
                           (batch * matrix_step,))[:(batch - 1) * matrix_step + m * row_step]
    beside = OPS.reshape(_resized(c, batch * matrix_step), (batch, matrix_step))
    outside = OPS.reshape(beside[:, :m * row_step], (batch, m, row_step))
    rows = OPS.reshape(OPS.concat(y, outside[:, :, n:], axis=2), (batch, m * row_step))
    flat = OPS.reshape(OPS.concat(rows, beside[:, m * row_step:], axis=1), (batch * matrix_step,))
    if c.size > flat.size:
        return OPS.concat(flat, c[batch * matrix_step:], axis=0)
    return flat[:c.size]


def _steps(name: str, rows: int, columns: int, ld: int | None,
           stride: int | None) -> tuple[int, int]:
    """The distances between the starts of rows and of matrices."""
    row_step = columns if ld is None else ld
    if row_step < columns:
        raise shape_error(f"ld{name}={row_step} is less than the {columns} columns of {name}")
    matrix_step = rows * row_step if stride is None else stride
    if 0 < matrix_step < rows * row_step:
        raise shape_error(f"stride_{name}={matrix_step}: matrices of {rows} rows, "
                          f"{row_step} apart, overlap",
                          fix=f"use at least {rows * row_step}, or 0 for a shared matrix")
    return row_step, matrix_step


def _matrices(name: str, x: Value, batch: int, rows: int, columns: int, ld: int | None,
              stride: int | None) -> Value:
    """(batch, rows, columns) read from a flat buffer."""
    if x.rank != 1:
        raise shape_error(f"ops.gemm_strided reads {name} from a flat buffer, not", x.shape)
    row_step, matrix_step = _steps(name, rows, columns, ld, stride)
    needed = (batch - 1) * matrix_step + (rows - 1) * row_step + columns
    if x.size < needed:
        raise shape_error(f"{batch} matrices {rows} x {columns} with ld{name}={row_step} and "
                          f"stride_{name}={matrix_step} need {needed} elements of {name}; it has",
                          x.shape)
    if matrix_step:
        x = OPS.reshape(_resized(x, batch * matrix_step), (batch, matrix_step))
        x = x[:, :rows * row_step]
    else:
        x = OPS.reshape(_resized(x, rows * row_step), (1, rows * row_step))
    return OPS.reshape(x, (x.shape[0], rows, row_step))[:, :, :columns]


def _resized(x: Value, size: int) -> Value:
    """A buffer cut or zero-padded to a size: its last row may end early."""
    return x[:size] if x.size >= size else OPS.pad(x, (0,), (size - x.size,))
