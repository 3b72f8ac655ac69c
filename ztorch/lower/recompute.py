"""Chooses kernels that run a second time, so that their results need not be kept in between.

A training step keeps the values of the forward pass that its backward pass reads. A dropped region
runs again before the first late reader of its results, after the dropped regions that it depends
on. It is the same kernel on the same numbers, so results are bitwise equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ztorch.errors import OutOfMemory
from ztorch.graph.value import Graph, Value
from ztorch.lower.buffers import buffers_of, memory_of
from ztorch.lower.cycles import region_cycles
from ztorch.lower.placement import Placement
from ztorch.lower.region import Region
from ztorch.lower.tuning import (
    RERUN_LISTED,
    RERUN_MARGIN,
    RERUN_PARTS,
    RERUN_PLACED_MAX,
    RERUN_SEGMENTS,
    RERUN_TRIES_MAX,
)

Drop = Mapping[int, int]  # by dropped region: the region after which its results are dropped


@dataclass(frozen=True)
class Choice:
    """An order of regions, some of which run twice."""

    order: list[int]  # numbers of regions
    arena: int  # the largest number of live bytes at any step
    cycles: float  # of the second runs


class LimitTooSmall(OutOfMemory):
    """A memory limit that no choice of kernels meets."""

    def __init__(self, message: str, arena: int):
        super().__init__(message)
        self.arena = arena  # bytes of the smallest arena that was found


class Recomputation:
    """The regions of a function, from a placement in which none runs twice."""

    def __init__(self, placement: Placement, regions: Sequence[Region]):
        """`regions` are those of the graph, without copies that placement added."""
        self._all, own = regions, set(regions)
        self._regions = [r for r in placement.regions if r in own]  # copies come after them
        self._size = placement.sizes
        self._reads = [[m for v in reads if (m := memory_of(v)) in self._size]
                       for reads in placement.reads]
        self._writes = [[v for v in buffers_of(r) if v in self._size]
                        for r in placement.regions]
        self._final = {v: k for k, reads in enumerate(self._reads) for v in reads}
        self._cycles = [region_cycles(r, placement) for r in placement.regions]
        # By value: the region that stores it first, and the one after which it is complete.
        self._maker = {v: k for k, writes in enumerate(self._writes) for v in writes}
        self._carried = {k: [m for v in r.stores if (m := memory_of(v)) is not v]
                         for k, r in enumerate(self._regions) if r.kind in ("loop", "threads")}
        self._producer = {**self._maker, **{m: k for k, carried in self._carried.items()
                                            for m in carried if m in self._maker}}
        self._needs = [[self._maker[v] if v in self._carried.get(k, ()) else self._producer[v]
                        for v in reads] for k, reads in enumerate(self._reads)]
        self._repeatable = [self._may_repeat(k) for k in range(len(self._regions))]
        alive = self._alive(range(len(self._reads)))
        self._peak = alive.index(max(alive))
        self._last_before_peak = {v: k for k in range(self._peak + 1) for v in self._reads[k]}
        self._stored = {k: n for k in range(min(self._peak + 1, len(self._regions)))
                        if self._repeatable[k] and (n := self._kept_bytes(k))}
        self._known: list[tuple[Choice, Drop]] = []
        self._kept: set[Value] = set()  # results of dropped loops that stay: other layers read them

    def _may_repeat(self, k: int) -> bool:
        """Whether a region may run again: it overwrites only initial values of a loop, which are
        computed again, too."""
        return not self._regions[k].members[0].op.partial and all(
            m in self._maker for m in self._carried.get(k, ()))

    # -- the meaning of a choice -------------------------------------------------------------------

    def choice(self, drop: Drop) -> Choice:
        """The order of regions if those in `drop` run again when they are needed."""
        order, again = list[int](), set[int]()
        for k in range(len(self._reads)):
            stack = [(p, False) for p in self._missing(k, k, drop)]
            while stack:
                p, ready = stack.pop()
                if ready:
                    order.append(p)
                elif p not in again:
                    again.add(p)
                    stack.append((p, True))
                    stack += [(q, False) for q in self._missing(p, k, drop)]
            order.append(k)
        return Choice(order, max(self._alive(order)), sum(self._cycles[k] for k in again))

    def _missing(self, region: int, k: int, drop: Drop) -> list[int]:
        """Those whose results a region needs at position k and that are dropped before."""
        return [p for v, p in zip(reversed(self._reads[region]), reversed(self._needs[region]),
                                  strict=True) if drop.get(p, k) < k and v not in self._kept]

    def _alive(self, order: Sequence[int]) -> list[int]:
        """The number of live bytes at each step."""
        change = [0] * (len(order) + 1)
        since, until = dict[Value, int](), dict[Value, int]()
        for at, k in enumerate(order):
            for v in self._writes[k]:
                if v in since:
                    change[until[v] + 1] -= self._size[v]
                change[at] += self._size[v]
                since[v] = until[v] = at
            for v in self._reads[k]:
                until[v] = at
        for v, at in until.items():
            change[at + 1] -= self._size[v]
        return list(accumulate(change))[:-1]

    def regions(self, choice: Choice) -> list[Region]:
        """The regions in that order, for a new placement."""
        placed = set(self._regions)
        rest = iter(self._all)
        order: list[Region] = []
        for k in choice.order:
            if k < len(self._regions) and self._regions[k] not in order:
                for region in rest:  # also those that placement left out
                    order.append(region)
                    if region in placed:
                        break
            elif k < len(self._regions):
                order.append(self._regions[k])
        return [*order, *rest]

    # -- blocks that users name --------------------------------------------------------------------

    def of_layers(self, paths: Sequence[str]) -> dict[int, int]:
        """The regions to drop of the layers at these paths: all but those that other layers read in
        the forward pass. A loop stores more than those read: it is dropped except for that."""
        drop: dict[int, int] = {}
        for path in paths:
            own = [k for k, r in enumerate(self._regions) if _within(r, path)]
            gaps = [b - a for a, b in pairwise(own)]
            if not gaps:
                continue
            end = gaps.index(max(gaps)) + 1  # the backward pass of the block comes after the gap
            inside = set(own)
            read = {v: p for k in range(own[end]) if k not in inside
                    for v, p in zip(self._reads[k], self._needs[k], strict=True) if p in inside}
            loops = {k for k in own[:end] if k in self._carried}
            self._kept |= {v for v, p in read.items() if p in loops}
            exits = {*read.values()} - loops
            drop |= {k: own[end - 1] for k in own[:end] if self._repeatable[k] and k not in exits}
        return self._with_first_values(drop)

    # -- a limit -----------------------------------------------------------------------------------

    def best(self, limit: int, blocks: Drop) -> Choice:
        """The cheapest choice with an arena of at most `limit` bytes; if there is none, the choice
        with the smallest arena."""
        if not self._known:
            self._known = [(self.choice(drop), drop) for drop in self._drops(blocks)]
        fitting = [plan for plan in self._known if plan[0].arena <= limit]
        if not fitting:
            return min((choice for choice, _ in self._known), key=lambda c: c.arena)
        choice, drop = min(fitting, key=lambda plan: plan[0].cycles)
        return self._less(choice, drop, blocks, limit)

    def smallest(self) -> list[Choice]:
        """The choices with the smallest arenas."""
        by_arena = sorted((choice for choice, _ in self._known), key=lambda c: c.arena)
        return by_arena[:RERUN_PLACED_MAX]

    def _drops(self, blocks: Drop) -> Iterator[Drop]:
        """Candidates: all regions are dropped except those whose values cross some cuts, and except
        the most expensive ones."""
        yield blocks
        stored = self._stored
        by_cost = sorted(stored, key=lambda k: self._cycles[k] / stored[k])
        before = range(min(self._peak + 1, len(self._regions)))
        for count in RERUN_SEGMENTS:
            cuts = self._cuts(int(sum(stored.values()) / count)) if count > 1 else []
            crossing = {self._producer[v] for cut in cuts for v in self._crossing(cut)}
            for part in RERUN_PARTS:
                stored_once = crossing.union(by_cost[round(part * len(by_cost)):])
                yield self._with_first_values(dict(blocks) | {
                    k: self._peak for k in before if self._repeatable[k] and k not in stored_once})

    def _less(self, choice: Choice, drop: Drop, blocks: Drop, limit: int) -> Choice:
        """The choice after keeping the regions that cost most per saved byte, as far as they fit.
        """
        costs = {k: self._cycles[k] / self._stored[k] for k in drop
                 if k in self._stored and k not in blocks}
        for k in sorted(costs, key=lambda k: -costs[k])[:RERUN_TRIES_MAX]:
            less = self._with_first_values({j: at for j, at in drop.items() if j != k})
            cheaper = self.choice(less)
            if cheaper.arena <= limit and cheaper.cycles < choice.cycles:
                choice, drop = cheaper, less
        return choice

    def _kept_bytes(self, k: int) -> int:
        """The bytes of a region's results that are read after the peak."""
        return sum(self._size[v] for v, maker in self._producer.items()
                   if maker == k and self._final.get(v, k) > self._peak)

    def _crossing(self, cut: int) -> list[Value]:
        """The values that regions before a cut store and regions after it read, up to the peak."""
        return [v for v, last in self._last_before_peak.items()
                if self._producer[v] <= cut < last]

    def _cuts(self, size: int) -> list[int]:
        """Cuts that divide the regions before the peak into segments that store about `size` bytes,
        each cut where the fewest bytes cross it."""
        width = [0] * (self._peak + 2)
        for v, k in self._last_before_peak.items():
            width[self._producer[v]] += self._size[v]
            width[k] -= self._size[v]
        crossing = list(accumulate(width))
        cuts, since, total = [], 0, 0
        for k in range(self._peak):
            total += self._stored.get(k, 0)
            if total > size:
                cut = min(range(since, k + 1), key=lambda j: (crossing[j], -j))
                cuts.append(cut)
                since = cut + 1
                total = sum(self._stored.get(j, 0) for j in range(since, k + 1))
        return cuts

    def _with_first_values(self, drop: Mapping[int, int]) -> dict[int, int]:
        """`drop`, extended by the initial values of its loops. Loops whose initial values cannot be
        computed again are removed."""
        drop = dict(drop)
        for k, carried in self._carried.items():
            makers = {self._maker[m] for m in carried if m in self._maker}
            if k in drop and all(self._repeatable[p] for p in makers):
                drop |= dict.fromkeys(makers, drop[k])
            else:
                for p in (k, *makers):
                    drop.pop(p, None)
        return drop


