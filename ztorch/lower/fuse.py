"""Groups values into regions, each of which becomes one kernel.

A greedy pass visits the values in order and adds each to a region that it reads from, if possible.
An elementwise value can join a region if it reads the region's values at the positions at which
they are computed, so that they stay in registers, and if no other kernel has to run in between.
Reductions over the same rows share a region, so softmax, layer normalization and each loss are one
kernel. Elementwise values after a matrix product are its epilogue, including the optimizer's update
after a weight gradient.
"""

from __future__ import annotations

from ztorch.graph.value import Graph, Value
from ztorch.lower.column_sums import ColumnSums
from ztorch.lower.cpu.contract import may_share_tiles, products_of
from ztorch.lower.epilogues import is_heavy, without
from ztorch.lower.index import Index
from ztorch.lower.insets import INSET, INTERLEAVED, part_of, position
from ztorch.lower.positions import unflatten
from ztorch.lower.reduction import reduce_region
from ztorch.lower.region import (
    Region,
    behind,
    is_view,
    map_region,
    real_reads,
    reduce_domain,
    sources,
    view_of,
)
from ztorch.lower.region_order import in_order, updated
from ztorch.lower.rewrites.recurrence import RECURRENCE, RECURRENCE_RESULT, recurrence_region
from ztorch.lower.rewrites.rematerialization import Rematerializer, drop_idle
from ztorch.lower.small_regions import loops, small_pairs
from ztorch.lower.tuning import REGION_MEMBERS_MAX, TILE_PRODUCTS_MAX


def fuse(graph: Graph, enabled: bool = True, max_buffers: int | None = None,
         rematerialize: float = 0.0, light_epilogues: bool = False,
         parallel: bool = False, shared_tiles: int = 0, sums: ColumnSums | None = None
         ) -> list[Region]:
    """The regions of a graph, in an order in which they can run.

    With `enabled=False` each value gets its own region. A region of several values uses at most
    `max_buffers` buffers; None means no limit. Regions compute values again rather than read them
    from memory if that takes at most `rematerialize` issue slots per saved byte. With
    `light_epilogues`, heavy elementwise work after products gets separate kernels. With `parallel`,
    independent regions are adjacent, small ones joined. Products of the same rows that meet in an
    epilogue are one kernel if their right operands have at most `shared_tiles` bytes. `sums` are
    those of columns that epilogues may compute.
    """
    nodes = [v for v in graph.nodes() if v.op.kind != "leaf" and not is_view(v)]
    state = _Fusion(enabled, max_buffers, light_epilogues, shared_tiles, sums)
    if max_buffers is not None:
        state.find_readers(graph, nodes)
    for v in sorted(nodes, key=lambda v: v.serial):
        state.assign(v)
    return state.finish(graph, rematerialize if enabled else 0.0, parallel)


