"""Functions of `zt.ops` whose result shapes depend on values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch import ops
from ztorch.arrays.array_api_sets import nonzero as _nonzero
from ztorch.arrays.array_api_sets import unique_all, unique_values
from ztorch.arrays.complex_tensor import ComplexTensor
from ztorch.arrays.creation import tensor
from ztorch.arrays.tensor import Tensor
from ztorch.dtypes import DType
from ztorch.errors import DataError, ShapeError, Unsupported
from ztorch.graph.tracing import NotTraced
from ztorch.graph.value import StandIn, Value, stand_in


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor: computed, pending, a graph value, or part of a model's declaration.

    Args:
        x: Anything.

    Examples:
        >>> is_tensor(Tensor([1.0])), is_tensor([1.0])
        (True, False)
    """
    return isinstance(x, (Tensor, Value, StandIn))


def convert_to_tensor(x: Any, dtype: DType | str | None = None, sparse: bool | None = None,
                      ragged: bool | None = None) -> Any:
    """Converts x to a tensor.

    Args:
        x: A tensor, an array, a number, or nested lists of numbers.
        dtype: The dtype; `None` means the dtype of x. Default: `None`.
        sparse: Has no effect: tensors are dense. Default: `None`.
        ragged: Has no effect: rows have one length. Default: `None`.

    Examples:
        >>> convert_to_tensor([1, 2], "float32").tolist()
        [1.0, 2.0]
    """
    if is_tensor(x):
        return x if dtype is None or x.dtype == dtype else ops.cast(x, dtype)
    return tensor(x, dtype)


def nonzero(x: Any) -> tuple[Tensor, ...]:
    """The indices of the nonzero elements: a vector for each axis. Computes x.

    Args:
        x: A tensor or array with one axis or more.

    Examples:
        >>> [at.tolist() for at in nonzero([[0, 2], [3, 0]])]
        [[0, 1], [1, 0]]
    """
    return _nonzero(convert_to_tensor(x))


def unique(x: Any, sorted: bool = True, return_index: bool = False, return_inverse: bool = False,
           return_counts: bool = False, axis: int | None = None, size: int | None = None,
           fill_value: Any = None) -> Any:
    """The distinct elements, in ascending order. Computes x.

    Args:
        x: A tensor or array.
        sorted: Has no effect: the result is always sorted. Default: `True`.
        return_index: Whether to return the index of each element's first occurrence. Default:
            `False`.
        return_inverse: Whether to return, for each element of x, its index in the result. Default:
            `False`.
        return_counts: Whether to return the number of occurrences. Default: `False`.
        axis: Must be `None`. Default: `None`.
        size: The number of elements in the result; `None` means all. Default: `None`.
        fill_value: The padding value if `size` is larger; `None` means the smallest element.
            Default: `None`.

    Examples:
        >>> unique([3, 1, 3]).tolist()
        [1, 3]
    """
    if axis is not None:
        raise Unsupported("ops.unique compares single elements and has no axis=")
    x = convert_to_tensor(x)
    if size is None and not (return_index or return_inverse or return_counts):
        return unique_values(x)
    different = unique_all(x)
    parts = [different.values, *(part for part, is_returned in (
        (different.indices, return_index), (different.inverse_indices, return_inverse),
        (different.counts, return_counts)) if is_returned)]
    if size is not None:
        fill = different.values[0] if fill_value is None else fill_value
        more = max(size - len(different.values), 0)
        parts = [part if part is different.inverse_indices else ops.concat([part[:size], ops.full(
            (more,), 0, part.dtype) + (fill if k == 0 else 0)]) for k, part in enumerate(parts)]
    return parts[0] if len(parts) == 1 else tuple(parts)


def bincount(x: Any, weights: Any = None, minlength: int = 0, sparse: bool = False) -> Tensor:
    """Counts the occurrences of each integer from 0 up. Computes x.

    Args:
        x: Non-negative integers: a vector, or rows of them.
        weights: A weight for each integer; `None` means 1. Default: `None`.
        minlength: The minimum length of the result. Default: `0`.
        sparse: Has no effect: tensors are dense. Default: `False`.

    Raises:
        DataError: x has a negative integer.
        NotTraced: x belongs to a model or to a function that is being compiled.

    Examples:
        >>> bincount([2, 0, 2]).tolist()
        [1, 0, 2]
    """
    labels = convert_to_tensor(x, "int32")
    try:
        least, most = (int(ops.min(labels)), int(ops.max(labels))) if labels.size else (0, -1)
    except TypeError:
        raise NotTraced("the result of ops.bincount is as long as the largest number needs, which "
                        "is not known while a model or function is compiled; sum one-hot rows of "
                        "a fixed length: ops.sum(ops.one_hot(x, 8, dtype='int32'), axis=-2)"
                        ) from None
    if least < 0:
        raise DataError("ops.bincount counts non-negative integers, and x has a negative one")
    count = max(most + 1, minlength)
    of = "int32" if weights is None else convert_to_tensor(weights).dtype
    ones = ops.one_hot(labels, count, of)
    if weights is not None:
        ones = ones * ops.expand_dims(convert_to_tensor(weights), -1)
    return ops.sum(ones, axis=-2)


def eig(x: Any) -> tuple[ComplexTensor, ComplexTensor]:
    """The eigenvalues and eigenvectors of square matrices; in general they are complex.

    NumPy computes them on the host; there is no kernel. `ops.eigh`, for symmetric matrices, is an
    op with gradients.

    Args:
        x: Matrices `(..., n, n)`: an array, or a tensor, which is computed now.

    Returns:
        `(eigenvalues, eigenvectors)` of shapes `(..., n)` and `(..., n, n)`. The columns of the
        second are eigenvectors of length 1.

    Raises:
        Unsupported: x belongs to a model or to a function that is being compiled.
        DataError: x has values that are not finite.

    Examples:
        >>> values, vectors = eig(np.array([[0.0, -1.0], [1.0, 0.0]]))
        >>> sorted(values.tolist(), key=lambda v: v.imag)
        [-1j, 1j]
    """
    if isinstance(x, Value) or stand_in((x,)) is not None:
        raise Unsupported("ops.eig works on the host, on tensors whose numbers are known, and not "
                          "in models and programs; ops.eigh of symmetric matrices does")
    array = np.asarray(convert_to_tensor(x).numpy())
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise ShapeError(f"ops.eig needs square matrices, not {array.shape}")
    if not np.isfinite(array).all():
        raise DataError("ops.eig needs finite numbers")
    wide = array.dtype.itemsize == (16 if array.dtype.kind == "c" else 8)
    d = np.complex128 if wide else np.complex64
    return tuple(tensor(part.astype(d)) for part in np.linalg.eig(array))  # type: ignore[return-value]
