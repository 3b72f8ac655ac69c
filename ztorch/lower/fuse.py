"""Which values share a kernel: a greedy walk that joins each value to a region it reads from.

A value may join a region if it is computed element by element at the very positions where the
region computes what it reads (then nothing has to leave registers), and if no other kernel would
have to run in between. Reductions over the same rows share a region, so softmax, layer
normalisation and the losses are one kernel each; elementwise work after a matrix product becomes
its epilogue, the optimiser's update after a weight gradient included.
"""

from __future__ import annotations

from ztorch.graph.value import Graph, Value
from ztorch.lower.index import Index
from ztorch.lower.positions import unflatten
from ztorch.lower.region import (
    Region,
    is_view,
    map_region,
    real_reads,
    reduce_domain,
    view_of,
)


def fuse(graph: Graph, enabled: bool = True, most: int | None = None) -> list[Region]:
    """Regions in an order in which they can run. With enabled=False each value has a region of its
    own. No region of several values names more than `most` buffers."""
    nodes = [v for v in graph.nodes() if v.op.kind != "leaf" and not is_view(v)]
    state = _Fusion(enabled, most)
    if most is not None:
        state.look_ahead(graph, nodes)
    for v in sorted(nodes, key=lambda v: v.serial):
        state.assign(v)
    return state.finish(graph)


