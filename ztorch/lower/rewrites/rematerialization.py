"""Rematerialization: each kernel that reads a cheap value recomputes it, so it is never stored.

Large kernels are mostly bound by memory. A cheap elementwise value such as `x - mean`, whose
operands its readers load anyway, costs a few instructions to recompute, while storing it costs a
pass over memory. Results are equal within rounding: it is the same operation on the same operands,
but may be contracted with another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ztorch.graph.value import Value
from ztorch.lower.insets import BORDER, INSET, INTERLEAVED, position
from ztorch.lower.positions import unflatten
from ztorch.lower.region import Region, real_reads, view_of
from ztorch.lower.tuning import (
    REGION_MEMBERS_MAX,
    REMATERIALIZE_BYTES,
    REMATERIALIZE_FEW,
)

Sources = Callable[[Value], list[Value]]


@dataclass
class _Recipe:
    """How to compute a value from stored ones."""

    steps: list[Value] = field(default_factory=list)  # in order; the value itself is the last
    bases: set[Value] = field(default_factory=set)  # their operands


class Rematerializer:
    """Rematerializes values, one after another, while that saves memory traffic."""

    def __init__(self, regions: Mapping[int, Region], home: Mapping[Value, int],
                 before: Mapping[int, int], sources: Sources, roots: Iterable[Value],
                 writers: Mapping[Value, int], slots: float):
        """`home` has the number of each value's region, `before` a bit set of the regions that run
        before each region, `roots` the values that the program returns, `writers` the region that
        overwrites a state, `slots` what may be spent per saved byte."""
        self.regions, self.home, self.before, self.sources = regions, home, before, sources
        self.roots, self.writers, self.slots = set(roots), writers, slots
        self.readers: dict[Value, set[int]] = {}  # of each value, outside of its region
        for v, k in home.items():
            for s in sources(v):
                if s in home and home[s] != k:
                    self.readers.setdefault(s, set()).add(k)

    def run(self) -> bool:
        """Rematerializes values; True if anything changed."""
        changed = False
        for v in sorted(self.readers, key=lambda v: v.serial):
            changed |= self._rematerialize(v)
        return changed

    def _rematerialize(self, v: Value) -> bool:
        if v in self.roots or not _is_elementwise(v) or _bytes(v) < REMATERIALIZE_BYTES:
            return False
        recipe = _Recipe()
        if not self._recipe(v, recipe):
            return False
        if any(self.before[k] >> self.writers[s] & 1
               for s in recipe.bases & {*self.writers} for k in self.readers[v]):
            return False  # a state that v reads would be overwritten before its readers run
        readers = [self.regions[k] for k in self.readers[v]]
        saved = _bytes(v) * (1 + len(readers))
        for region in readers:
            if not self._fits(recipe, v, region):
                return False
            read = {s for m in region.members for s in self.sources(m)}
            saved -= sum(map(_bytes, recipe.bases - read))
        slots = v.size * sum(s.op.cost for s in recipe.steps) * len(readers)
        if saved <= 0 or slots > self.slots * saved:
            return False
        for k in self.readers.pop(v):
            region = self.regions[k]
            for step in recipe.steps:
                if step not in region.flat:
                    region.add(step, position(step, region.full))
            for base in recipe.bases:
                if base in self.home and base not in region.flat:
                    self.readers.setdefault(base, set()).add(k)
        return True

    def _recipe(self, v: Value, recipe: _Recipe) -> bool:
        """Fills in how to compute v; False if that needs a value that is not stored."""
        for s in self.sources(v):
            if s in recipe.steps or s in recipe.bases:
                continue
            few = s.size * REMATERIALIZE_FEW <= v.size  # negligible to store
            if s in self.writers and not few:  # readers of a state delay its update
                return False
            stored = s not in self.home or s in self.roots or s in self.readers
            if stored or few:
                recipe.bases.add(s)
            elif not _is_elementwise(s) or s.size != v.size or not self._recipe(s, recipe):
                return False
        recipe.steps.append(v)
        return True

    def _fits(self, recipe: _Recipe, v: Value, region: Region) -> bool:
        """Whether a region can compute v where its members read it."""
        new = [s for s in recipe.steps if s not in region.flat]
        products = [m for m in region.members if m.op.kind == "contract"]
        others = [m for m in region.members if m not in products]
        if region.kind not in ("map", "reduce") and not _sums_columns(region):
            return False
        if region.in_place or any(m.op.partial or not _is_map_or_reduction(m) for m in others):
            return False
        if any(s in new for m in products for s in self.sources(m)):
            return False
        if len(region.members) + len(new) > REGION_MEMBERS_MAX:
            return False
        flats = dict(region.flat)
        for s in new:
            if s.size != region.size:
                return False
            flats[s] = position(s, region.full)
        for m in (*others, *new):
            for s, at in _reads_at(m, flats, region):
                if s in flats and at != flats[s]:
                    return False
        return True


def drop_idle(regions: dict[int, Region], home: Mapping[Value, int], sources: Sources,
              roots: set[Value]) -> None:
    """Removes regions, and members of regions, whose results are no longer read."""
    while True:
        read = {s for k, region in regions.items() for v in region.members
                for s in sources(v) if s not in region.flat}
        idle = False
        for k, region in list(regions.items()):
            if region.kind not in ("map", "reduce") or region.members[0].op.partial:
                continue
            region.stores = [v for v in region.members if home[v] == k and (
                v in read or v in roots or v.op is INSET)]
            before = len(region.members)
            _prune(region, sources)
            idle = idle or len(region.members) < before
            if not region.members:
                del regions[k]
        if not idle:
            return


def _prune(region: Region, sources: Sources) -> None:
    """Removes members that no stored member of the region depends on."""
    needed, stack = set(region.stores), list(region.stores)
    while stack:
        for s in sources(stack.pop()):
            if s in region.flat and s not in needed:
                needed.add(s)
                stack.append(s)
    region.members = [v for v in region.members if v in needed]
    region.flat = {v: at for v, at in region.flat.items() if v in needed}


def _is_elementwise(v: Value) -> bool:
    """Whether v is one elementwise operation on its arguments."""
    return v.op.kind == "map" and bool(v.op.opcode)  # insets and borders have no opcode


def _sums_columns(region: Region) -> bool:
    """Whether a region is a product whose epilogue sums columns."""
    return region.kind == "contract" and any(v.op.kind == "reduce" for v in region.members)


def _is_map_or_reduction(v: Value) -> bool:
    return v.op.kind in ("map", "reduce") and v.op not in (INSET, INTERLEAVED, BORDER)


def _bytes(v: Value) -> int:
    return v.size * v.dtype.bytes


def _reads_at(v: Value, flats: Mapping[Value, object], region: Region) -> list[tuple]:
    if v.op.kind == "reduce":
        base = view_of(v.args[0], unflatten(region.full, v.args[0].shape))
        return [base] if base else []
    return real_reads(v, unflatten(flats[v], v.shape))  # type: ignore[arg-type]