def with_less_memory(placement: Placement, regions: Sequence[Region],
                     place: Callable[[Sequence[Region]], Placement], graph: Graph,
                     limit: int | None, function: str) -> Placement:
    """A placement in which regions run again: those of the layers that the graph names, and under a
    limit those that save most for the least work.

    Args:
        placement: The placement in which none does.
        regions, graph: The graph and its regions.
        place: Places regions.
        limit: The limit of the arena in bytes. `None`: no limit.
        function: The name of the function, for the error.

    Raises:
        LimitTooSmall: No choice of regions meets the limit.
    """
    options = Recomputation(placement, regions)
    blocks = options.of_layers(graph.recomputed)
    if blocks:  # a layer beside its own backward pass may need more
        recomputed = place(options.regions(options.choice(blocks)))
        placement = min(recomputed, placement, key=lambda p: p.arena)
    plain, excess = placement, 0  # bytes by which arenas are larger than estimated
    while limit is not None and placement.arena > limit:
        choice = options.best(limit - excess, blocks)
        placement = place(options.regions(choice))
        if placement.arena > limit and choice.arena > limit - excess:
            smallest = min((plain, *(place(options.regions(c)) for c in options.smallest())),
                           key=lambda p: p.arena)
            if smallest.arena > limit:
                raise LimitTooSmall(_too_large(function, smallest, limit), smallest.arena)
            return smallest
        excess = max(placement.arena - choice.arena, excess + limit // RERUN_MARGIN)
    return placement


def _too_large(function: str, placement: Placement, limit: int) -> str:
    """The error's description of the smallest arena that was found."""
    buffers = [(label, b) for label, b, _ in placement.buffers]
    alive = [sum(b.size for _, b in buffers if b.first <= k <= b.last)
             for k in range(len(placement.regions))]
    fullest = alive.index(max(alive))
    largest = sorted(((b.size, label) for label, b in buffers if b.first <= fullest <= b.last),
                     reverse=True)[:RERUN_LISTED]
    listed = ", ".join(f"{label} of {size:,} bytes" for size, label in largest)
    return (f"memory_limit={limit:,} bytes is too small for function {function!r}: the smallest "
            f"arena that recomputation reaches has {placement.arena:,} bytes, most of them for "
            f"{listed}; allow more, or make batches or these layers smaller")


def _within(region: Region, path: str) -> bool:
    """Whether some of a region belongs to a layer or to layers inside it."""
    layers = {v.layer for v in region.members}
    return any(layer == path or layer.startswith(f"{path}/") for layer in layers)
