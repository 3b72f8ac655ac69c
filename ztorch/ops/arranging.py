"""Ops that move elements, under Keras' names."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ztorch import dtypes
from ztorch.dtypes import DType
from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, normal_axes, shape_error
from ztorch.graph.value import Value
from ztorch.ops.indexing import need_integers


@composition(Sample(((2, 3), (2, 3))), Sample(((2, 3), (1, 3)), {"axis": 0}))
def append(x1: Value, x2: Value, axis: int | None = None) -> Value:
    """Concatenates two tensors.

    Args:
        x1: Tensor of any dtype.
        x2: Tensor of the same dtype.
        axis: Axis to join. `None` flattens both first. Default: `None`.

    Returns:
        A tensor with the elements of both.
    """
    return OPS.concat(x1, x2, axis=axis)


@composition(Sample(((3, 4),), {"kth": 2}))
def argpartition(x: Value, kth: int, axis: int = -1) -> Value:
    """Positions in an order in which element `kth` is at its sorted position. Here all elements
    are.

    Args:
        x: Tensor of numbers.
        kth: The position that must be correct.
        axis: The axis along which to order. Default: `-1`.

    Returns:
        An int32 tensor of the shape of `x`.
    """
    [a] = normal_axes(axis, x.rank)
    if not -x.shape[a] <= kth < x.shape[a]:
        raise shape_error(f"ops.argpartition(kth={kth}) is out of range for axis {axis} of",
                          x.shape)
    return OPS.argsort(x, axis)


@composition(Sample(((2, 2),), {"k": 1}))
def diagflat(x: Value, k: int = 0) -> Value:
    """A matrix with the elements on a diagonal.

    Args:
        x: Tensor of any dtype.
        k: The diagonal: above the main one if positive. Default: `0`.

    Returns:
        A square matrix.
    """
    return OPS.diag(OPS.ravel(x), k)


@composition(Sample(((2, 3),)))
def fliplr(x: Value) -> Value:
    """Reverses the second axis.

    Args:
        x: Tensor of two or more axes.

    Returns:
        A tensor of the shape of `x`.
    """
    return OPS.flip(x, 1)


@composition(Sample(((2, 3),)))
def flipud(x: Value) -> Value:
    """Reverses the first axis.

    Args:
        x: Tensor of one or more axes.

    Returns:
        A tensor of the shape of `x`.
    """
    return OPS.flip(x, 0)


@composition(Sample(((2, 4),), {"indices_or_sections": 2}), results=("0", "1"))
def hsplit(x: Value, indices_or_sections: int | tuple[int, ...]) -> tuple[Value, ...]:
    """Splits along the second axis, or the only one.

    Args:
        x: Tensor of one or more axes.
        indices_or_sections: Number of equal parts, or the positions where parts start.

    Returns:
        The parts.

    Examples:
        >>> import ztorch as zt
        >>> [part.shape for part in zt.ops.hsplit(np.ones((2, 4)), 2)]
        [(2, 2), (2, 2)]
    """
    return OPS.split(x, indices_or_sections, 1 if x.rank > 1 else 0)


@composition(Sample(((4, 2),), {"indices_or_sections": 2}), results=("0", "1"))
def vsplit(x: Value, indices_or_sections: int | tuple[int, ...]) -> tuple[Value, ...]:
    """Splits along the first axis.

    Args:
        x: Tensor of two or more axes.
        indices_or_sections: Number of equal parts, or the positions where parts start.

    Returns:
        The parts.

    Examples:
        >>> import ztorch as zt
        >>> [part.shape for part in zt.ops.vsplit(np.ones((4, 2)), (1,))]
        [(1, 2), (3, 2)]
    """
    return OPS.split(x, indices_or_sections, 0)


@composition(Sample(((2, 1, 4),), {"indices_or_sections": 2}), results=("0", "1"))
def dsplit(x: Value, indices_or_sections: int | tuple[int, ...]) -> tuple[Value, ...]:
    """Splits along the third axis.

    Args:
        x: Tensor of three or more axes.
        indices_or_sections: Number of equal parts, or the positions where parts start.

    Returns:
        The parts.

    Examples:
        >>> import ztorch as zt
        >>> [part.shape for part in zt.ops.dsplit(np.ones((2, 1, 4)), 2)]
        [(2, 1, 2), (2, 1, 2)]
    """
    return OPS.split(x, indices_or_sections, 2)


@composition(Sample(((2, 3), (2, 3))))
def dstack(*xs: Value) -> Value:
    """Stacks tensors along the third axis.

    Args:
        *xs: Tensors of one dtype, or a list of them.

    Returns:
        A tensor of three or more axes.
    """
    wide = []
    for x in xs:
        row = OPS.reshape(x, (1, x.size)) if x.rank < 2 else x
        wide.append(OPS.expand_dims(row, 2) if row.rank < 3 else row)
    return OPS.concat(*wide, axis=2)


@composition(Sample(((2, 6),), {"shape": (3, -1)}))
def view(x: Value, shape: int | tuple[int, ...] | DType | str | None = None,
         dtype: DType | str | None = None) -> Value:
    """The elements in another shape, or their bits read as another dtype.

    Args:
        x: Tensor of any dtype.
        shape: Shape of the result, in which one axis may be -1. `None` means that of `x`; a dtype
            in its place is `dtype`. Default: `None`.
        dtype: Dtype of the result. The last axis has as many bytes as before, so its size changes
            where the size of the dtype does. `None` means that of `x`. Default: `None`.

    Returns:
        A tensor of this shape and dtype.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.view(np.array([1.0], np.float32), "int32")
        array([1065353216], dtype=int32)
        >>> zt.ops.view(np.array([258, 3], np.int16), "uint8")
        array([2, 1, 3, 0], dtype=uint8)
    """
    if not isinstance(shape, (type(None), int, list, tuple)):
        shape, dtype = None, shape
    y = x if dtype is None else _bits(x, dtypes.dtype(dtype))
    return y if shape is None else OPS.reshape(y, shape)


def _bits(x: Value, to: DType) -> Value:
    """The bits of x as another dtype, the lowest of a number first, as memory has them."""
    small, large = sorted((x.dtype.bits, to.bits))
    if small == large or small % 8 or not x.rank or x.shape[-1] * x.dtype.bits % to.bits:
        return OPS.bitcast(x, to)  # raises an error for other sizes
    narrow, wide, count = f"uint{small}", f"uint{large}", large // small
    if to.bits == small:
        bits = OPS.bitcast(x, wide)
        parts = [OPS.cast(OPS.shift_right(bits, small * k), narrow) for k in range(count)]
        joined = OPS.reshape(OPS.stack(*parts, axis=-1), (*x.shape[:-1], x.shape[-1] * count))
    else:
        rows = OPS.reshape(OPS.cast(OPS.bitcast(x, narrow), wide), (*x.shape[:-1], -1, count))
        shifted = [OPS.shift_left(rows[..., k], small * k) for k in range(count)]
        joined = reduce(OPS.bitwise_or, shifted)
    return OPS.bitcast(joined, to)


@composition(Sample(((4,),), {"N": 3}))
def vander(x: Value, N: int | None = None, increasing: bool = False) -> Value:
    """The powers of each number, from the highest to 1.

    Args:
        x: Vector of numbers.
        N: Number of powers. `None` means the length of `x`. Default: `None`.
        increasing: Whether powers are ascending. Default: `False`.

    Returns:
        A matrix with a row for each number.
    """
    if x.rank != 1:
        raise shape_error("ops.vander takes a vector, not", x.shape)
    count = x.shape[0] if N is None else N
    if not count:
        return OPS.full((x.size, 0), 0, x.dtype)
    powers = [OPS.ones_like(x)]
    for _ in range(count - 1):
        powers.append(powers[-1] * x)
    return OPS.stack(*(powers if increasing else powers[::-1]), axis=1)


@composition(Sample((), {"N": 3, "M": 4, "k": 1}))
def tri(N: int, M: int | None = None, k: int = 0,
        dtype: DType | str | None = None) -> Value:
    """Ones on and below a diagonal, zeros above it.

    Args:
        N: Number of rows.
        M: Number of columns. `None` means `N`. Default: `None`.
        k: The diagonal: above the main one if positive. Default: `0`.
        dtype: Dtype of the result. `None` means float32. Default: `None`.

    Returns:
        A matrix.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.tri(2).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    shape = (N, N if M is None else M)
    return OPS.cast(OPS.iota(shape, 1) <= OPS.iota(shape, 0) + k, dtype or "float32")


@composition(Sample((np.array([5, 0, 11], np.int32),), {"shape": (3, 4)}), results=("0", "1"))
def unravel_index(indices: Value, shape: tuple[int, ...]) -> tuple[Value, ...]:
    """Positions in a flattened tensor as positions along each axis.

    Args:
        indices: Integer tensor.
        shape: The shape of the tensor that was flattened.

    Returns:
        An integer tensor for each axis, of at least 32 bits.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.unravel_index(np.array([5]), (3, 4))
        (array([1]), array([1]))
    """
    indices, parts = need_integers("unravel_index", indices), []
    for n in reversed(shape):
        parts.append(OPS.remainder(indices, n))
        indices = OPS.floor_divide(indices, n)
    return tuple(reversed(parts))
