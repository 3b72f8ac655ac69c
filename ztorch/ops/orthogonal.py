"""The QR decomposition of small matrices, by Householder's reflections."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, Sample, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.control import scan
from ztorch.ops.linear_algebra import beside, column_at, columns_of, matrices
from ztorch.ops.triangular import inverse_of_lower

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


def decomposed(x: Value, width: int) -> tuple[Value, Value]:
    """q with this number of columns, and r with as many rows.

    The product of the reflections I - scale v v' is I - V T V' with one triangular T (Schreiber and
    Van Loan, "A storage-efficient WY representation", 1989).
    """
    *batch, m, n = x.shape
    count = min(m - 1, n)
    if count < 1:
        q = OPS.broadcast_to(OPS.eye(m, width, dtype=x.dtype), (*batch, m, width))
        return q, x[..., :width, :]

    def turn(rest: Value, j: Value) -> tuple[Value, tuple[Value, Value]]:
        v, scale = _mirror(column_at(rest, j), j)
        return rest - scale * v * OPS.sum(v * rest, axis=-2, keepdims=True), (v, scale)

    rest, (v, scale) = scan(turn, x, columns_of(x, count))
    v, scale = beside(v), beside(scale)
    products = OPS.matmul(OPS.matrix_transpose(v), v)
    # T = (D^-1 + U)^-1 = (I + D U)^-1 D with the products U above the diagonal, D of the scales
    upper = OPS.triu(products, 1) * OPS.matrix_transpose(scale)
    lower = OPS.matrix_transpose(upper) + OPS.eye(count, dtype=x.dtype)
    middle = OPS.matrix_transpose(inverse_of_lower(lower)) * scale
    first = OPS.matmul(middle, OPS.matrix_transpose(v[..., :width, :]))
    q = OPS.eye(m, width, dtype=x.dtype) - OPS.matmul(v, first)
    return q, OPS.triu(rest[..., :width, :])


def _mirror(x: Value, j: Value) -> tuple[Value, Value]:
    """v and s of the reflection I - s v v' that leaves of a column, from row j on, this element
    only; none where nothing else is there."""
    row = OPS.iota((x.shape[-2], 1), 0)
    at = OPS.equal(row, j)
    others = OPS.where(OPS.greater(row, j), x, 0.0)
    first = OPS.max(OPS.where(at, x, -math.inf), axis=-2, keepdims=True)
    rest = OPS.max(OPS.abs(others), axis=-2, keepdims=True)
    size = OPS.maximum(rest, OPS.abs(first))  # so that no square overflows or vanishes
    nothing = OPS.equal(rest, 0.0)
    size = OPS.where(nothing, 1.0, size)
    others, first = others / size, first / size
    squares = OPS.sum(others * others, axis=-2, keepdims=True)
    length = OPS.sqrt(OPS.where(nothing, 1.0, squares + first * first))
    start = first + OPS.copysign(length, first)
    return (OPS.where(at, start, others),
            OPS.where(nothing, 0.0, 1.0 / (length * OPS.abs(start))))


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
