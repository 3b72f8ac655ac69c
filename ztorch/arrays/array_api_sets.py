"""Set and search functions of the array API. The shapes of their results depend on values.

Such a shape is known only after the values are computed, so these functions compute them at once
and cannot be called in a function that is being compiled. They sort the elements, or count them by
value if they are integers from a short range.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ztorch.arrays.complex_tensor import ComplexTensor
from ztorch.arrays.creation import full, tensor
from ztorch.arrays.ranges import arange
from ztorch.arrays.realize import realize
from ztorch.arrays.tensor import Tensor, compute
from ztorch.dtypes import i32
from ztorch.errors import ShapeError

# Values that a tally may have for each integer, and beyond that: sorting takes ten times as long as
# counting.
TALLY_SHARE, SHORT_TALLY = 4, 256


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
    flat = x.reshape(-1)
    if (tally := _tally_of(flat)) is not None:
        return tally.values
    ordered = _taken(flat, _order(flat))
    return _marked(ordered, _starts(ordered))


def unique_counts(x: Tensor, /) -> UniqueCountsResult:
    """The distinct elements, and the number of times each occurs.

    Args:
        x: A tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.array_api.unique_counts(zt.tensor([3, 1, 3])).counts.tolist()
        [1, 2]
    """
    flat = x.reshape(-1)
    if (tally := _tally_of(flat)) is not None:
        return UniqueCountsResult(tally.values, _taken(tally.counts, tally.found))
    ordered = _taken(flat, _order(flat))
    starts = _starts(ordered)
    return UniqueCountsResult(_marked(ordered, starts), _lengths(starts))


def unique_inverse(x: Tensor, /) -> UniqueInverseResult:
    """The distinct elements, and for each element of x its index among them.

    Args:
        x: A tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.array_api.unique_inverse(zt.tensor([3, 1, 3])).inverse_indices.tolist()
        [1, 0, 1]
    """
    flat = x.reshape(-1)
    if (tally := _tally_of(flat)) is not None:
        return UniqueInverseResult(tally.values, tally.inverse.reshape(x.shape))
    order = _order(flat)
    ordered = _taken(flat, order)
    starts = _starts(ordered)
    return UniqueInverseResult(_marked(ordered, starts), _inverse(starts, order).reshape(x.shape))


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
    flat = x.reshape(-1)
    if (tally := _tally_of(flat)) is not None:
        positions = _positions(x.size, x)
        firsts = compute("segment_min", (positions, tally.places, tally.counts.size), {})
        return UniqueAllResult(tally.values, _taken(firsts, tally.found),
                               tally.inverse.reshape(x.shape), _taken(tally.counts, tally.found))
    order = _order(flat)
    ordered = _taken(flat, order)
    starts = _starts(ordered)
    return UniqueAllResult(_marked(ordered, starts), order[starts],
                           _inverse(starts, order).reshape(x.shape), _lengths(starts))


class _Tally:
    """Integers from a short range, counted by value.

    Args:
        flat: The integers.
        least: The least of them.
        span: The number of values from it to the greatest one.
    """

    def __init__(self, flat: Tensor, least: int, span: int):
        self.least, self.dtype, self.device = least, flat.dtype, flat.device
        self.wide = flat.dtype if flat.dtype.bits >= i32.bits else i32  # holds all places
        self.places = (flat.astype(self.wide) - least).astype(i32)  # the value that each one is
        ones = compute("ones_like", (self.places,), {})
        self.counts: Tensor = compute("segment_sum", (ones, self.places, span), {})
        self._occurring = np.flatnonzero(self.counts.numpy() != 0)  # their number is a shape

    @property
    def found(self) -> Tensor:
        """The places of the values that occur."""
        return tensor(self._occurring.astype(np.int32), device=self.device)

    @property
    def values(self) -> Tensor:
        """The values that occur, in ascending order."""
        wide = self.wide.numpy
        values = self._occurring.astype(wide) + wide.type(self.least)
        return tensor(values.astype(self.dtype.numpy), device=self.device)

    @property
    def inverse(self) -> Tensor:
        """For each integer the number of smaller values that occur."""
        occurs: Tensor = compute("not_equal", (self.counts, 0), {})
        ranks = compute("cumsum", (occurs.astype(i32),), {"axis": 0}) - 1
        return _taken(ranks, self.places)


def _tally_of(flat: Any) -> _Tally | None:
    """The tally of integers; None if they are few for their range, or no integers."""
    if not flat.dtype.is_int or not flat.size:
        return None
    bounds = [compute(name, (flat,), {}) for name in ("min", "max")]
    realize([bound.node for bound in bounds])
    least, most = (bound.item() for bound in bounds)
    span = most - least + 1
    return _Tally(flat, least, span) if span <= TALLY_SHARE * flat.size + SHORT_TALLY else None


def _starts(ordered: Tensor) -> Tensor:
    """Of elements in order, whether each differs from the one before it."""
    first = full((min(ordered.size, 1),), True, device=ordered.device)
    starts: Tensor = compute("concat", (first, ordered[1:] != ordered[:-1]), {"axis": 0})
    return starts


def _marked(ordered: Any, starts: Tensor) -> Any:
    """The first element of each group. Both are computed together before the number of groups is
    asked for, and elements in memory are marked at once."""
    if isinstance(ordered, Tensor):
        realize([ordered.node, starts.node])
    return ordered[starts]


def _lengths(starts: Tensor) -> Tensor:
    """The number of elements in each group that starts say."""
    n = starts.size
    begins = _positions(n, starts)[starts]
    end = full((min(n, 1),), n, "int32", starts.device)
    lengths: Tensor = compute("concat", (begins[1:], end), {"axis": 0}) - begins
    return lengths


def _inverse(starts: Tensor, order: Tensor) -> Tensor:
    """The group of each element before it was put in order."""
    group = compute("cumsum", (starts.astype("int32"),), {"axis": 0}) - 1
    return _taken(group, compute("argsort", (order,), {}))


def _taken(x: Any, at: Tensor) -> Any:
    return compute("take", (x, at), {"axis": 0})


def _order(flat: Any) -> Tensor:
    """The indices that sort the elements; complex ones are sorted by their real parts first."""
    if not isinstance(flat, ComplexTensor):
        order: Tensor = compute("argsort", (flat,), {})
        return order
    by_imag = _order(flat.imag)
    taken: Tensor = _taken(by_imag, _order(_taken(flat.real, by_imag)))
    return taken


def _positions(n: int, like: Any) -> Tensor:
    return arange(n, dtype="int32", device=like.device)
