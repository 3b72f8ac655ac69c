"""Moves the values of iterations to the elements of an array that they write. Positions are sums of
loop variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


def pad_elements(tile: LoopTensor, own: Axes, index: ElementIndex, shape: tuple[int, ...],
                 number: Any) -> Value:
    """The values that iterations write into an array whose other elements are all one number."""
    value = arrange(tile, own, index)
    low = (*[0] * len(own), *(int(positions(p)[0]) for p in index.places
                              if isinstance(p, Affine)))
    ends = (*[v.extent for v in own], *shape)
    high = tuple(n - a - m for n, a, m in zip(ends, low, value.shape, strict=True))
    return OPS.pad(value, low, high, number)


@dataclass(frozen=True)
class Runs:
    """Positions along an axis: `count` runs of `width` neighbors, the first from `start` on, each
    `period` after the last."""

    start: int
    count: int
    period: int
    width: int

    def is_within(self, n: int) -> bool:
        """Whether all of them are on an axis of n elements."""
        return self.start >= 0 and self.start + (self.count - 1) * self.period + self.width <= n


def runs_of(place: Affine) -> Runs | None:
    """The positions of a place as runs; None if they are none."""
    at = positions(place)
    if not len(at):
        return None
    gaps = np.flatnonzero(np.diff(at) != 1)
    width = int(gaps[0]) + 1 if len(gaps) else len(at)
    count = len(at) // width
    period = int(at[width] - at[0]) if count > 1 else width
    runs = at[:1, None] + np.arange(count)[:, None] * period + np.arange(width)
    regular = count * width == len(at) and (at.reshape(count, -1) == runs).all()
    return Runs(int(at[0]), count, period, width) if regular else None


def replace_runs(old: Value, tiles: Sequence[Value], runs: Sequence[Runs], axis: int,
                 combine: Callable[..., Value]) -> Value:
    """The old array with the elements of some runs replaced. As a stack of what is written to each
    place of a period, it has no masks, and writes to other places of the period join it.

    Args:
        old: The array.
        tiles: What is written, and under which condition, in the order of `arrange`.
        runs: Where, on each axis from `axis` on.
        axis: The first axis that may be written in part.
        combine: Called with old elements and their part of each tile; returns the new elements.
    """
    if not runs:
        return combine(old, *tiles)
    (run, *others), n = runs, old.shape[axis]

    def new(elements: Value, first: int, end: int) -> Value:
        parts = [part(tile, axis, first, end) for tile in tiles]
        return replace_runs(elements, parts, others, axis + 1, combine)

    def pieces(start: int, end: int, first: int, width: int) -> list[Value]:
        """A range of the old array in which a run is replaced, from element `first` on."""
        at = run.start + first // run.width * run.period
        inside = new(part(old, axis, at, at + width), first, first + width)
        return [part(old, axis, start, at), inside, part(old, axis, at + width, end)]

    if run.count == 1:
        return joined(pieces(0, n, 0, run.width), axis)
    place = run.start % run.period  # in periods from a multiple of its length on, if it fits there
    place = place if place + run.width <= run.period else 0
    start = run.start - place
    whole = min(run.count, (n - start) // run.period)  # the last period may be cut off
    end = start + whole * run.period
    before, after = old.shape[:axis], old.shape[axis + 1:]
    periods = reshaped(part(old, axis, start, end), (*before, whole, run.period, *after))
    slot = part(periods, axis + 1, place, place + run.width)
    written = new(reshaped(slot, (*before, whole * run.width, *after)), 0, whole * run.width)
    stack = joined([part(periods, axis + 1, 0, place), reshaped(written, slot.shape),
                    part(periods, axis + 1, place + run.width, run.period)], axis + 1)
    rest = [part(old, axis, end, n)] if whole == run.count else pieces(
        end, n, whole * run.width, run.width)
    return joined([part(old, axis, 0, start),
                   reshaped(stack, (*before, end - start, *after)), *rest], axis)


def joined(parts: Sequence[Value], axis: int) -> Value:
    """Parts along an axis; those that are parts themselves as parts of one whole."""
    flat = [x for p in parts if p.shape[axis] for x in (
        p.args if p.op.name == "concat" and p.attrs["axis"] == axis else (p,))]
    return OPS.concat(*flat, axis=axis)


def reshaped(x: Value, shape: tuple[int, ...]) -> Value:
    """The elements of x in another shape, without a chain of them."""
    x = x.args[0] if x.op.name == "reshape" else x
    return OPS.reshape(x, shape)


def part(x: Value, axis: int, start: int, end: int) -> Value:
    """A range along one axis; of what was joined or padded, the values before that."""
    if (start, end) == (0, x.shape[axis]):
        return x
    size = tuple(end - start if k == axis else n for k, n in enumerate(x.shape))
    if x.op.name == "full":
        return OPS.full(size, x.attrs["value"], x.dtype)
    if x.op.name == "concat" and x.attrs["axis"] == axis and start < end:
        parts, first = [], 0
        for y in x.args:
            low, high = max(start - first, 0), min(end - first, y.shape[axis])
            parts += [part(y, axis, low, high)] if low < high else []
            first += y.shape[axis]
        return joined(parts, axis)
    if x.op.name == "pad" and (start, end) == (x.attrs["low"][axis],
                                               x.shape[axis] - x.attrs["high"][axis]) and (
            x.args[0].shape == size):
        return x.args[0]
    origin = tuple(start if k == axis else 0 for k in range(x.rank))
    return OPS.slice(x, origin, (1,) * x.rank, size)