class _Fusion:
    """The regions so far, and which must run before each. Regions are identified by numbers."""

    def __init__(self, enabled: bool, max_buffers: int | None, light_epilogues: bool,
                 shared_tiles: int, sums: ColumnSums | None):
        self.sums = sums
        self.enabled, self.max_buffers = enabled, max_buffers
        self.light_epilogues, self.shared_tiles = light_epilogues, shared_tiles
        self.readers: dict[Value, set[Value | None]] = {}  # of each value; None represents a root
        self.regions: dict[int, Region] = {}  # by number
        self.region_of: dict[Value, int] = {}  # number of each value's region
        self.before: dict[int, int] = {}  # bit set of the regions that must run before each
        self.sources: dict[Value, list[Value]] = {}  # the values that each value reads
        self.next_number = 0  # of the next region

    # -- joining ---------------------------------------------------------------------------------

    def find_readers(self, graph: Graph, nodes: list[Value]) -> None:
        """Records the readers of each value, for `_few_buffers`."""
        for v in nodes:
            for s in self._sources(v):
                self.readers.setdefault(s, set()).add(v)
        for root in graph.roots:
            self.readers.setdefault(root, set()).add(None)

    def _few_buffers(self, *members: Value) -> bool:
        """Whether a kernel of these values stays within the limit of buffers.

        A reader outside of `members` counts, because it may end up in another region, and then its
        source must be stored.
        """
        if self.max_buffers is None:
            return True
        inside = set(members)
        buffers = {s for v in members for s in self._sources(v)} - inside
        buffers |= {v for v in members if self.readers.get(v, set()) - inside}
        return len(buffers) <= self.max_buffers

    def assign(self, v: Value) -> None:
        """Adds a value to a region that it can join, or to a new one."""
        if v.op.kind in ("result", "threads_result", "attention_result"):  # of what stores it
            k = self.region_of[v] = self.region_of[v.args[0]]
            self.regions[k].add(v, self.regions[k].full)
            return
        if v.op is RECURRENCE_RESULT:
            k = self.region_of[v] = self.region_of[v.args[0]]
            region, r = self.regions[k], v.args[0].attrs["recurrence"]
            region.add(v, r.result(**v.attrs, outer=region.full))
            return
        sources = {self.region_of[s] for s in self._sources(v) if s in self.region_of}
        if self.enabled and v.op.kind in ("map", "reduce") and not v.op.partial:
            priority = {"contract": 0, "winograd": 0, "reduce": 1, "map": 2}
            near = sources if v.op is not INSET else {
                self.region_of[s] for s in behind(v.args[0]) if s in self.region_of}
            kernels = [k for k in near if self.regions[k].kind in priority
                       and not self.regions[k].members[0].op.partial
                       and (v.op is not INTERLEAVED or self.regions[k].kind == "map")]
            for k in sorted(kernels, key=lambda k: (priority[self.regions[k].kind], -k)):
                if self._join(v, k, sources):
                    return
        self._new_region(v, sources)

    def _sources(self, v: Value) -> list[Value]:
        if v not in self.sources:
            self.sources[v] = sources(v)
        return self.sources[v]

    def _new_region(self, v: Value, sources: set[int]) -> None:
        k = self.next_number
        self.next_number += 1
        if v.op.kind == "reduce":
            region = reduce_region(v)
        elif v.op is RECURRENCE:
            region = recurrence_region(v)
        else:
            region = map_region(v)
            region.kind = v.op.kind
        self.regions[k] = region
        self.region_of[v] = k
        self.before[k] = 0
        for h in sources:
            self.before[k] |= self.before[h] | 1 << h

    def _join(self, v: Value, k: int, sources: set[int]) -> bool:
        """Adds a value to region k if possible, and merges the other regions that it reads."""
        region = self.regions[k]
        others = sources - {k}
        if any(self.before[h] >> k & 1 for h in others):
            return False
        if len(region.members) >= REGION_MEMBERS_MAX or not self._few_buffers(*region.members, v):
            return False
        if v.op.kind == "reduce":
            return self._join_reduce(v, k, others)
        size = part_of(v).size
        levels = [region.full] if size == region.size else []
        if region.kind == "reduce" and size == region.outer.extent:
            levels.append(Index.of(region.outer))
        for flat in (position(v, level) for level in levels):
            if region.aligned(v, flat):
                region.add(v, flat)
                self.region_of[v] = k
                self._add_dependencies(k, others)
                for h in sorted(others if v.op is not INSET else ()):
                    self._merge(h, k)
                return True
        return False

    def _join_reduce(self, v: Value, k: int, others: set[int]) -> bool:
        region = self.regions[k]
        if self.sums is not None and self.sums.can_join(v, region):
            region.add(v, Index())
            self.region_of[v] = k
            self._add_dependencies(k, others)
            return True
        x, axes = v.args[0], v.attrs["axes"]
        outer, inner, full = reduce_domain(x.shape, axes)
        if region.kind in ("contract", "winograd") or region.size != x.size or (
                _interleaves(region)):
            return False
        if region.kind == "map":
            if outer.extent == region.size:  # it reduces axes of size 1: keep the plain loop
                return False
            flats = {s: at.replace({region.outer: full}) for s, at in region.flat.items()}
        elif (region.outer, region.inner, region.full) == (outer, inner, full):
            flats = region.flat
        else:
            return False
        base = view_of(x, unflatten(full, x.shape))
        if base is None or (base[0] in flats and flats[base[0]] != base[1]):
            return False
        if region.kind == "map":
            region.restructure(x.shape, axes)
        region.add(v, Index.of(outer))
        self.region_of[v] = k
        self._add_dependencies(k, others)
        return True

    # -- order -----------------------------------------------------------------------------------

    def _add_dependencies(self, k: int, on: set[int]) -> None:
        """Region k, and all that run after it, run after the regions `on`."""
        before = self.before[k]
        for h in on - {k}:
            self.before[k] |= self.before[h] | 1 << h
        if self.before[k] == before:
            return
        for other in self.before:
            if self.before[other] >> k & 1:
                self.before[other] |= self.before[k]

    def _merge(self, h: int, k: int) -> None:
        """Merges region h into region k, if one kernel can compute both: elementwise values, or
        products of the same rows."""
        source, target = self.regions.get(h), self.regions[k]
        if source is None or source.size != target.size or source.members[0].op.partial:
            return
        if _interleaves(source) and target.kind != "map":
            return
        alike = source.kind == "reduce" and loops(source) == loops(target)
        if source.kind != "map" and not alike and not _may_share_tiles(
                source, target, self.shared_tiles):
            return
        if len(source.members) + len(target.members) > REGION_MEMBERS_MAX:
            return
        if not self._few_buffers(*source.members, *target.members):
            return
        for x, before in self.before.items():
            if x in (h, k) or x not in self.regions:
                continue
            between = (before >> h & 1 and self.before[k] >> x & 1) or (
                before >> k & 1 and self.before[h] >> x & 1)
            if between:
                return
        flats = source.flat if alike else {
            v: at.replace({source.outer: target.full}) for v, at in source.flat.items()}
        joined = target.flat | flats
        for v in [*target.members, *source.members]:
            if v.op.kind in ("contract", "winograd"):
                if any(s in flats for s in self._sources(v)):  # its operands must be complete
                    return
                continue
            for s, at in self._reads_at(v, joined[v], target):
                if s in joined and joined[s] != at:
                    return
        target.members = sorted([*target.members, *source.members], key=lambda v: v.serial)
        target.flat = joined
        for v in source.members:
            self.region_of[v] = k
        del self.regions[h]
        bit = 1 << h
        self.before[k] = (self.before[k] | self.before.pop(h)) & ~bit & ~(1 << k)
        for other in self.before:
            if self.before[other] & bit:
                self.before[other] = (self.before[other] & ~bit) | 1 << k | self.before[k]

    def _reads_at(self, v: Value, flat: Index, region: Region) -> list[tuple[Value, Index]]:
        if v.op.kind == "reduce":
            x = v.args[0]
            base = view_of(x, unflatten(region.full, x.shape))
            return [base] if base else []
        return real_reads(v, unflatten(flat, v.shape))

    # -- result ----------------------------------------------------------------------------------

    def finish(self, graph: Graph, rematerialize: float, parallel: bool) -> list[Region]:
        """The regions in order, each with the values it stores."""
        roots = {*graph.roots}
        for pair in small_pairs(graph, self.regions, self.region_of, self.before, self._sources
                                ) if parallel and self.enabled else ():
            self._merge(*pair)
        for pair in without(
                self.regions, self.region_of, self.before, self.next_number, self._is_apart):
            self._merge(*pair)
        if rematerialize:
            writers = {state: self.region_of[new] for state, new in updated(graph)}
            if Rematerializer(self.regions, self.region_of, self.before, self._sources, roots,
                              writers, rematerialize).run():
                drop_idle(self.regions, self.region_of, self._sources, roots)
        return in_order(graph, self.regions, self.region_of, self.before, self._sources, parallel)

    def _is_apart(self, region: Region) -> bool:
        """Whether the epilogue of a product is a separate kernel."""
        if self.sums is not None and self.sums.of(region):
            return not self.sums.accepted(region, self._sources)
        return self.light_epilogues and is_heavy(region, self._sources)


def _interleaves(region: Region) -> bool:
    return any(v.op is INTERLEAVED for v in region.members)


def _may_share_tiles(first: Region, second: Region, most: int) -> bool:
    """Whether a tile can compute the products of two regions, whose right operands have at most so
    many bytes. Tiles of larger ones, which come from an outer cache, would read short runs of each:
    one row times two matrices of 1024 x 4096 takes three times as long together."""
    if first.kind != "contract" or second.kind != "contract":
        return False
    products = [*products_of(first), *products_of(second)]
    return (len(products) <= TILE_PRODUCTS_MAX and sum(p.args[1].nbytes for p in products) <= most
            and may_share_tiles(products[0], products[-1]))
