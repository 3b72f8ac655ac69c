"""The values that each region stores, and the order in which regions run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ztorch.graph.body import CARRY
from ztorch.graph.value import Graph, Value
from ztorch.lower.insets import BORDER, INSET
from ztorch.lower.order import bits, copies_of, ordered
from ztorch.lower.region import COPY, Region
from ztorch.lower.waves import in_waves


def in_order(graph: Graph, regions: Mapping[int, Region], home: Mapping[Value, int],
             before: Mapping[int, int], sources: Callable[[Value], list[Value]],
             parallel: bool = False) -> list[Region]:
    """The regions of a graph in order, with the values that each stores.

    Args:
        graph: The graph.
        regions: All regions, by number.
        home: The number of each value's region. Other regions may recompute the value.
        before: For each region, a bit set of the regions that must run before it.
        sources: The operands of a value.
        parallel: Whether independent regions are adjacent in the order, so that they can run in
            parallel. Default: `False`.
    """
    roots = {*graph.roots}
    needs: dict[int, set[int]] = {k: set() for k in regions}
    stored = {*roots}
    for k, region in regions.items():
        for v in region.members:
            own = {v} if v.op is INSET else set()
            outside = {s for s in sources(v) if s in home and s not in region.flat}
            stored |= own | outside
            needs[k].update(home[s] for s in outside)
    for k, readers in _readers_before(graph, regions, home, before, sources).items():
        needs[k] |= readers
    for k, region in regions.items():
        region.members.sort(key=lambda v: v.serial)
        region.stores = [v for v in region.members if v in stored and home[v] == k]
    writes = {k: [v for v in r.stores if v not in roots] for k, r in regions.items()}
    reads = {k: {s for v in r.members for s in sources(v)
                 if s in home and s not in r.flat and s not in roots}
             for k, r in regions.items()}
    late = [k for k, r in regions.items() if r.members[0].op is BORDER or (
        not parallel and _copies_stack(r, reads[k]))]
    order = ordered(needs, reads, writes, late)
    if parallel:
        order = in_waves(order, needs, reads, writes, copies_of(needs, reads, writes, late))
    return [regions[k] for k in order]


def _readers_before(graph: Graph, regions: Mapping[int, Region], home: Mapping[Value, int],
                    before: Mapping[int, int], sources: Callable[[Value], list[Value]],
                    ) -> dict[int, set[int]]:
    """For each region that overwrites a state, the regions that read it before: all its readers,
    except those that need the new value."""
    writer = {state: home[new] for state, new in updated(graph)}
    waits: dict[int, set[int]] = {}
    waiting = 0  # the bit set of its keys
    for k, region in regions.items():
        for s in (s for v in region.members for s in sources(v)):
            if s in writer and writer[s] != k and not _must_follow(
                    k, writer[s], before, waits, waiting):
                waits.setdefault(writer[s], set()).add(k)
                waiting |= 1 << writer[s]
    return waits


def _copies_stack(region: Region, reads: Collection[Value]) -> bool:
    """Whether a region only copies what a loop keeps, such as states for a weight gradient. It runs
    right before its first reader: earlier, the copy and the stack are both alive where the most
    memory is needed, which is at the start of the loop that goes back."""
    return bool(reads) and all(v.op is COPY for v in region.members) and all(
        v.op.kind == "result" for v in reads)


def _must_follow(end: int, start: int, before: Mapping[int, int],
                 waits: Mapping[int, set[int]], waiting: int) -> bool:
    """Whether region `end` must run after region `start`, because of operands or of `waits`:
    additional dependencies of the regions in the bit set `waiting`."""
    stack, visited = [end], {end}
    while stack:
        k = stack.pop()
        earlier = before[k] | 1 << k
        if earlier >> start & 1:
            return True
        for other in bits(earlier & waiting):
            stack += waits[other] - visited
            visited |= waits[other]
    return False


def updated(graph: Graph) -> list[tuple[Value, Value]]:
    """Each state that the graph reads and updates, with its new value."""
    by_name = {s.attrs["name"]: s for s in (*graph.leaves("state"), *graph.leaves(CARRY))}
    return [(by_name[n], v) for n, v in graph.updates.items() if n in by_name]
