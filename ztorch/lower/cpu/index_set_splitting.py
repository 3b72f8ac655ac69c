"""Index-set splitting of elementwise loops over concatenated or padded values. A single loop would
test each element for the part that contains it; with separate loops, the tests have one answer for
all elements of a loop."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ztorch.graph.value import Value
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import Region, bounds, computed, needed
from ztorch.lower.tuning import PART_GAIN, PART_VALUES


class Part(NamedTuple):
    """Loops over some elements of a region, outermost first, and the flat position of an element.
    """

    axes: list[Var]
    flat: Index


class _Span(NamedTuple):
    """A part's range of an axis."""

    start: int
    size: int
    extent: int  # of the axis

    @property
    def whole(self) -> bool:
        return self.size == self.extent


def parts_of(region: Region, full: Part, lanes: int) -> list[Part]:
    """The parts of a region, or the whole region if splitting gains too little."""
    spans = [_Span(0, n, n) for n in region.shape if n != 1]
    if not any(bounds(v, region.index(v)) for v in region.members):
        return [full]
    parts: list[Part] = []
    for cut in _cut(region, spans):
        parts.append(_merged(region, cut))
        if len(parts) * len(region.members) > PART_VALUES:
            return [full]
    gain = sum(_work(region, p, lanes) for p in parts) < PART_GAIN * _work(region, full, lanes)
    return parts if gain else [full]


def border_parts(region: Region) -> list[Part]:
    """The parts of a border: for each axis, one before and one after the inside."""
    [v] = region.members
    spans, parts = [_Span(0, n, n) for n in v.shape], []
    for k, (low, size) in enumerate(zip(v.attrs["low"], v.attrs["inner"], strict=True)):
        extent = v.shape[k]
        for start, end in ((0, low), (low + size, extent)):
            if start < end:
                part = [*spans[:k], _Span(start, end - start, extent), *spans[k + 1:]]
                parts.append(_merged(region, part))
        spans[k] = _Span(low, size, extent)
    return parts


def _cut(region: Region, spans: Sequence[_Span]) -> Iterator[list[_Span]]:
    """The spans, cut so that each test of an index has one answer in each piece."""
    axes, flat = _loops(spans)
    cuts: dict[int, set[int]] = {}
    for v in region.members:
        for i, number in bounds(v, _index(region, v, flat)):
            for k, axis in enumerate(axes):
                if i.terms == ((axis, 1),) and 0 < number - i.const < axis.extent:
                    cuts.setdefault(k, set()).add(number - i.const)
    if not cuts:
        yield list(spans)
        return
    k = min(cuts)
    edges = [0, *sorted(cuts[k]), spans[k].size]
    for first, end in pairwise(edges):
        piece = _Span(spans[k].start + first, end - first, spans[k].extent)
        yield from _cut(region, [*spans[:k], piece, *spans[k + 1:]])


def _merged(region: Region, spans: list[_Span]) -> Part:
    """The loops over a piece, with neighboring axes merged wherever that costs nothing."""
    cost = _element_cost(region, _loops(spans).flat)
    for k in reversed(range(len(spans) - 1)):
        above, below = spans[k:k + 2]
        if not below.whole:
            continue
        joined = _Span(*(n * below.extent for n in above))
        merged = [*spans[:k], joined, *spans[k + 2:]]
        merged_cost = _element_cost(region, _loops(merged).flat)
        if merged_cost <= cost:
            spans, cost = merged, merged_cost
    return _loops(spans)


def _loops(spans: Sequence[_Span]) -> Part:
    axes = [Var(f"d{k}", span.size) for k, span in enumerate(spans)]
    index = [Index.of(v) + span.start for v, span in zip(axes, spans, strict=True)]
    return Part(axes, flatten(index, [span.extent for span in spans]))


def _work(region: Region, part: Part, lanes: int) -> int:
    """The number of vectors of a part, times the cost of each."""
    *rows, columns = [v.extent for v in part.axes]
    return math.prod(rows) * math.ceil(columns / lanes) * _element_cost(region, part.flat)


def _element_cost(region: Region, flat: Index) -> int:
    """The cost of an element: its loads, the divisions of their positions, and tests."""
    count = 0
    for v in region.members:
        index = _index(region, v, flat)
        read = [at for source, at in needed(v, index) if source not in region.flat]
        count += sum(1 + at.divisions for at in read) + len(computed(v, index))
    return count + sum(at.replace({region.outer: flat}).divisions for at in region.inset_at())


def _index(region: Region, v: Value, flat: Index) -> tuple[Index, ...]:
    """The index at which a member is computed, from a flat position of the region."""
    return unflatten(region.flat[v].replace({region.outer: flat}), v.shape)
