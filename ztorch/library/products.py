"""Matrix products on raw buffers, with the arguments of BLAS."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real

import numpy as np

from ztorch.config import positive, whole
from ztorch.dtypes import DType
from ztorch.dtypes import dtype as dtype_named
from ztorch.errors import ConfigError, unknown
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.library.buffers import Buffer, BufferPart, Strided
from ztorch.library.programs import Number
from ztorch.library.raw_device import RawDevice, old_name
from ztorch.library.strides import has_gaps, read, write

LAYOUTS = ("row", "column")  # of a matrix: which of its neighbors are adjacent
Place = Buffer | BufferPart


class Products(RawDevice):
    """The routines that multiply matrices."""

    def gemm(self, m: int, n: int, k: int, a: Place, b: Place, c: Place, *,
             dtype: DType | str = "float32", alpha: float = 1.0, beta: float = 0.0,
             transpose_a: bool = False, transpose_b: bool = False, lda: int | None = None,
             ldb: int | None = None, ldc: int | None = None, layout: str = "row") -> None:
        """`c = alpha * a @ b + beta * c`.

        With `beta=0` the matrix `c` is not read: it may hold anything. Elements between its
        rows stay. With `k=0` or `alpha=0` nothing of `a` and `b` is read.

        Args:
            m: Rows of `c`.
            n: Columns of `c`.
            k: Columns of `a`, rows of `b`.
            a: Where the left matrix begins, `(m, k)`, or `(k, m)` if transposed.
            b: Where the right matrix begins, `(k, n)`, or `(n, k)` if transposed.
            c: Where the result begins, `(m, n)`.
            dtype: The dtype of all three. Default: `"float32"`.
            alpha: Factor of the product. Default: `1.0`.
            beta: Factor of the old `c`. Default: `0.0`.
            transpose_a: Whether `a` is transposed first. Default: `False`.
            transpose_b: Whether `b` is transposed first. Default: `False`.
            lda: Distance between rows of `a` (columns with `layout="column"`), in elements. `None`
                means that they are dense. Default: `None`.
            ldb: The same of `b`. Default: `None`.
            ldc: The same of `c`. Default: `None`.
            layout: "row" or "column": whether rows or columns are adjacent in all three.
                Default: `"row"`.

        Raises:
            Unsupported: The device cannot multiply this dtype.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu, c = zt.backends.get("cpu"), np.full((2, 3), np.nan, np.float32)
            >>> a, b = np.ones((2, 2), np.float32), np.ones((2, 2), np.float32)
            >>> cpu.gemm(2, 2, 2, cpu.wrap(a), cpu.wrap(b), cpu.wrap(c), alpha=0.5, ldc=3)
            >>> c
            array([[ 1.,  1., nan],
                   [ 1.,  1., nan]], dtype=float32)
        """
        self._product("gemm", None, (m, n, k), (a, b, c), dtype, (alpha, beta),
                      (transpose_a, transpose_b), (lda, ldb, ldc), (None, None, None), layout)

    def batched_gemm(self, batch: int, m: int, n: int, k: int, a: Place, b: Place, c: Place, *,
                     dtype: DType | str = "float32", alpha: float = 1.0, beta: float = 0.0,
                     transpose_a: bool = False, transpose_b: bool = False,
                     lda: int | None = None, ldb: int | None = None, ldc: int | None = None,
                     stride_a: int | None = None, stride_b: int | None = None,
                     stride_c: int | None = None, layout: str = "row") -> None:
        """`gemm` of several matrices, each some elements behind the one before.

        Args:
            batch: How many products.
            m: Rows of each `c`.
            n: Columns of each `c`.
            k: Columns of each `a`, rows of each `b`.
            a: Where the first left matrix begins.
            b: Where the first right matrix begins.
            c: Where the first result begins.
            dtype: The dtype of all. Default: `"float32"`.
            alpha: Factor of the products. Default: `1.0`.
            beta: Factor of the old `c`. Default: `0.0`.
            transpose_a: Whether each `a` is transposed first. Default: `False`.
            transpose_b: Whether each `b` is transposed first. Default: `False`.
            lda: Distance between rows of `a`, as in `gemm`. Default: `None`.
            ldb: The same of `b`. Default: `None`.
            ldc: The same of `c`. Default: `None`.
            stride_a: Distance between two matrices of `a`, in elements. 0 shares one; `None` means
                that they are dense. Default: `None`.
            stride_b: The same of `b`. Default: `None`.
            stride_c: The same of `c`, which cannot be shared. Default: `None`.
            layout: "row" or "column", as in `gemm`. Default: `"row"`.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu, c = zt.backends.get("cpu"), np.zeros((2, 1, 1))
            >>> a, b = np.array([[[2.0]], [[3.0]]]), np.array([[10.0]])
            >>> cpu.batched_gemm(2, 1, 1, 1, cpu.wrap(a), cpu.wrap(b), cpu.wrap(c),
            ...                  dtype="float64", stride_b=0)
            >>> c.tolist()
            [[[20.0]], [[30.0]]]
        """
        self._product("batched_gemm", batch, (m, n, k), (a, b, c), dtype, (alpha, beta),
                      (transpose_a, transpose_b), (lda, ldb, ldc), (stride_a, stride_b, stride_c),
                      layout)

    def gemv(self, m: int, n: int, a: Place, x: Place, y: Place, *,
             dtype: DType | str = "float32", alpha: float = 1.0, beta: float = 0.0,
             transpose_a: bool = False, lda: int | None = None, incx: int = 1, incy: int = 1,
             layout: str = "row") -> None:
        """`y = alpha * a @ x + beta * y`. As in `gemm`, `beta=0` does not read `y`.

        Args:
            m: Rows of `a` as it is in memory.
            n: Columns of `a` as it is in memory.
            a: Where the matrix begins, `(m, n)`.
            x: Where the vector begins: `n` elements, or `m` if `a` is transposed.
            y: Where the result begins: `m` elements, or `n` if `a` is transposed.
            dtype: The dtype of all three. Default: `"float32"`.
            alpha: Factor of the product. Default: `1.0`.
            beta: Factor of the old `y`. Default: `0.0`.
            transpose_a: Whether `a` is transposed first. Default: `False`.
            lda: Distance between rows of `a`, as in `gemm`. Default: `None`.
            incx: Distance between elements of `x`. Default: `1`.
            incy: Distance between elements of `y`. Default: `1`.
            layout: "row" or "column", as in `gemm`. Default: `"row"`.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu, y = zt.backends.get("cpu"), np.zeros(2)
            >>> a, x = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0])
            >>> cpu.gemv(2, 2, cpu.wrap(a), cpu.wrap(x), cpu.wrap(y), dtype="float64")
            >>> y
            array([3., 7.])
        """
        d, m, n = dtype_named(dtype), whole("gemv: m", m), whole("gemv: n", n)
        rows, columns = (n, m) if transpose_a else (m, n)
        if not rows:
            return
        matrix = _matrix("a", a, None, rows, columns, d, transpose_a, lda, None, layout)
        for label, step in (("incx", incx), ("incy", incy)):
            positive(f"gemv: {label}", step)
        vector = Strided(x, (columns,), d, (incx,))
        self._combine("gemv", matrix, vector, Strided(y, (rows,), d, (incy,)), alpha, beta)

    def _product(self, name: str, batch: int | None, size: tuple[int, int, int],
                 places: tuple[Place, Place, Place], dtype: DType | str,
                 factors: tuple[float, float], transposed: tuple[bool, bool],
                 leading: tuple[int | None, ...], steps: tuple[int | None, ...],
                 layout: str) -> None:
        m, n, k = (whole(f"{name}: {label}", x) for label, x in zip("mnk", size, strict=True))
        batch = None if batch is None else whole(f"{name}: batch", batch)
        if 0 in (m, n, batch):
            return
        d = dtype_named(dtype)
        shapes = ((m, k, transposed[0]), (k, n, transposed[1]), (m, n, False))
        a, b, c = (_matrix(label, place, batch, rows, columns, d, swap, ld, step, layout)
                   for label, place, (rows, columns, swap), ld, step in zip(
                       "abc", places, shapes, leading, steps, strict=True))
        self._combine(name, a, b, c, *factors)

    def _combine(self, name: str, a: Strided, b: Strided, c: Strided, alpha: float,
                 beta: float) -> None:
        """c = alpha * a @ b + beta * c."""
        if not c.size or (beta == 1 and not (alpha and a.size)):
            return
        d = c.dtype
        self._need_dtype(name, d)
        for label, factor in (("alpha", alpha), ("beta", beta)):
            if not _is_factor(factor, d):
                raise ConfigError(f"{name}: {label}={factor!r} is not a factor of {d}")
        multiplies = bool(alpha and a.size)
        reads = {"a": a, "b": b} if multiplies else {}
        numbers = {label: Number(factor, d) for label, factor, plain in (
            ("alpha", alpha, (0, 1)), ("beta", beta, (0, 1))) if factor not in plain}
        old = old_name("c")
        if beta:
            reads[old] = c
        shared = multiplies and b.strides[0] == 0 and len(b.shape) == 3  # one large product

        def function(v: Mapping[str, Value]) -> dict[str, Value]:
            y = OPS.full(c.shape, 0, d)
            if multiplies:
                right = ((b.shape[1:], b.strides[1:]) if shared else (b.shape, b.strides))
                y = OPS.matmul(read(v["a"], a.shape, a.strides), read(v["b"], *right))
            if "alpha" in v:
                y = y * v["alpha"]
            if beta:
                before = read(v[old], c.shape, c.strides)
                y = y + (before * v["beta"] if "beta" in v else before)
            gaps = v[old] if has_gaps(c.shape, c.strides) else None
            return {"c": write(y, c.strides, gaps)}

        self._run(name, (multiplies, bool(beta), shared), function, reads, {"c": c}, numbers)


def _is_factor(factor: object, d: DType) -> bool:
    """Whether a matrix of a dtype can be multiplied by a number.

    >>> from ztorch.dtypes import f32, i8
    >>> [_is_factor(x, i8) for x in (2.0, -1, 0.5, 200)], _is_factor(0.5, f32)
    ([True, True, False, False], True)
    """
    if not isinstance(factor, Real) or d.is_float:
        return isinstance(factor, Real)
    bounds, value = np.iinfo(d.working), float(factor)
    return bounds.min <= value <= bounds.max and value.is_integer()


def _matrix(label: str, place: Place, batch: int | None, rows: int, columns: int, d: DType,
            transposed: bool, ld: int | None, step: int | None, layout: str) -> Strided:
    """(rows, columns) of a product, or (batch, rows, columns), as they are in memory."""
    if layout not in LAYOUTS:
        raise unknown("layout", layout, LAYOUTS)
    by_rows = (layout == "row") != transposed
    dense = columns if by_rows else rows
    ld = dense if ld is None else whole(f"ld{label}", ld)
    if ld < dense:
        raise ConfigError(f"ld{label}={ld} is less than the {dense} elements of {label} that are "
                          "adjacent in memory")
    strides = (ld, 1) if by_rows else (1, ld)
    if batch is None:
        return Strided(place, (rows, columns), d, strides)
    apart = ld * (rows if by_rows else columns)
    step = apart if step is None else whole(f"stride_{label}", step)
    return Strided(place, (batch, rows, columns), d, (step, *strides))
