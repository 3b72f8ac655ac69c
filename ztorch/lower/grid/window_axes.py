"""The operands of a convolution, as a matrix product, in the form of boxes with several axes.

A dimension of such a product (m, n or k) combines several parts: positions in a batch of images, or
offsets in a window and channels. A coordinate in memory is a sum of parts. So a patch of positions
is a box, a window offset moves the box, and positions outside an image are outside the box's
bounds, where copies fill in zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from ztorch.graph.narrow import ROUNDED
from ztorch.graph.value import Value
from ztorch.ir.kernel import SWIZZLE_LINE
from ztorch.ir.product_rules import CHUNK
from ztorch.ir.ring_rules import MAX_AXES
from ztorch.lower.index import Index, Quotient, Remainder, Var
from ztorch.lower.positions import proper, unflatten
from ztorch.lower.region import as_view, certain, is_view, traced, view_of

Parts = tuple[Var, ...]  # of a dimension, outermost first


@dataclass(frozen=True)
class Axis:
    """An axis of an operand in memory."""

    extent: int
    pitch: int
    at: Index  # the coordinate, a sum of parts


@dataclass(frozen=True)
class Boxed:
    """An operand in memory."""

    source: Value
    first: int  # element of the source at the origin
    axes: tuple[Axis, ...]  # the first one is contiguous

    @property
    def inner(self) -> Var | None:
        """The contiguous part."""
        near, *others = sorted(self.axes[0].at.terms, key=lambda term: term[1])
        line = SWIZZLE_LINE // self.source.dtype.bytes
        alone = near[1] == 1 and not any(f % line for _, f in others)
        return near[0] if alone and isinstance(near[0], Var) else None

    def axis_of(self, part: Var) -> Axis | None:
        """The axis along which a part moves a box in steps of one; None if there is none."""
        moved = [a for a in self.axes if a.at.factor(part)]
        return moved[0] if len(moved) == 1 and moved[0].at.factor(part) == 1 else None


@dataclass(frozen=True)
class WindowAxes:
    """A product whose operands are boxes."""

    m: Parts
    n: Parts
    k: Parts
    batch: Var
    operands: tuple[Boxed, Boxed]
    parts: tuple[Value, ...]  # the sources of the right operand: of each part, if it has parts

    @property
    def contiguous(self) -> tuple[bool, bool, bool]:
        """For m, n and k: whether the dimension is contiguous in an operand."""
        inner = {x.inner for x in self.operands}
        return self.m[-1] in inner, self.n[-1] in inner, self.k[-1] in inner

    @property
    def spatial(self) -> Parts:
        """The dimension that patches of positions are cut from: m, or else k."""
        return self.k if self.contiguous[0] else self.m

    @property
    def slides(self) -> bool:
        """Whether windows move over images: a coordinate is a sum of several parts."""
        return any(len(a.at.terms) > 1 for a in self.operands[0].axes)

    def tap(self) -> tuple[Var, Var, int] | None:
        """A window axis along which the products of a strip can share one copy: the part, the
        position that it moves, and by how much."""
        others = self.m if self.contiguous[0] else self.k
        for position in self.spatial:
            axis = self.operands[0].axis_of(position)
            for place in others[:-1]:
                step = axis.at.factor(place) if axis else 0
                if step > 0:
                    return place, position, step
        return None


def seen_through(v: Value) -> Value:
    """A product's operand as views alone: no copies and no stored padding. Rounding comes before
    movement, where there are the fewest elements."""
    moves, rounding, x = [], None, v
    while len(x.args) == 1 and (x.op.movement or x.op is ROUNDED or _is_border(x)):
        if x.op is ROUNDED:
            rounding = x.attrs["dtype"]
        elif not x.op.written:
            moves.append(x)
        x = x.args[0]
    if rounding is not None:
        x = ROUNDED(x, dtype=rounding)
    for move in reversed(moves):
        x = Value(move.op, (x,), move.attrs, move.shape, move.dtype)
        x = as_view(x) if _is_border(x) else x
    return x


def _is_border(v: Value) -> bool:
    return v.op.name == "pad" and v.attrs["value"] == 0


def windows_of(product: Value) -> WindowAxes | None:
    """The operands of a product as boxes; None if a layout does not allow it or is not aligned."""
    (m, n), k = product.shape[-2:], product.args[0].shape[-1]
    batch = Var("b", math.prod(product.shape[:-2]))
    down, along, deep = Var("m", m), Var("n", n), Var("k", k)
    batch_index = unflatten(Index.of(batch), product.shape[:-2])
    bases = []
    for n, x in enumerate(product.args):
        row, column = (deep, along) if n else (down, deep)
        base = base_of(x, (*batch_index, Index.of(row), Index.of(column)))
        if base is None:
            return None
        bases.append(base)
    indices = [i for _, index, _ in bases for i in index]
    parts = {v: digits_of(v, indices) for v in (down, along, deep)}
    merged: dict[Var, Index] = {}
    for v, split in parts.items():
        if split is None:
            return None
        merged[v] = whole(split)
    rows, columns, steps = (split or () for split in parts.values())
    for phases in (False, True):
        left, *others = (_boxed(*base, merged, phases) for base in bases)
        if left is None or None in others:
            return None
        sources = tuple(x.source for x in others if x is not None)
        assert others[0] is not None
        windows = WindowAxes(rows, columns, steps, batch, (left, others[0]), sources)
        if _fits(windows):
            return windows
    return None


def base_of(v: Value, index: Sequence[Index]) -> tuple[Value, tuple[Index, ...], bool] | None:
    """The source of a chain of views, the index, and whether that may be outside, in zero padding.
    """
    index = proper(index, v.shape)
    while is_view(v):
        trace = traced(v, index)
        if len(trace.reads) != 1 or not v.op.movement:
            return None
        source, at = trace.reads[0]
        if trace.computed and not trace.bounds:
            return None
        border, v, index = bool(trace.bounds), source, proper(at, source.shape)
        if border:
            return v, index, True
    return v, index, False


def digits_of(v: Var, indices: Sequence[Index]) -> Parts | None:
    """The parts into which indices divide a dimension; None if their divisors do not nest."""
    cuts = sorted({1, v.extent, *(c for i in indices for c in _cuts(i, v))})
    if any(b % a for a, b in pairwise(cuts)):
        return None
    sizes = [b // a for a, b in pairwise(cuts)][::-1] or [1]
    return tuple(Var(f"{v.name}{i}", size, kept=i == len(sizes) - 1)
                 for i, size in enumerate(sizes))


def whole(parts: Parts) -> Index:
    """The dimension that parts divide."""
    return sum((Index.of(p) * math.prod(q.extent for q in parts[i + 1:])
                for i, p in enumerate(parts)), Index())


def _cuts(index: Index, v: Var) -> Iterator[int]:
    """The periods of quotients and remainders of a variable."""
    for a in index.parts:
        if a.inner.mentions(v):
            unit = _unit(a.inner, v)
            if unit is not None and (unit * a.by).denominator == 1:
                yield int(unit * a.by)
            yield from _cuts(a.inner, v)


def _unit(index: Index, v: Var) -> Fraction | None:
    """The increment of a variable that increments an index by one."""
    for atom, factor in index.terms:
        if atom == v:
            return Fraction(1, abs(factor))
        if isinstance(atom, (Quotient, Remainder)) and atom.inner.mentions(v):
            inner = _unit(atom.inner, v)
            by = atom.by if isinstance(atom, Quotient) else 1
            return inner and inner * by / abs(factor)
    return None


def _boxed(base: Value, index: Sequence[Index], bordered: bool,
           full: Mapping[Var, Index], phases: bool) -> Boxed | None:
    """An operand as boxes; with `phases`, axes along which windows move several elements at once
    are two."""
    loops = [Var(f"d{k}", n) for k, n in enumerate(base.shape)]
    positions = [Index.of(v) for v in loops]
    memory = view_of(base, positions)
    if memory is None or not certain(base, positions) or not memory[1].is_affine:
        return None
    (source, flat), axes = memory, []
    chunk, first = CHUNK // source.dtype.bytes, flat.const
    for i, v in zip(index, loops, strict=True):
        at, pitch = i.replace(dict(full)), flat.factor(v)
        terms = at.terms
        if not at.is_affine or any(not isinstance(a, Var) for a, _ in terms) or (
                pitch < (v.extent > 1)):
            return None
        if not bordered and not terms:
            first += at.const * pitch
        elif not bordered and _are_digits(at):
            first += at.const * pitch
            axes += [Axis(part.range[1] + 1, pitch * factor, Index.of(part))
                     for part, factor in terms]
        else:
            axis = Axis(v.extent, pitch or chunk, at)
            axes += _phases(axis) if phases else [axis]
    axes.sort(key=lambda axis: axis.pitch != 1)
    axes = _with_nearest(axes)
    if len(axes) < 2 or axes[0].pitch != 1 or first % chunk or any(
            a.pitch % chunk for a in axes[1:]):
        return None
    return Boxed(source, first, tuple(axes))


def _phases(axis: Axis) -> list[Axis]:
    """An axis along which a window moves several elements at once, as two: these steps, and the
    elements of one. A box then moves along the first by one step, and is outside of an image
    where it is outside of that axis."""
    slides = axis.at.const or not _are_digits(axis.at)
    step = max((f for _, f in axis.at.terms), default=1) if slides else 1
    if step < 2 or axis.extent % step:
        return [axis]
    return [Axis(axis.extent // step, axis.pitch * step, axis.at // step),
            Axis(step, axis.pitch, axis.at % step)]


def _with_nearest(axes: list[Axis]) -> list[Axis]:
    """The axes, of which the innermost and elements right behind it are one where there are more
    than a machine copies."""
    if len(axes) <= MAX_AXES or axes[0].pitch != 1:
        return axes
    inner = axes[0]
    behind = next((a for a in axes if a.pitch == inner.extent and a.at.parts), None)
    if behind is None:
        return axes
    merged = Axis(inner.extent * behind.extent, 1, inner.at + behind.at * inner.extent)
    return [merged, *(a for a in axes[1:] if a is not behind)]


def _are_digits(at: Index) -> bool:
    """Whether the parts of a coordinate are digits of it, none of which moves it as far as the
    next: a part of its own then has an axis of its own.

    >>> i, j = Index.of(Var("i", 4)), Index.of(Var("j", 6))
    >>> _are_digits(i * 6 + j), _are_digits(i + j)
    (True, False)
    """
    reach = 1
    for part, factor in sorted(at.terms, key=lambda term: term[1]):
        if factor < reach:
            return False
        reach = factor * (part.range[1] + 1)
    return True


def _fits(w: WindowAxes) -> bool:
    """Whether lines of swizzled memory are contiguous, and parts move boxes in steps of one."""
    line = SWIZZLE_LINE // w.operands[0].source.dtype.bytes
    for x, sides in zip(w.operands, ((w.m, w.k), (w.n, w.k)), strict=True):
        if not any(x.inner == parts[-1] for parts in sides):
            return False
    for parts, side_by_side in zip((w.m, w.n, w.k), w.contiguous, strict=True):
        if side_by_side and len(parts) > 1 and parts[-1].extent % line:
            return False
    if len(w.n) > 1 and not w.contiguous[1]:
        return False
    spatial = w.spatial
    readers = w.operands if spatial == w.k else w.operands[:1]
    return (len(w.parts) > 1 or not (w.contiguous[0] and w.contiguous[2])) and all(
        x.axis_of(p) is not None for x in readers for p in spatial if p.extent > 1)
