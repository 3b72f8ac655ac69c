"""Reductions on any machine: the axes of a region's loops, and its passes over the inner loop."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from ztorch.dtypes import storage_dtype
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import Region, computed, real_reads, reduce_domain, view_of
from ztorch.lower.tuning import LOCAL_ROW_BYTES, RECOMPUTE_SLOTS


@dataclass(frozen=True)
class Axes:
    """The loops of a reducing region."""

    outer: list[Var]  # over its results
    inner: list[Var]  # over the elements of one result
    full: dict[Var, Index]  # the region's two loop variables in terms of these loops
    by_columns: bool  # contiguous elements belong to neighboring results, not to the same one


def reduce_region(v: Value) -> Region:
    """A region of one reduction."""
    x, axes = v.args[0], v.attrs["axes"]
    outer, inner, full = reduce_domain(x.shape, axes)
    region = Region("reduce", outer, inner, full, x.size, axes=axes, shape=x.shape)
    region.add(v, Index.of(outer))
    return region


def axes_of(region: Region) -> Axes:
    """One loop per axis with more than one element. Adjacent axes that are both reduced, or both
    kept, are merged where that adds no division. They are shared by all that ask."""
    return worked_out_once(region, _merged_axes)


def worked_out_once(region: Region, loops: Callable[[Region], Axes]) -> Axes:
    """The loops that a function finds for a region with its present members."""
    key = loops, region.shape, region.axes, *region.members
    if key not in region.known:
        region.known[key] = loops(region)
    axes: Axes = region.known[key]
    return axes


def _merged_axes(region: Region) -> Axes:
    sizes = [(n, k in region.axes) for k, n in enumerate(region.shape) if n > 1]
    axes = _loops(region, sizes)
    positions = [at for v in region.members for at in (
        *(flat for source, flat in real_reads(v, region.index(v)) if source not in region.flat),
        *computed(v, region.index(v)))] + region.inset_at()
    divisions = _divisions(positions, axes)
    for k in reversed(range(len(sizes) - 1)):
        (n, reduced), (m, also_reduced) = sizes[k:k + 2]
        if reduced != also_reduced:
            continue
        joined = [*sizes[:k], (n * m, reduced), *sizes[k + 2:]]
        longer = _loops(region, joined)
        longer_divisions = _divisions(positions, longer)
        if longer_divisions <= divisions:
            sizes, axes, divisions = joined, longer, longer_divisions
    return axes


def _loops(region: Region, sizes: Sequence[tuple[int, bool]]) -> Axes:
    """Loops over axes, given as extents and whether each is reduced."""
    outer = [Var(f"o{k}", n) for k, n in enumerate(n for n, reduced in sizes if not reduced)]
    inner = [Var(f"i{k}", n) for k, n in enumerate(n for n, reduced in sizes if reduced)]
    full = {flat: flatten([Index.of(v) for v in loops], [v.extent for v in loops])
            for flat, loops in ((region.outer, outer), (region.inner, inner))}
    position = region.full.replace(full)
    by_columns = bool(outer) and position.factor(outer[-1]) == 1 and not (
        inner and position.factor(inner[-1]) == 1)
    return Axes(outer, inner, full, by_columns)


def _divisions(positions: Sequence[Index], axes: Axes) -> int:
    """The number of divisions that compute positions from the loops."""
    return sum(at.replace(axes.full).divisions for at in positions)


class Phases:
    """The pass over the inner loop in which each member of a reduction region can be computed."""

    def __init__(self, region: Region):
        self.region = region
        self._known: dict[Value, list[tuple[Value, Index]]] = {}
        self._costs: dict[Value, int] = {}
        self.ready: dict[Value, int] = {}  # full member: its pass; row member: known before it
        for v in region.members:
            if v.op.kind == "reduce":
                self.ready[v] = self._of_source(v) + 1
            else:
                self.ready[v] = max([0, *(self.ready[s] for s, _ in self._reads(v))])
        self.count = 1 + max(self.ready.values())

    def _reads(self, v: Value) -> list[tuple[Value, Index]]:
        if v not in self._known:
            at = unflatten(self.region.flat[v], v.shape)
            self._known[v] = [(s, i) for s, i in real_reads(v, at) if s in self.region.flat]
        return self._known[v]

    def _of_source(self, v: Value) -> int:
        base = self._source(v)
        return self.ready.get(base[0], 0) if base else 0

    def _source(self, v: Value) -> tuple[Value, Index] | None:
        """What a reduction reads, and its position."""
        return view_of(v.args[0], unflatten(self.region.full, v.args[0].shape))

    def passes(self, target: Container[Value]) -> Iterator[tuple[int, list[Value], list[Value]]]:
        """The passes that are not empty: number, full members of `target` that are stored in it,
        and reductions that are complete after it."""
        for p in range(self.count):
            stores = [v for v in self.region.members
                    if self.ready[v] == p and v in target and not self._once(v)]
            sums = [v for v in self.region.members
                    if v.op.kind == "reduce" and self.ready[v] == p + 1]
            if stores or sums:
                yield p, stores, sums

    def rows(self, target: Container[Value]) -> list[Value]:
        """Members of `target` with one value per row."""
        return [v for v in self.region.members if self._once(v) and v in target]

    def _once(self, v: Value) -> bool:
        return self.region.is_row(v) or v.op.kind == "reduce"

    def used_later(self) -> list[Value]:
        """Full members that a later pass reads and that are expensive to recompute."""
        late = []
        for v in self.region.members:
            readers = [w for w in self.region.members if w is not v and w.op.kind == "map" and any(
                s is v for s, _ in self._reads(w))] if v.op.kind == "map" else []
            reduces = [w for w in self.region.members if w.op.kind == "reduce"
                       and (base := self._source(w)) and base[0] is v]
            passes = {self.ready[w] for w in readers if not self.region.is_row(w)}
            passes |= {self.ready[w] - 1 for w in reduces} | {self.ready[v]}
            if not self.region.is_row(v) and len(passes) > 1 and self.cost(v) > RECOMPUTE_SLOTS:
                late.append(v)
        return late

    def in_row(self, axes: Axes, limits: Limits) -> list[Value]:
        """Members of which a processor keeps one row, for later passes, in a local array."""
        if limits.grid is not None or axes.by_columns or not axes.inner:
            return []
        size = math.prod(v.extent for v in axes.inner)

        def fits(v: Value) -> bool:
            at = self.region.flat[v].replace(axes.full)
            row = functools.reduce(Index.without, axes.outer, at)
            return at.is_affine and row.range == (0, size - 1) and (
                size * storage_dtype(v.dtype).bytes <= LOCAL_ROW_BYTES)

        return [v for v in self.used_later() if v not in self.region.stores and fits(v)]

    def replaced(self, stores: Sequence[Value], results: Sequence[Value]) -> dict[Value, Value]:
        """Values between passes that need no buffers of their own, each with the result in whose
        place it is kept. The last pass reads each element there before it stores the result."""
        last = [w for w in results if w not in stores and not self._once(w)
                and self.ready[w] == self.count - 1]
        pairs: dict[Value, Value] = {}
        for v in stores:
            readers = [at for w in self.region.members if w.op.kind == "map"
                       for s, at in self._reads(w) if s is v]
            readers += [base[1] for w in self.region.members if w.op.kind == "reduce"
                        and (base := self._source(w)) and base[0] is v]
            home = next((w for w in last if w not in pairs.values() and w.dtype == v.dtype
                         and w.size == v.size and self.region.flat[w] == self.region.flat[v]), None)
            if home is not None and all(at == self.region.flat[v] for at in readers):
                pairs[v] = home
        return pairs

    def computed_after(self, stored: int) -> set[Value]:
        """The members that are computed, perhaps again, after pass `stored` has stored values."""
        members = self.region.members
        open_ = [w for w in members if w.op.kind == "reduce" and self.ready[w] > stored]
        open_ += [w for w in self.region.stores if self.ready[w] > stored and not self._once(w)]
        open_ += [w for w in members if self._once(w) and self.ready[w] > stored]
        visited: set[Value] = set()
        while open_:
            v = open_.pop()
            if v not in visited:
                visited.add(v)
                sources = [s for s, _ in self._reads(v)] if v.op.kind == "map" else [
                    base[0] for base in (self._source(v),) if base]
                open_ += [s for s in sources if s in self.region.flat and not (
                    s in self.region.stores and self.ready[s] <= stored) and not self._once(s)]
        return visited

    def cost(self, v: Value) -> int:
        """Issue slots to recompute one element from per-row values."""
        if v not in self.region.flat or v.op.kind != "map":
            return v.op.cost
        if v not in self._costs:
            below = [s for s, _ in self._reads(v) if not self.region.is_row(s)]
            self._costs[v] = v.op.cost + sum(self.cost(s) for s in set(below))
        return self._costs[v]
