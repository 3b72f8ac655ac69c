"""A graph as kernels to run in order, and where each value lies: the whole step as one program."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ztorch.abi import AGAIN
from ztorch.dtypes import DType, lying
from ztorch.graph.body import Body, arguments
from ztorch.graph.memory import ArenaBuffer
from ztorch.graph.value import Graph, Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import Limits
from ztorch.lower import nests
from ztorch.lower.alike import Span, rebased, shape_of
from ztorch.lower.barriers import LoopSpan, meetings, runs_of
from ztorch.lower.cycles import kernel_cycles
from ztorch.lower.frozen import Derived
from ztorch.lower.fuse import fuse
from ztorch.lower.loops import widest
from ztorch.lower.passes import hoist, lane_by_lane, share_out
from ztorch.lower.placement import SLOTS, Location, Params, Placement
from ztorch.lower.prepare import prepare
from ztorch.lower.recompute import with_less_memory
from ztorch.lower.recurrence import RECURRENCE
from ztorch.lower.region import Region, reads_remembered
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import NAME_LENGTH_MAX
from ztorch.lower.turns import body_graph, row_elements
from ztorch.work_line import at, counted

# By the key of a kernel, or by its name without the size of its tile.
Schedules = Mapping[str, Schedule | str]


@dataclass(frozen=True)
class KernelStep:
    """One kernel on its buffers."""

    kernel: Kernel
    locations: tuple[Location, ...]  # of the kernel's buffers, in their order
    writes: tuple[bool, ...]  # which of them it writes
    cycles: float  # estimated, of one worker
    barrier: bool = False  # workers meet before it
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
    loops: Sequence[LoopSpan] = ()  # steps that are repeated; outer loops before those inside

    @property
    def cycles(self) -> float:
        return sum(s.cycles * turns for s, turns in zip(self.steps, self.turns(), strict=True))

    def turns(self) -> list[int]:
        """How often each step runs, at most."""
        return [math.prod(loop.turns for loop in self.loops if loop.first <= k < loop.end)
                for k in range(len(self.steps))]

    def runs(self, goes_on: Callable[[Location], bool]
             ) -> Iterator[tuple[KernelStep, tuple[Location, ...]]]:
        """Each run of a step in order, with the locations of its buffers at that turn.

        Args:
            goes_on: Whether the bool at a location is true, by which a loop ends early.
        """
        return runs_of(self.steps, self.loops, goes_on)


@reads_remembered()
def lower(name: str, graph: Graph, limits: Limits, params: Params, fusion: bool = True,
          derived: Derived | None = None, schedules: Schedules | None = None,
          memory_limit: int | None = None) -> Plan:
    """Kernels and buffers of one function; states and constants are given a location in params.
    With `derived`, the states never change and what is made of them alone is computed elsewhere.
    `schedules` take the place of what the rules propose. With `memory_limit`, kernels run again so
    that the arena has no more bytes."""
    at(f"fuse {name}")
    graph = prepare(graph, limits, frozen=derived is not None)
    if derived is not None:
        graph = derived.take(graph)
    placement = _placed(graph, graph.leaves("input"), (), limits, params, fusion, name,
                        memory_limit)
    steps, loops = _Steps(name, schedules or {}).of(placement)
    meets = meetings([list(zip(s.locations, s.writes, strict=True)) for s in steps], loops)
    steps = [replace(s, barrier=barrier) for s, barrier in zip(steps, meets, strict=True)]
    return Plan(name, list(placement.inputs), list(graph.outputs.items()), steps,
                placement.arena, placement.buffers, loops)


def _placed(graph: Graph, inputs: Sequence[Value], carries: Sequence[Value], limits: Limits,
            params: Params, fusion: bool, function: str = "",
            memory_limit: int | None = None) -> Placement:
    """The regions of a graph, and where their buffers lie; the same for the bodies of loops."""
    bodies = {}
    for v in graph.nodes():
        if v.op.kind == "loop":
            body: Body = v.attrs["body"]
            bodies[v] = _placed(body_graph(body), (*body.slices, *body.shared), body.carries,
                                limits, params, fusion)
    most = limits.grid.max_buffers if limits.grid else 0
    place = functools.partial(Placement, limits=limits, params=params, inputs=inputs,
                              carries=carries, bodies=bodies)
    regions = fuse(graph, fusion)
    placement = place(graph, regions)
    while most and placement.too_many_buffers():
        # what a kernel stores for itself is not foreseen, so it may take a lower number
        regions = fuse(graph, fusion, most)
        placement = place(graph, regions)
        most -= 1
    if graph.recomputed or (memory_limit is not None and placement.arena > memory_limit):
        return with_less_memory(placement, regions, functools.partial(place, graph), graph,
                                memory_limit, function)
    return placement


class _Steps:
    """The kernels of a function, with those of its loops in their place."""

    def __init__(self, function: str, schedules: Schedules):
        self.function, self.schedules = function, schedules

    def of(self, placement: Placement, prefix: str = "") -> tuple[list[KernelStep], list[LoopSpan]]:
        """The kernels of a placement, and the loops around them."""
        steps: list[KernelStep] = []
        loops: list[LoopSpan] = []
        for number, region in enumerate(counted(f"plan {self.function}", placement.regions)):
            label = f"{prefix}{placement.first_run[region]}"
            again = placement.runs_again(number)
            if region.kind != "loop":
                kernel = _Kernel(self.function, placement, number, label, self.schedules, again)
                steps.append(kernel.step())
                continue
            loop = region.members[0]
            mark = AGAIN if again or loop.attrs["body"].again else ""
            inside, spans = self.of(placement.bodies[loop], f"{label}{mark}_")
            if not inside:
                continue
            into = _LoopPlaces(loop, placement, number)
            first = len(steps)
            steps += [replace(s, locations=tuple(map(into.place, s.locations))) for s in inside]
            loops.append(LoopSpan(first, len(steps), into.body.turns, into.proceed()))
            loops += [replace(s, first=s.first + first, end=s.end + first, proceed=s.proceed and
                              into.place(s.proceed)) for s in spans]
        return steps, loops


class _LoopPlaces:
    """Where the buffers of a body lie in the function that has the loop."""

    def __init__(self, loop: Value, placement: Placement, number: int):
        self.body: Body = loop.attrs["body"]
        at = functools.partial(placement.at, number)
        self.arena = at(loop).offset
        self.turns = self.body.turns
        inits, sequences, shared = arguments(self.body, loop.args)
        align = placement.limits.buffer_align
        results = {v.attrs["index"]: v for r in placement.regions if loop in r.flat
                   for v in r.members if v.op.kind == "result"}
        moving = [(at(x), row_elements(s, align) * s.dtype.bytes)
                  for s, x in zip(self.body.slices, sequences, strict=True)]
        count = len(self.body.carries)
        stacks = [(at(results[count + k]), row_elements(v, align) * v.dtype.bytes)
                  for k, v in enumerate(self.body.outs)]
        self.slots = {"carries": [(at(x), 0) for x in inits],
                      "inputs": [*moving, *((at(x), 0) for x in shared)], "outputs": stacks}

    def place(self, location: Location) -> Location:
        """The location of a buffer of the body, as it moves from turn to turn."""
        if location.space not in SLOTS:
            offset = location.offset + (self.arena if location.space == "arena" else 0)
            return replace(location, offset=offset, strides=(0, *location.strides))
        base, stride = self.slots[location.space][location.offset]
        start = base.start + location.start + (self.turns - 1) * stride * self.body.reverse
        strides = (-stride if self.body.reverse else stride, *location.strides)
        if base.space in SLOTS:
            return Location(base.space, base.offset, location.size, start, strides)
        return Location(base.space, base.offset + start, location.size, 0, strides)

    def proceed(self) -> Location | None:
        """Where the bool lies that ends the loop."""
        if self.body.proceed is None:
            return None
        location, _ = self.slots["carries"][self.body.proceed]
        return replace(location, strides=(0,))


class _Kernel:
    """The kernel of one region, as it becomes a step of its function."""

    def __init__(self, function: str, placement: Placement, number: int, label: str,
                 schedules: Schedules, again: bool):
        self.placement, self.region = placement, placement.regions[number]
        self.limits, self.params = placement.limits, placement.params
        self.reads, self.stores = placement.reads[number], self.region.stores
        self.buffers = [*self.reads, *self.stores]
        self.at = {v: placement.at(number, v) for v in self.buffers}
        self.names: dict[Location, str] = {}  # of the kernel's memories
        for v in self.buffers:
            self.names.setdefault(self.at[v], f"m{len(self.names)}")
        self.written = {self.at[v] for v in self.stores}
        self.stem = _stem(self.region, label)
        self.key = f"{function}/{self.stem}"
        override = schedules.get(self.key, schedules.get(self.stem))
        self.given = None if override is None else nests.checked(
            override, self.region, self.limits, self.key)
        if again:  # the same kernel, by another name
            self.stem = _stem(self.region, f"{label}{AGAIN}")

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
        touched = [] if region.in_place else locations  # of a buffer written in place, a few bytes
        moved = sum(p.size for p in touched) / self.limits.processor.outer_bytes_per_cycle
        return KernelStep(kernel, locations, tuple(p in self.written for p in names),
                          max(kernel_cycles(region, self.limits), moved), False, self.key, schedule)

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
        grid = self.limits.grid
        if grid is not None and (self.region.kind != "contract"
                                 or grid.scalar_stores_readable_as_vectors):
            nest = lane_by_lane(nest)
        return rebased(hoist(share_out(nest)), spans), schedule

    def _is_fixed(self, v: Value) -> bool:
        """Whether a buffer is read from its beginning: slots are given as they are, the buffers of
        a grid are aligned, and what has two names or is written must be the same for both."""
        location = self.at[v]
        return (self.limits.grid is not None or location.space in SLOTS
                or any(location.overlaps(w) for w in self.written)
                or sum(self.at[w] == location for w in self.buffers) > 1)

    def _part(self, v: Value, span: Span) -> Location:
        location, size = self.at[v], v.dtype.bytes
        if span == Span(0, v.size):
            return location
        return Location(location.space, location.offset + span.start * size, span.size * size)


def _stem(region: Region, label: str) -> str:
    """The name of a kernel but for the size of its tile. It reads like the model in a profiler:
    layer, ops and dtype; only letters, digits and underscores survive."""
    main = _main(region)
    layer = next((v.layer for v in main if v.layer), "")
    ops = dict.fromkeys([*[v.op.name for v in main][:2], region.members[-1].op.name])
    words = re.sub(r"[^A-Za-z0-9_]+", "_", "_".join([w for w in [layer, *ops] if w]))
    return f"k{label}_{words[:NAME_LENGTH_MAX]}_{_dtype(region).name}"


def _dtype(region: Region) -> DType:
    """What it computes in: the dtype of its product or reduction, else the widest."""
    first = _main(region)[0]
    if first.op is RECURRENCE:
        return first.attrs["recurrence"].widest
    return widest(region) if region.kind == "map" else first.dtype


def _main(region: Region) -> list[Value]:
    """Its products and reductions; all values where it has neither."""
    return [v for v in region.members if v.op.kind != "map"] or region.members
