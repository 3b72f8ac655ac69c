"""Moves the values of iterations to the elements of an array that they write. Positions are sums of
loop variables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.kernels.reading import ElementIndex
from ztorch.kernels.tiles import Affine, Axes, LoopTensor, LoopVar, full, union


def _terms(place: Affine) -> list[tuple[LoopVar, int]]:
    return sorted(place.terms.items(), key=lambda item: -abs(item[1]))


def arrange(tile: LoopTensor, own: Axes, index: ElementIndex) -> Value:
    """The values of a tile with the axes of the array: along each, iterations are in the order of
    their positions."""
    order = [*own]
    sizes = [v.extent for v in own]
    flipped = []
    for place in index.places:
        assert isinstance(place, Affine)
        for v, c in _terms(place):
            if c < 0:
                flipped.append(len(order))
            order.append(v)
        sizes.append(math.prod(v.extent for v in place.terms))
    axes = union([tuple(order)])
    value = full(tile, axes)
    value = OPS.transpose(value, tuple(axes.index(v) for v in order))
    if flipped:
        value = OPS.flip(value, tuple(flipped))
    return OPS.reshape(value, tuple(sizes))


def place_elements(tile: LoopTensor, own: Axes, index: ElementIndex, shape: tuple[int, ...]
                   ) -> tuple[Value, Value | None]:
    """The value that iterations write to each element of the array, and a mask of the elements that
    they write; None if they write all."""
    value = arrange(tile, own, index)
    covered: Value | None = None
    for k, (place, n) in enumerate(zip(index.places, shape, strict=True)):
        assert isinstance(place, Affine)
        at = positions(place)
        axis = len(own) + k
        if len(at) == n and (at == np.arange(n)).all():
            continue
        inverse, mask = np.zeros(n, np.int32), np.zeros(n, bool)
        inside = (at >= 0) & (at < n)
        inverse[at[inside]] = np.arange(len(at))[inside]
        mask[at[inside]] = True
        if len(at) == 1:
            value = OPS.broadcast_to(value, tuple(
                n if a == axis else m for a, m in enumerate(value.shape)))
        else:
            value = OPS.take(value, constant(inverse), axis=axis)
        flags = constant(mask.reshape([n if a == axis else 1 for a in range(value.rank)]))
        covered = flags if covered is None else OPS.logical_and(covered, flags)
    return value, covered


def positions(place: Affine) -> np.ndarray:
    """The positions along an axis, in the order of `arranged`."""
    at = np.full((), place.const + sum(c * (v.extent - 1) for v, c in _terms(place) if c < 0))
    for v, c in _terms(place):
        at = at[..., None] + np.arange(v.extent) * abs(c)
    return at.reshape(-1)


def contiguous(index: ElementIndex) -> bool:
    """Whether the elements that iterations write are adjacent."""
    return all(isinstance(p, Affine) and (np.diff(positions(p)) == 1).all()
               for p in index.places)


def pad_elements(tile: LoopTensor, own: Axes, index: ElementIndex, shape: tuple[int, ...],
                 number: Any) -> Value:
    """The values that iterations write into an array whose other elements are all one number."""
    value = arrange(tile, own, index)
    low = (*[0] * len(own), *(int(positions(p)[0]) for p in index.places
                              if isinstance(p, Affine)))
    ends = (*[v.extent for v in own], *shape)
    high = tuple(n - a - m for n, a, m in zip(ends, low, value.shape, strict=True))
    return OPS.pad(value, low, high, number)


def replace_range(old: Value, tile: LoopTensor, own: Axes, index: ElementIndex) -> Value | None:
    """The old array with a range of one axis replaced by the written elements; None if they are no
    such range."""
    value = arrange(tile, own, index)
    axes = [k for k, (n, m) in enumerate(zip(old.shape, value.shape, strict=True)) if n != m]
    if len(axes) != 1:
        return None
    [axis] = axes
    place = index.places[axis - len(own)]
    assert isinstance(place, Affine)
    start = int(positions(place)[0])
    end = start + value.shape[axis]
    parts = [_part(old, axis, 0, start), value, _part(old, axis, end, old.shape[axis])]
    return OPS.concat(*(p for p in parts if p.size), axis=axis)


def _part(x: Value, axis: int, start: int, end: int) -> Value:
    """A range along one axis; if it is exactly what was padded, the value before padding."""
    if x.op.name == "pad" and (start, end) == (x.attrs["low"][axis],
                                               x.shape[axis] - x.attrs["high"][axis]) and (
            x.args[0].shape[:axis] + x.args[0].shape[axis + 1:]
            == x.shape[:axis] + x.shape[axis + 1:]):
        return x.args[0]
    first, size = [0] * x.rank, [*x.shape]
    first[axis], size[axis] = start, end - start
    return OPS.slice(x, tuple(first), (1,) * x.rank, tuple(size))
