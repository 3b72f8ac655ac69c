"""The QR decomposition, by Householder's reflections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.batching import Examples
from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, Sample, op, shape_error
from ztorch.graph.value import Op, Value
from ztorch.ops.control import scan
from ztorch.ops.linear_algebra import matrices
from ztorch.ops.shared_columns import by_shared_code, longer, longest
from ztorch.ops.triangular import inverse_of_lower

PANEL = 32  # columns that are reflected one by one, or more for at most so many blocks:
BLOCKS = 8  # each has code of its own

_TALL = np.array([[1.0, 2.0], [-1.0, 0.5], [0.3, 1.0]])


@op(Sample((_TALL,)), Sample((_TALL.T,)), Sample((_TALL,), {"mode": "complete"}),
    results=("q", "r"), numpy=lambda x, mode="reduced": tuple(np.linalg.qr(x, mode)))
def qr(x: Value, mode: str = "reduced") -> tuple[Value, Value]:
    """Matrices with orthonormal columns and triangular ones, of which x is the product.

    It goes by Householder's reflections, so the signs are those of LAPACK and NumPy.

    Args:
        x: Matrices `(..., m, n)` whose smaller dimension is up to 512.
        mode: `"reduced"` for `(..., m, k)` and `(..., k, n)` with the smaller size k; `"complete"`
            for `(..., m, m)` and `(..., m, n)`. Default: `"reduced"`.

    Returns:
        `(q, r)`: tensors of the dtype of `x`; `r` is zero below the diagonal.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.qr(np.array([[3.0, 1.0], [4.0, 2.0]]))[1]
        array([[-5. , -2.2],
               [ 0. ,  0.4]])
    """
    if mode not in ("reduced", "complete"):
        raise shape_error(f"ops.qr(mode={mode!r}) is neither 'reduced' nor 'complete'")
    wide = matrices("qr", x, square=False)
    m, n = wide.shape[-2:]
    if mode == "complete" and m > n:  # the columns of q beyond n have no formula: as they are made
        q, r = decomposed(wide, m)
    else:
        q, r = with_gradient(decomposed(OPS.stop_gradient(wide), min(m, n)), [wide], [], _gradient)
    return (OPS.cast(q, x.dtype), OPS.cast(r, x.dtype)) if x.dtype.is_float else (q, r)


def decomposed(x: Value, width: int, beside: int = 0) -> tuple[Value, Value]:
    """q with this number of columns, and r with as many rows.

    Columns are reflected one by one in a block of them, the others by products of matrices.

    Args:
        x: Matrices `(..., m, n)`.
        width: The number of columns of q, at most m.
        beside: How many of the last columns of x are others, which q does not depend on: those of
            r are their products with the transpose of q. Default: `0`.
    """
    *batch, m, n = x.shape
    count = min(m - 1, n - beside)
    if count < 1:
        q = OPS.broadcast_to(OPS.eye(m, width, dtype=x.dtype), (*batch, m, width))
        return q, x[..., :width, :]
    # Columns of moderate and equal size, so that no square overflows and small elements have one.
    size = OPS.max(OPS.abs(x), axis=-2, keepdims=True)
    size = OPS.exp2(OPS.floor(OPS.log2(OPS.where(OPS.greater(size, 0.0), size, 1.0))))
    normal = np.finfo(x.dtype.numpy)  # log2 of the largest is rounded up
    size = OPS.clip(size, float(normal.tiny), 2.0 ** (normal.maxexp - 1))
    moderate = 2.0 ** (3 * normal.maxexp // 8)
    block = max(PANEL, PANEL * -(-count // (PANEL * BLOCKS)))
    rest, rows, blocks = x / size * moderate, list[Value](), list[tuple[Value, Value]]()
    for start in range(0, count, block):
        own = min(block, count - start)
        columns, v, scale = _reflected(OPS.matrix_transpose(rest[..., :own]), longest(m))
        middle, v = middle_of(v, scale), v[..., :rest.shape[-2]]
        row = [OPS.triu(OPS.matrix_transpose(columns[..., :own]))]
        if start:
            row.insert(0, OPS.zeros((*batch, own, start), x.dtype))
        if start + own < n:
            first = OPS.matmul(OPS.matrix_transpose(middle), OPS.matmul(v, rest[..., own:]))
            rest = rest[..., own:] - OPS.matmul(OPS.matrix_transpose(v), first)
            row.append(rest[..., :own, :])
            rest = rest[..., own:, :]
        rows.append(OPS.concat(*row, axis=-1))
        blocks.append((v, middle))
    below = OPS.zeros((*batch, m - count, n), x.dtype)
    rows.append(below if count == n else OPS.concat(below[..., :count], rest, axis=-1))
    r = OPS.concat(*rows, axis=-2)[..., :width, :] * (1 / moderate) * size
    return _product(blocks, m, width), r


def _reflected(x: Value, most: int) -> tuple[Value, Value, Value]:
    """Columns, which are the rows of x, after a reflection I - scale v v' for each, but for zeros
    below the diagonal. Each v is a row, too, with zeros up to `most` elements."""
    *batch, width, m = x.shape
    y = REFLECTED_COLUMNS(OPS.reshape(x, (-1, width, m)), most=most)
    y = OPS.reshape(y, (*batch, width + 1, most))
    columns = y[..., :width, :]
    v = OPS.triu(columns, 1) + OPS.eye(width, most, dtype=x.dtype)
    return columns, v, OPS.expand_dims(y[..., width, :width], -1)


def _least(d: DType) -> float:
    """Squares of a sum below this are not exact: then a reflection would not be orthogonal."""
    normal = np.finfo(d.numpy)
    return float(normal.tiny) / float(normal.eps) ** 2


def _columns_numpy(x: Any, most: int) -> Any:
    count, width, m = x.shape
    y = np.zeros((count, width + 1, most), x.dtype)
    y[:, :width, :m] = x
    for a in y:
        for k in range(width):
            first, others = a[k, k], a[k, k + 1:m].copy()
            squares = others @ others
            a[k, k + 1:m] = 0
            if squares < np.finfo(x.dtype).tiny / np.finfo(x.dtype).eps ** 2:
                continue
            length = np.copysign(np.sqrt(squares + first * first), first)
            v = np.concatenate([[1], others / (first + length)])
            a[width, k] = (first + length) / length
            a[k + 1:width, k:m] -= np.outer(a[k + 1:width, k:m] @ v * a[width, k], v)
            a[k, k], a[k, k + 1:m] = -length, v[1:]
    return y


def _columns_batch(one: Value, many: Examples, most: int) -> Value:
    count, width, m = many.args[0].shape[1:]
    y = REFLECTED_COLUMNS(OPS.reshape(many.args[0], (many.count * count, width, m)), most=most)
    return OPS.reshape(y, (many.count, *one.shape))


def _on_processors(x: Value, most: int) -> Value:
    return by_shared_code(_by_kernel, x, most)


def _by_kernel(x: Value, sizes: Value) -> Value:
    from ztorch.ops.kernel_reflections import reflected_columns  # late: other ops need no kernels

    y: Value = reflected_columns(x, sizes, OPS.full((), _least(x.dtype), x.dtype))
    return y


def _one_by_one(x: Value, most: int) -> Value:
    """The same for many threads: each reflection changes all columns."""
    row = OPS.iota((x.shape[-1],), 0)

    def turn(rest: Value, j: Value) -> tuple[Value, tuple[Value, Value]]:
        v, scale = _mirror(OPS.take(rest, OPS.reshape(j, (1,)), -2), row, j)
        return rest - scale * OPS.sum(v * rest, axis=-1, keepdims=True) * v, (v, scale)

    rest, (v, scale) = scan(turn, x, OPS.iota((x.shape[-2],), 0, "int32"))
    v, scale = (OPS.squeeze(OPS.moveaxis(y, 0, -3), -2) for y in (v, scale))
    below = OPS.greater(row, OPS.iota((x.shape[-2], 1), 0))
    return OPS.concat(longer(OPS.where(below, v, rest), most),
                      longer(OPS.matrix_transpose(scale), most), axis=-2)


# Columns of equal matrices, which are the rows of the argument, after a reflection I - s v v' for
# each: up to the diagonal those of the triangle, beyond it v, which is 1 on the diagonal. Below
# them are the factors s. Zeros follow, up to `most` elements: processors share the code of all such
# columns.
REFLECTED_COLUMNS = Op("reflected_columns", "order",
                       lambda x, most: ((x.shape[0], x.shape[1] + 1, most), x.dtype),
                       _columns_numpy, grad=lambda o, g, y, x, most: (None,), cost=64,
                       batch=_columns_batch, others=_one_by_one, serial=_on_processors)


def _mirror(x: Value, row: Value, j: Value) -> tuple[Value, Value]:
    """v and s of the reflection I - s v v' that leaves of a column, from row j on, this element
    only; none where nothing else is there, or so little beside the column that its squares are not
    exact."""
    at = OPS.equal(row, j)
    others = OPS.where(OPS.greater(row, j), x, 0.0)
    first = OPS.sum(OPS.where(at, x, 0.0), axis=-1, keepdims=True)
    squares = OPS.sum(others * others, axis=-1, keepdims=True)
    nothing = OPS.less(squares, _least(x.dtype))
    length = OPS.copysign(OPS.sqrt(OPS.where(nothing, 1.0, squares + first * first)), first)
    start = first + length
    return (OPS.where(at, 1.0, OPS.where(nothing, 0.0, others / start)),
            OPS.where(nothing, 0.0, start / length))


def middle_of(v: Value, scale: Value) -> Value:
    """The triangular T with which the product of the reflections of all rows of v is I - V T V'
    (Schreiber and Van Loan, "A storage-efficient WY representation", 1989)."""
    products = OPS.matmul(v, OPS.matrix_transpose(v))
    # T = (D^-1 + U)^-1 = (I + D U)^-1 D with the products U above the diagonal, D of the scales
    lower = OPS.tril(products, -1) * OPS.matrix_transpose(scale)
    lower = lower + OPS.eye(v.shape[-2], dtype=v.dtype)
    return OPS.matrix_transpose(inverse_of_lower(lower)) * OPS.matrix_transpose(scale)


def _product(blocks: list[tuple[Value, Value]], m: int, width: int) -> Value:
    """The first columns of the product of all reflections, from the last block on: before it there
    are columns of the unit matrix only."""
    q: Value | None = None
    for v, middle in reversed(blocks):
        *batch, own, rows = v.shape
        columns = width - (m - rows)
        unit, first = OPS.eye(rows, columns, dtype=v.dtype), v[..., :columns]
        if q is not None:
            none = (0,) * len(batch)
            unit = OPS.pad(q, (*none, own, own), (*none, 0, 0)) + OPS.pad(
                OPS.eye(own, dtype=v.dtype), (0, 0), (rows - own, columns - own))
            first = OPS.concat(v[..., :own], OPS.matmul(v[..., own:], q), axis=-1)
        q = unit - OPS.matmul(OPS.matrix_transpose(v), OPS.matmul(middle, first))
    assert q is not None
    return q


def _gradient(upstreams: Sequence[Value], args: Sequence[Value],
              shared: Sequence[Value]) -> list[Value]:
    """Roberts and Roberts, "QR and LQ decomposition matrix backpropagation", 2020."""
    x, (dq, dr) = args[0], upstreams
    m, n = x.shape[-2:]
    q, r = OPS.qr(x)
    if m >= n:
        return [_square_gradient(q, r, dq, dr)]
    left, right = x[..., :m], x[..., m:]
    dq = dq + OPS.matmul(right, OPS.matrix_transpose(dr[..., m:]))
    slope = _square_gradient(q, OPS.qr(left)[1], dq, dr[..., :m])
    return [OPS.concat(slope, OPS.matmul(q, dr[..., m:]), axis=-1)]


def _square_gradient(q: Value, r: Value, dq: Value, dr: Value) -> Value:
    inner = OPS.matmul(r, OPS.matrix_transpose(dr)) - OPS.matmul(OPS.matrix_transpose(dq), q)
    mirrored = OPS.tril(inner) + OPS.matrix_transpose(OPS.tril(inner, -1))
    inverse = inverse_of_lower(OPS.matrix_transpose(r))
    return OPS.matmul(dq + OPS.matmul(q, mirrored), inverse)
