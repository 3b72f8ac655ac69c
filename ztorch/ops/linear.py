"""Matrix products: the only contraction, of which all linear ops consist."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean, f64
from ztorch.dtypes import dtype as as_dtype
from ztorch.graph.narrow import ROUNDED, operand, rounded
from ztorch.graph.op import OPS, Sample, as_value, broadcast_shapes, op, shape_error
from ztorch.graph.value import Op, Value
from ztorch.ir.opcodes import OPCODES

Shape = tuple[int, ...]


def _infer(a: Value, b: Value, dtype: DType | None = None,
           mantissa_bits: int = 0, dot: str = "") -> tuple[Shape, DType]:
    if a.dtype is boolean:
        raise shape_error("ops.matmul does not take bool", fix="cast it to a number first")
    return (*a.shape[:-1], b.shape[-1]), dtype or a.dtype


def _numpy(a: np.ndarray, b: np.ndarray, dtype: DType | None = None,
           mantissa_bits: int = 0, dot: str = "") -> np.ndarray:
    """The product. With a dtype, that of the sums, operands may have narrower dtypes.
    `mantissa_bits` is the number of significant bits of the operands; 0 means all. If `dot` names
    an opcode, operands are words of several numbers, which that opcode multiplies."""
    if dot:
        add, total = OPCODES[dot].meaning, np.zeros((*a.shape[:-1], b.shape[-1]), a.dtype)
        assert add is not None
        for k in range(a.shape[-1]):
            total = add(a[..., k, None], b[..., k, None, :], total)
        return total
    if dtype is not None:
        a, b = a.astype(dtype.working), b.astype(dtype.working)
    return np.matmul(a, b)


def _swap(o: Any, x: Value) -> Value:
    return o.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def _turned(x: Value) -> bool:
    """Whether the columns of a matrix are the rows of another, which it transposes."""
    while x.op.kind == "map" and len(x.args) == 1 and x.args[0].shape == x.shape:
        x = x.args[0]
    return x.op.name == "transpose" and x.attrs["axes"][-2] == x.rank - 1


def _grad(o: Any, g: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
    """That of a transposed operand is the transpose of a product, so what it transposes has a
    gradient in the same order."""
    left = o.matmul(g, _swap(o, b))
    if _turned(b):
        return left, _swap(o, o.matmul(_swap(o, g), a))
    return left, o.matmul(_swap(o, a), g)


_CONTRACT = Op("matmul", "contract", _infer, numpy=_numpy, grad=_grad)


@op(Sample(((3, 5), (5, 4))), Sample(((2, 3, 4), (2, 4, 5))), Sample(((2, 3, 4), (4, 5))),
    Sample(((4,), (4, 3))), Sample(((3, 4), (4,))), primitive=_CONTRACT, numpy=np.matmul,
    aliases=("mm", "bmm", "mv"))
def matmul(a: Value, b: Value) -> Value:
    """The matrix product over the last two axes; leading axes broadcast, as in NumPy.

    Args:
        a: Matrices `(..., m, k)`, or a vector `(k,)`.
        b: Matrices `(..., k, n)`, or a vector `(k,)`, of the same dtype.

    Returns:
        A tensor `(..., m, n)`, without the axis of a vector.
    """
    like = a if isinstance(a, Value) else b
    a, b = as_value(a, like), as_value(b, like)
    if a.rank == 0 or b.rank == 0:
        raise shape_error("ops.matmul needs vectors or matrices, not", a.shape, b.shape)
    if b.rank == 1:  # a vector becomes a matrix, and the result loses its axis
        y = matmul(a, OPS.reshape(b, (*b.shape, 1)))
        return OPS.reshape(y, y.shape[:-1])
    if a.rank == 1:
        y = matmul(OPS.reshape(a, (1, *a.shape)), b)
        return OPS.reshape(y, (*y.shape[:-2], y.shape[-1]))
    if a.shape[-1] != b.shape[-2]:
        raise shape_error("cannot multiply matrices of shapes", a.shape, b.shape,
                          fix=f"the last axis of the first, {a.shape[-1]}, must equal the "
                              f"second-last axis of the second, {b.shape[-2]}")
    if a.dtype != b.dtype:
        raise shape_error(f"cannot multiply {a.dtype} and {b.dtype}", fix="cast one to the other")
    if b.rank == 2 and a.rank > 2:  # one large product instead of many small ones
        rows = OPS.reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        return OPS.reshape(_CONTRACT(operand(rows), operand(b)), (*a.shape[:-1], b.shape[-1]))
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = OPS.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = OPS.broadcast_to(b, (*batch, *b.shape[-2:]))
    return _CONTRACT(operand(a), operand(b))


@op(Sample(((3, 5),), {"dtype": f64}), primitive=ROUNDED, numpy=rounded)
def rounded_to(x: Value, dtype: DType | str) -> Value:
    """Rounds to the nearest numbers of a narrower float dtype, and keeps the dtype of x.

    Gradients ignore the rounding.

    Args:
        x: Float tensor.
        dtype: Float dtype to round to, such as `"bfloat16"`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.rounded_to(np.array([1.001, 3.0], np.float32), "bfloat16")
        array([1., 3.], dtype=float32)
    """
    to = as_dtype(dtype)
    if not (x.dtype.is_float and to.is_float):
        raise shape_error(f"ops.rounded_to rounds floats to floats, not {x.dtype} to {to}",
                          fix="use ops.cast, or ops.round")
    return x if to.bits >= x.dtype.bits else ROUNDED(x, dtype=to)
