"""Outputs of a function that replace what they are computed from, element by element.

    scores = matmul(x, w); y = softmax(scores)        the product writes its scores to y
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.lower.buffers import memory_of, reads_at
from ztorch.lower.insets import INTERLEAVED
from ztorch.lower.loops import widest
from ztorch.lower.reduction import Phases, axes_of
from ztorch.lower.region import Region
from ztorch.lower.tuning import TAILS_MATTER

MAKERS = ("contract", "map", "reduce", "scatter")  # kinds of regions; each element by one worker


def replaced(regions: Sequence[Region], outputs: Collection[Value], placed: Collection[Value],
             kept_in: Mapping[Value, Value], limits: Limits) -> Iterator[tuple[Value, Value]]:
    """Values that need no buffers of their own, each with the output in whose place it can be: one
    kernel makes it, only one other reads it, and this reads each element before it stores there.

    Args:
        regions: The regions, in order.
        outputs: The outputs of the function.
        placed: Values whose places are known.
        kept_in: Values between passes, each with the result in whose place it is.
        limits: The target's limits.
    """
    readers: dict[Value, list[Region]] = {}
    makers: dict[Value, list[Region]] = {}
    for region in regions:
        for v in region.stores:
            makers.setdefault(memory_of(v), []).append(region)
        for source in {memory_of(s) for v in region.members for s, _ in reads_at(region, v)}:
            if source not in region.flat:
                readers.setdefault(source, []).append(region)
    for y in dict.fromkeys(outputs):
        if y in placed or memory_of(y) is not y or len(makers.get(y, ())) != 1:
            continue
        [region] = makers[y]
        if region.kind not in ("map", "reduce"):
            continue
        for v in (s for m in region.members for s, _ in reads_at(region, m)
                  if s not in region.flat):
            if (len(makers.get(v, ())) == 1 and readers[v] == [region] and makers[v] != [region]
                    and makers[v][0].kind in MAKERS and v not in {*placed, *outputs, *kept_in}
                    and (v.dtype, v.size) == (y.dtype, y.size) and _by_element(region, v, y)
                    and (region.kind == "map" or _before(region, v, y, kept_in))
                    and not (region.kind == "reduce" and _short_with_tails(region, limits))):
                yield v, y
                break


def _by_element(region: Region, v: Value, y: Value) -> bool:
    """Whether a region reads v only where it computes the same element of y, and nothing else."""
    return y.op is not INTERLEAVED and all(at == region.flat[y] for m in region.members
               for source, at in reads_at(region, m) if source is v)


def _short_with_tails(region: Region, limits: Limits) -> bool:
    """Whether rows are short and end in a part of a vector. The store of that part would lie beside
    the next row, whose load would wait until the store is done."""
    lanes, length = limits.lanes(widest(region)), region.inner.extent
    return length % lanes > 0 and length < TAILS_MATTER * lanes and not axes_of(region).by_columns


def _before(region: Region, v: Value, y: Value, kept_in: Mapping[Value, Value]) -> bool:
    """Whether the passes of a reduction read v before something is stored in the place of y."""
    phases = Phases(region)
    residents = [e for e, home in kept_in.items() if home is y]
    first = min([phases.ready[y], *(phases.ready[e] for e in residents)])
    if phases.ready[y] != phases.count - 1 or region.is_row(y):
        return False
    from_v = {m for m in region.members if any(s is v for s, _ in reads_at(region, m))}
    return not residents or from_v.isdisjoint(phases.computed_after(first))
