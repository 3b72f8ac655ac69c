"""A graph as kernels to run in order, and where each value lies: the whole step as one program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ztorch.dtypes import DType, lying
from ztorch.graph.memory import ArenaBuffer
from ztorch.graph.value import Graph, Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import Limits
from ztorch.lower import nests
from ztorch.lower.alike import Span, rebased, shape_of
from ztorch.lower.frozen import Derived
from ztorch.lower.fuse import fuse
from ztorch.lower.loops import widest
from ztorch.lower.passes import hoist, lane_by_lane, share_out
from ztorch.lower.placement import Location, Params, Placement
from ztorch.lower.prepare import prepare
from ztorch.lower.region import Region, reads_remembered
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import NAME_LENGTH_MAX, OP_SLOTS_MIN

# By the key of a kernel, or by its name without the size of its tile.
Schedules = Mapping[str, Schedule | str]


@dataclass(frozen=True)
class KernelStep:
    """One kernel on its buffers."""

    kernel: Kernel
    locations: tuple[Location, ...]  # of the kernel's buffers, in their order
    writes: tuple[bool, ...]  # which of them it writes
    cycles: float  # estimated, of one worker
    barrier: bool = False  # workers meet before it: it depends on a step since they met last
    key: str = ""  # its function and its name without the size of its tile: names its schedule
    schedule: Schedule | None = None  # None: made without one


@dataclass(frozen=True)
class Plan:
    """One function of a program."""

    name: str
    inputs: list[Value]
    outputs: list[tuple[str, Value]]
    steps: list[KernelStep]
    arena: int  # bytes of memory for what lives during one call
    buffers: list[tuple[str, ArenaBuffer, int]]  # in the arena: label, lifetime, offset

    @property
    def cycles(self) -> float:
        return sum(s.cycles for s in self.steps)


@reads_remembered()
def lower(name: str, graph: Graph, limits: Limits, params: Params, fusion: bool = True,
          derived: Derived | None = None, schedules: Schedules | None = None) -> Plan:
    """Kernels and buffers of one function; states and constants are given a location in params.
    With `derived`, the states never change and what is made of them alone is computed elsewhere.
    `schedules` take the place of what the rules propose: by the key of a kernel (function/name), or
    by its name alone, without the size of its tile."""
    graph = prepare(graph, limits, frozen=derived is not None)
    if derived is not None:
        graph = derived.take(graph)
    most = limits.grid.max_buffers if limits.grid else 0
    placement = Placement(graph, fuse(graph, fusion), limits, params)
    while most and placement.too_many_buffers():
        # what a kernel stores for itself is not foreseen, so it may take a lower number
        placement = Placement(graph, fuse(graph, fusion, most), limits, params)
        most -= 1
    steps = [_Kernel(name, placement, number, schedules or {}).step()
             for number in range(len(placement.regions))]
    return Plan(name, placement.inputs, list(graph.outputs.items()), _with_barriers(steps),
                placement.arena, placement.buffers)


class _Kernel:
    """The kernel of one region, as it becomes a step of its function."""

    def __init__(self, function: str, placement: Placement, number: int, schedules: Schedules):
        self.placement, self.region = placement, placement.regions[number]
        self.limits, self.params = placement.limits, placement.params
        self.reads, self.stores = placement.reads[number], self.region.stores
        self.buffers = [*self.reads, *self.stores]
        self.at = {v: placement.locations[v] for v in self.buffers}
        self.names: dict[Location, str] = {}  # of the kernel's memories
        for v in self.buffers:
            self.names.setdefault(self.at[v], f"m{len(self.names)}")
        self.written = {self.at[v] for v in self.stores}
        self.stem = _stem(self.region, number)
        self.key = f"{function}/{self.stem}"
        override = schedules.get(self.key, schedules.get(self.stem))
        self.given = None if override is None else nests.checked(
            override, self.region, self.limits, self.key)

    def step(self) -> KernelStep:
        region, names = self.region, self.names
        again = {self.at[v] for v in self.stores if region.kind == "reduce"}
        again |= self.written & {self.at[v] for v in self.reads}
        access = {p: "r" if p not in self.written else "rw" if p in again else "w" for p in names}
        fixed = {v: self._is_fixed(v) for v in self.buffers}
        roles = tuple((names[p], access[p], v in self.reads) for v, p in self.at.items())
        shape = shape_of(region, self.buffers, fixed, (roles, self.given))
        if shape.key not in self.params.kernels:
            spans = {names[self.at[v]]: shape.spans[v] for v in self.buffers if not fixed[v]}
            self.params.kernels[shape.key] = self._lowered(access, spans)
        kernel, schedule = self.params.kernels[shape.key]
        lanes = self.limits.lanes(_dtype(region))
        origin = tuple(dict.fromkeys(
            re.sub(r"[^\w .:/-]", "_", v.layer) for v in region.members if v.layer))
        kernel = replace(kernel, name=f"{self.stem}_{schedule.tile(lanes)}", origin=origin)
        parts = {self.at[v]: self._part(v, shape.spans[v]) for v in self.buffers}
        locations = tuple(parts[p] for p in names)
        moved = sum(p.size for p in locations) / self.limits.processor.outer_bytes_per_cycle
        return KernelStep(kernel, locations, tuple(p in self.written for p in names),
                          max(_cycles(region, self.limits), moved), False, self.key, schedule)

    def _lowered(self, access: Mapping[Location, str],
                 spans: Mapping[str, Span]) -> tuple[Kernel, Schedule]:
        """The loop nest of the region, by the schedule from outside or by the rules' own."""
        b = Builder("alike", self.limits.index, exact=not self.limits.fma)
        for v in self.buffers:
            if (name := self.names[self.at[v]]) not in b.memories:
                b.memory(name, lying(v.dtype), v.size, access=access[self.at[v]])
        schedule = self.given or nests.propose(self.region, self.limits)
        nests.emit(b, self.region, {v: self.names[self.at[v]] for v in self.reads},
                   {v: self.names[self.at[v]] for v in self.stores}, self.limits, schedule)
        nest = b.kernel()
        if self.limits.grid is not None and self.region.kind != "contract":
            nest = lane_by_lane(nest)
        return rebased(hoist(share_out(nest)), spans), schedule

    def _is_fixed(self, v: Value) -> bool:
        """Whether a buffer is read from its beginning: slots are given as they are, the buffers of
        a grid are aligned, and what has two names or is written must be the same for both."""
        location = self.at[v]
        return (self.limits.grid is not None or location.space in ("inputs", "outputs")
                or any(location.overlaps(w) for w in self.written)
                or sum(self.at[w] == location for w in self.buffers) > 1)

    def _part(self, v: Value, span: Span) -> Location:
        location, size = self.at[v], v.dtype.bytes
        if span == Span(0, v.size):
            return location
        return Location(location.space, location.offset + span.start * size, span.size * size)