class _Fusion:
    def __init__(self, enabled: bool, most: int | None):
        self.enabled, self.most = enabled, most
        self.readers: dict[Value, set[Value | None]] = {}  # of a value; None: a root, to be stored
        self.regions: dict[int, Region] = {}  # by their numbers
        self.home: dict[Value, int] = {}  # the region of a value
        self.before: dict[int, int] = {}  # bit set of the regions that must run earlier
        self.sources: dict[Value, list[Value]] = {}  # what a value reads
        self.serial = 0  # the number of the next region

    # -- joining ---------------------------------------------------------------------------------

    def look_ahead(self, graph: Graph, nodes: list[Value]) -> None:
        """Who will read what."""
        for v in nodes:
            for s in self._sources(v):
                self.readers.setdefault(s, set()).add(v)
        for root in graph.roots:
            self.readers.setdefault(root, set()).add(None)

    def _few(self, *members: Value) -> bool:
        """Whether a kernel of these values would name few enough buffers. A reader that has no
        region yet may join another, and then what it reads has to be stored."""
        if self.most is None:
            return True
        inside = set(members)
        named = {s for v in members for s in self._sources(v)} - inside
        named |= {v for v in members if self.readers.get(v, set()) - inside}
        return len(named) <= self.most

    def assign(self, v: Value) -> None:
        """Give a value to a region that it can join, or to a new one."""
        sources = {self.home[s] for s in self._sources(v) if s in self.home}
        if self.enabled and v.op.kind != "contract":
            order = {"contract": 0, "reduce": 1, "map": 2}
            for k in sorted(sources, key=lambda k: (order[self.regions[k].kind], -k)):
                if self._join(v, k, sources):
                    return
        self._open(v, sources)

    def _sources(self, v: Value) -> list[Value]:
        if v not in self.sources:
            self.sources[v] = _sources(v)
        return self.sources[v]

    def _open(self, v: Value, sources: set[int]) -> None:
        k = self.serial
        self.serial += 1
        if v.op.kind == "reduce":
            x, axes = v.args[0], v.attrs["axes"]
            outer, inner, full = reduce_domain(x.shape, axes)
            region = Region("reduce", outer, inner, full, x.size, axes=axes, shape=x.shape)
            region.add(v, Index.of(outer))
        else:
            region = map_region(v)
            region.kind = v.op.kind
        self.regions[k] = region
        self.home[v] = k
        self.before[k] = 0
        self._depend(k, sources)

    def _join(self, v: Value, k: int, sources: set[int]) -> bool:
        region = self.regions[k]
        others = sources - {k}
        if any(self.before[h] >> k & 1 for h in others) or not self._few(*region.members, v):
            return False
        if v.op.kind == "reduce":
            return self._join_reduce(v, k, others)
        levels = [region.full] if v.size == region.size else []
        if region.kind == "reduce" and v.size == region.outer.extent:
            levels.append(Index.of(region.outer))
        for flat in levels:
            if region.aligned(v, flat):
                region.add(v, flat)
                self.home[v] = k
                self._depend(k, others)
                for h in sorted(others):
                    self._merge(h, k)
                return True
        return False

    def _join_reduce(self, v: Value, k: int, others: set[int]) -> bool:
        region = self.regions[k]
        x, axes = v.args[0], v.attrs["axes"]
        outer, inner, full = reduce_domain(x.shape, axes)
        if region.kind == "contract" or region.size != x.size:
            return False
        if region.kind == "map":
            if outer.extent == region.size:  # reduces nothing: not worth a structure
                return False
            trial = {s: at.replace({region.outer: full}) for s, at in region.flat.items()}
        elif (region.outer, region.inner, region.full) == (outer, inner, full):
            trial = region.flat
        else:
            return False
        base = view_of(x, unflatten(full, x.shape))
        if base is None or (base[0] in trial and trial[base[0]] != base[1]):
            return False
        if region.kind == "map":
            region.restructure(x.shape, axes)
        region.add(v, Index.of(outer))
        self.home[v] = k
        self._depend(k, others)
        return True

    # -- order -----------------------------------------------------------------------------------

    def _depend(self, k: int, on: set[int]) -> None:
        known = self.before[k]
        for h in on - {k}:
            self.before[k] |= self.before[h] | 1 << h
        if self.before[k] == known:
            return
        for other in self.before:
            if self.before[other] >> k & 1:
                self.before[other] |= self.before[k]

    def _merge(self, h: int, k: int) -> None:
        """Bring an elementwise region into region k, if both can run as one."""
        source, target = self.regions.get(h), self.regions[k]
        if source is None or source.kind != "map" or source.size != target.size:
            return
        if not self._few(*source.members, *target.members):
            return
        for x, before in self.before.items():
            if x in (h, k) or x not in self.regions:
                continue
            between = (before >> h & 1 and self.before[k] >> x & 1) or (
                before >> k & 1 and self.before[h] >> x & 1)
            if between:
                return
        flats = {v: at.replace({source.outer: target.full}) for v, at in source.flat.items()}
        joined = target.flat | flats
        for v in [*target.members, *source.members]:
            if v.op.kind == "contract":
                if any(s in flats for s in self._sources(v)):  # it reads all of its operands
                    return
                continue
            for s, at in self._reads_at(v, joined[v], target):
                if s in joined and joined[s] != at:
                    return
        target.members = sorted([*target.members, *source.members], key=lambda v: v.serial)
        target.flat = joined
        for v in source.members:
            self.home[v] = k
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

    def finish(self, graph: Graph) -> list[Region]:
        wanted = set(graph.roots)
        needs: dict[int, set[int]] = {k: set() for k in self.regions}
        for v, k in self.home.items():
            for s in self._sources(v):
                if s in self.home and self.home[s] != k:
                    wanted.add(s)
                    needs[k].add(self.home[s])
        # a state is overwritten only after everyone has read its old value
        writer = {state: self.home[new] for state, new in _updated(graph)}
        for v, k in self.home.items():
            for s in self._sources(v):
                if s in writer and writer[s] != k and not self._reaches(writer[s], k, needs):
                    needs[writer[s]].add(k)
        for region in self.regions.values():
            region.members.sort(key=lambda v: v.serial)
            region.stores = [v for v in region.members if v in wanted]
        return [self.regions[k] for k in _ordered(needs)]

    def _reaches(self, start: int, end: int, needs: dict[int, set[int]]) -> bool:
        """Whether `end` already waits for `start` (then the writer cannot wait for it)."""
        stack, seen = [end], set()
        while stack:
            k = stack.pop()
            if k == start:
                return True
            if k not in seen:
                seen.add(k)
                stack.extend(needs[k])
        return False


def _sources(v: Value) -> list[Value]:
    """The computed values and leaves that v reads, through views."""
    if v.op.kind == "map":
        return [s for s, _ in real_reads(v, unflatten(Index(), v.shape))]
    bases = (view_of(a, unflatten(Index(), a.shape)) for a in v.args)
    return [base[0] for base in bases if base is not None]


def _updated(graph: Graph) -> list[tuple[Value, Value]]:
    by_name = {s.attrs["name"]: s for s in graph.leaves("state")}
    return [(by_name[n], v) for n, v in graph.updates.items() if n in by_name]


def _ordered(needs: dict[int, set[int]]) -> list[int]:
    """Kahn's order; among those that are ready, the oldest first."""
    done: list[int] = []
    placed: set[int] = set()
    waiting = dict(needs)
    while waiting:
        ready = min(k for k, n in waiting.items() if n <= placed)
        placed.add(ready)
        done.append(ready)
        del waiting[ready]
    return done
