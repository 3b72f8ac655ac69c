"""Set and search functions of the array API. The shapes of their results depend on values.

Such a shape is known only after the values are computed, so these functions compute them at once
and cannot be called in a function that is being compiled. They sort the elements.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ztorch.arrays.complex_tensor import ComplexTensor
from ztorch.arrays.creation import full
from ztorch.arrays.ranges import arange
from ztorch.arrays.tensor import Tensor, compute
from ztorch.errors import ShapeError


class UniqueAllResult(NamedTuple):
    """The result of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCountsResult(NamedTuple):
    """The result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverseResult(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The positions of the elements that are not zero: a vector for each axis.

    Args:
        x: A tensor with one axis or more.

    Examples:
        >>> import ztorch as zt
        >>> [at.tolist() for at in zt.array_api.nonzero(zt.tensor([[0, 2], [3, 0]]))]
        [[0, 1], [1, 0]]
    """
    if not x.ndim:
        raise ShapeError("nonzero takes a tensor with one axis or more, not a single number")
    at = _positions(x.size, x)[x.reshape(-1) != 0]
    parts: list[Tensor] = []
    for n in reversed(x.shape):
        parts.append(at % n)
        at = at // n
    return tuple(reversed(parts))


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements, in ascending order; each NaN counts as distinct.

    Args:
        x: A tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.array_api.unique_values(zt.tensor([3, 1, 3])).tolist()
        [1, 3]
    """
    return unique_all(x).values


def unique_counts(x: Tensor, /) -> UniqueCountsResult:
    """The distinct elements, and the number of times each occurs.

    Args:
        x: A tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.array_api.unique_counts(zt.tensor([3, 1, 3])).counts.tolist()
        [1, 2]
    """
    result = unique_all(x)
    return UniqueCountsResult(result.values, result.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverseResult:
    """The distinct elements, and for each element of x its index among them.

    Args:
        x: A tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.array_api.unique_inverse(zt.tensor([3, 1, 3])).inverse_indices.tolist()
        [1, 0, 1]
    """
    result = unique_all(x)
    return UniqueInverseResult(result.values, result.inverse_indices)


def unique_all(x: Tensor, /) -> UniqueAllResult:
    """The distinct elements, the index of each one's first occurrence, for each element of x its
    index among them, and the number of times each occurs.

    Args:
        x: A tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.array_api.unique_all(zt.tensor([3, 1, 3])).indices.tolist()
        [1, 0]
    """
    flat, n = x.reshape(-1), x.size
    order = _order(flat)
    ordered = compute("take", (flat, order), {"axis": 0})
    first = full((min(n, 1),), True, device=x.device)
    starts = compute("concat", (first, ordered[1:] != ordered[:-1]), {"axis": 0})
    begins = _positions(n, x)[starts]
    ends = compute("concat", (begins[1:], full((min(n, 1),), n, "int32", x.device)), {"axis": 0})
    group = compute("cumsum", (starts.astype("int32"),), {"axis": 0}) - 1
    inverse = compute("take", (group, compute("argsort", (order,), {})), {"axis": 0})
    return UniqueAllResult(ordered[starts], order[starts], inverse.reshape(x.shape), ends - begins)


def _order(flat: Any) -> Tensor:
    """The indices that sort the elements; complex ones are sorted by their real parts first."""
    if not isinstance(flat, ComplexTensor):
        order: Tensor = compute("argsort", (flat,), {})
        return order
    by_imag = _order(flat.imag)
    by_real = _order(compute("take", (flat.real, by_imag), {"axis": 0}))
    order = compute("take", (by_imag, by_real), {"axis": 0})
    return order


def _positions(n: int, like: Any) -> Tensor:
    return arange(n, dtype="int32", device=like.device)