def _with_barriers(steps: list[KernelStep]) -> list[KernelStep]:
    """Workers meet only where a step depends on one that they have not met after."""
    out: list[KernelStep] = []
    touched: dict[str, list[Location]] = {}  # by space, since they met; and what of it was written
    written: dict[str, list[Location]] = {}
    for s in steps:
        meets = any(p.overlaps(other) for p, w in zip(s.locations, s.writes, strict=True)
                    for other in (touched if w else written).get(p.space, ()))
        if meets:
            touched, written = {}, {}
        for p, w in zip(s.locations, s.writes, strict=True):
            touched.setdefault(p.space, []).append(p)
            if w:
                written.setdefault(p.space, []).append(p)
        out.append(replace(s, barrier=meets))
    return out


def _cycles(region: Region, limits: Limits) -> float:
    """A rough estimate, to tell whether more workers would pay."""
    total = 0.0
    for v in region.members:
        lanes = limits.lanes(v.dtype)
        if v.op.kind == "contract":
            total += v.size * v.args[0].shape[-1] / (limits.processor.fma_ports * lanes)
        else:
            n = v.args[0].size if v.op.kind == "reduce" else v.size
            total += n * max(v.op.cost, OP_SLOTS_MIN) / (
                limits.processor.fma_ports * lanes)
    return total


def _stem(region: Region, number: int) -> str:
    """The name of a kernel but for the size of its tile. It reads like the model in a profiler:
    layer, ops and dtype; only letters, digits and underscores survive."""
    main = _main(region)
    layer = next((v.layer for v in main if v.layer), "")
    ops = dict.fromkeys([*[v.op.name for v in main][:2], region.members[-1].op.name])
    words = re.sub(r"[^A-Za-z0-9_]+", "_", "_".join([w for w in [layer, *ops] if w]))
    return f"k{number}_{words[:NAME_LENGTH_MAX]}_{_dtype(region).name}"


def _dtype(region: Region) -> DType:
    """What it computes in: the dtype of its product or reduction, else the widest."""
    return widest(region) if region.kind == "map" else _main(region)[0].dtype


def _main(region: Region) -> list[Value]:
    """Its products and reductions; all values where it has neither."""
    return [v for v in region.members if v.op.kind != "map"] or region.members
