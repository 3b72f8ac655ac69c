"""Positions of elements: from an index along each axis to one in memory, and back."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

from ztorch.lower.index import CACHE_SIZE, Index, Var


def strides(shape: Sequence[int]) -> list[int]:
    """The stride of each axis, row-major."""
    return [math.prod(shape[k + 1:]) for k in range(len(shape))]


def flatten(index: Iterable[Index], shape: Sequence[int]) -> Index:
    """The row-major position of an element."""
    return _flatten(tuple(index), tuple(shape))


@functools.lru_cache(CACHE_SIZE)
def _flatten(index: tuple[Index, ...], shape: tuple[int, ...]) -> Index:
    flat = Index()
    for i, s, n in zip(index, strides(shape), shape, strict=True):
        if n != 1:
            flat = flat + i * s
    return flat


def proper(index: Sequence[Index], shape: Sequence[int]) -> tuple[Index, ...]:
    """The index with zero on axes of size 1. Concatenation reads its parts at all positions, and
    masks those that a part lacks."""
    return tuple(Index() if n == 1 else i for i, n in zip(index, shape, strict=True))


def unflatten(flat: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """The element at a row-major position."""
    return _unflatten(flat, tuple(shape))


@functools.lru_cache(CACHE_SIZE)
def _unflatten(flat: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    if 0 in shape:
        return (Index(),) * len(shape)
    return tuple((flat // s) % n for s, n in zip(strides(shape), shape, strict=True))


def vector_start(at: Index, axis: Var, n: int) -> Index | None:
    """The position of the first of n neighbors along an axis, if all n are contiguous for every
    multiple of n. In the result, the axis variable counts these multiples.

    >>> k = Var("k", 24)
    >>> at = Index.of(k) // 8 * 100 + Index.of(k) % 8
    >>> vector_start(at, k, 4) is None, vector_start(at, k, 3) is None
    (False, True)
    """
    block = Index.of(Var(axis.name, axis.extent // n)) * n
    first, *others = (at.replace({axis: block + i}) for i in range(n))
    return first if all(x == first + i for i, x in enumerate(others, 1)) else None
