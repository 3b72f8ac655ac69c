"""Loops over the windows of a convolution that skip the border of the image.

    0 0 0 0 0 0    the border, which is zero: the first row of all windows of this tile
    x x x x x x
    x x x x x x

The border is stored, so that all tiles read their windows alike, and a product by zero changes no
sum. Where a step of an outer loop along k has all rows of a tile in the border, the loop skips it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ztorch.graph.rewrite import is_number
from ztorch.graph.value import Value
from ztorch.ir.kernel import Operand
from ztorch.lower.cpu.left_operand import AccessPattern
from ztorch.lower.cpu.parts_of_k import outer_loops
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.insets import BORDER, INSET, content_before
from ztorch.lower.positions import flatten
from ztorch.lower.region import is_view, reads
from ztorch.lower.schedule import ProductSchedule
from ztorch.lower.tuning import BORDER_DEPTH

Step = Operand | int


class _Image(NamedTuple):
    """An image with a border, and the position of one element in it, by axis."""

    at: tuple[Index, ...]
    low: tuple[int, ...]  # of the inside: its first position
    size: tuple[int, ...]


def steps_inside(e: Emitter, product: Value, s: ProductSchedule,
                 rows: Sequence[tuple[Index, ...]], loop: Var) -> tuple[Step, Step]:
    """The steps of a loop along k that have a row of a tile inside the image: the first, and the
    one after the last. If the first tile of a block copies the panel for the others, it needs all.

    Args:
        e: The scope of the tile.
        product: The product.
        s: Its schedule.
        rows: The positions of the tile's rows in the left operand.
        loop: The loop.
    """
    left = product.args[0]
    first: Step = 0
    end: Step = loop.extent
    if s.block_pack or left.shape[-1] < BORDER_DEPTH:
        return first, end
    images = [_image(left, row) for row in rows]
    image = images[0]
    if image is None:
        return first, end
    for axis, (at, low, size) in enumerate(zip(*image, strict=True)):
        start = at.without(loop)
        alike = all(i is not None and i.at[axis].without(loop) == start for i in images)
        outside = at.range[0] < low or at.range[1] >= low + size
        if alike and outside and at.factor(loop) == 1 and not start.mentions(loop):
            at_start = e.value(start)
            first = e.b.max(e.b.sub(low, at_start), first)
            end = e.b.min(e.b.sub(low + size, at_start), end)
    return first, end


def share_inside(left: Value, access: AccessPattern) -> float:
    """The share of the steps along k that the loops of all tiles do not skip.

    Args:
        left: The left operand, a matrix.
        access: Its access pattern.
    """
    share, loops = 1.0, outer_loops(access.depths)
    if left.shape[-1] < BORDER_DEPTH or left.rank != 2:
        return share
    along = flatten([Index.of(v) for v in loops], [v.extent for v in loops]) * access.depths[-1]
    again, inside = Var("t", left.shape[0] // access.period), Var("r", access.period)
    image = _image(left, (Index.of(again) * access.period + Index.of(inside), along))
    for at, low, size in zip(*image, strict=True) if image else ():
        for loop in loops:
            start = at.without(loop)
            if at.factor(loop) == 1 and not start.mentions(loop) and not start.mentions(inside):
                first, last = start.range
                stride = math.gcd(*(factor for _, factor in start.terms)) or 1
                steps = [min(loop.extent, low + size - n) - max(0, low - n)
                         for n in range(first, last + 1, stride)]
                share *= sum(steps) / (len(steps) * loop.extent)
    return share


def _image(left: Value, index: Sequence[Index]) -> _Image | None:
    """The image that a row reads through views; None if it has no border of zeros."""
    v, at = left, tuple(index)
    while is_view(v):
        sources = reads(v, at)
        if len(sources) != 1:
            return None
        [(v, at)] = sources
    if v.op.name == "pad" and v.attrs["value"] == 0:
        return _Image(at, v.attrs["low"], v.args[0].shape)
    before = content_before(v)
    if v.op is INSET and before is not None and before.op is BORDER and (
            is_number(before.args[0], 0.0) and before.attrs["inner"] == v.args[0].shape):
        return _Image(at, v.attrs["low"], v.args[0].shape)
    return None
