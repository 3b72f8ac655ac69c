"""Small regions that can run at the same time. Where kernels run in parallel, each takes a launch,
which takes longer than their work: one kernel computes those with the same loops."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ztorch.graph.value import Graph, Value
from ztorch.lower.order import bits
from ztorch.lower.region import Region
from ztorch.lower.region_order import updated
from ztorch.lower.tuning import GROUP_THREADS


def loops(region: Region) -> tuple[Any, ...]:
    """What regions have in common whose values one loop nest can compute."""
    return (region.kind, region.outer, region.inner, region.full, region.axes, region.shape)


def small_pairs(graph: Graph, regions: Mapping[int, Region], home: Mapping[Value, int],
                before: Mapping[int, int], sources: Callable[[Value], list[Value]],
                ) -> list[tuple[int, int]]:
    """Pairs of small regions with the same loops of which neither needs the other, and which delay
    no other region if one kernel computes both.

    Args:
        graph: The graph.
        regions: All regions, by number.
        home: The number of each value's region.
        before: For each region, a bit set of the regions that must run before it.
        sources: The operands of a value.
    """
    writers = {state: home[new] for state, new in updated(graph)}
    readers: dict[Value, set[int]] = {state: set() for state in writers}
    for k, region in regions.items():
        for v in region.members:
            for s in sources(v):
                if s in writers:
                    readers[s].add(k)
    first: dict[tuple[Any, ...], int] = {}
    pairs = []
    for k, level in _levels(before).items():
        region = regions[k]
        if region.size <= GROUP_THREADS and all(_is_plain(v) for v in region.members):
            h = first.setdefault((level, *loops(region)), k)
            if h != k and _keep_states({h, k}, region.size, writers, readers):
                pairs.append((k, h))
    return pairs


def _is_plain(v: Value) -> bool:
    """Whether a value is a sum or computed element by element, not moved."""
    return v.op.kind == "reduce" or bool(v.op.kind == "map" and v.op.opcode and not v.op.partial)


def _levels(before: Mapping[int, int]) -> dict[int, int]:
    """The number of regions in the longest chain that ends before each region."""
    levels: dict[int, int] = {}
    for k in sorted(before, key=lambda k: before[k].bit_count()):
        levels[k] = max((levels[h] + 1 for h in bits(before[k])), default=0)
    return levels


def _keep_states(pair: Collection[int], size: int, writers: Mapping[Value, int],
                 readers: Mapping[Value, Collection[int]]) -> bool:
    """Whether a pair need not wait for others that read the states it overwrites. One that reads
    what the other overwrites must have one element."""
    return all(k in pair and (k == writer or size == 1)
               for state, writer in writers.items() if writer in pair for k in readers[state])
