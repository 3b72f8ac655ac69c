"""A graph as kernels in order, with the location of each value: the whole step as one program."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ztorch.abi import AGAIN
from ztorch.graph.body import Body, arguments
from ztorch.graph.memory import ArenaBuffer
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.lower import nests
from ztorch.lower.barriers import BufferAccess, LoopSpan, barriers_before, lone_loops, runs_of
from ztorch.lower.chains import with_chains
from ztorch.lower.column_sums import ColumnSums
from ztorch.lower.fuse import fuse
from ztorch.lower.joined_launches import with_joined_launches
from ztorch.lower.locations import SLOTS, Location
from ztorch.lower.own_parts import workers_apart
from ztorch.lower.params import Params
from ztorch.lower.placement import Placement
from ztorch.lower.plan_schedule import APART, HEAVY_APART, RECOMPUTED, RULES, PlanSchedule
from ztorch.lower.recompute import with_less_memory
from ztorch.lower.region import cached_reads
from ztorch.lower.region_kernel import KernelStep, RegionKernel
from ztorch.lower.rewrites.frozen import Derived, Stored
from ztorch.lower.rewrites.histories import row_elements, row_steps, state_outs
from ztorch.lower.rewrites.in_place_concat import with_insets
from ztorch.lower.rewrites.loop_bodies import body_graph
from ztorch.lower.rewrites.prepare import prepare
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import L2_SHARE, REMATERIALIZE_CORE_SLOTS, REMATERIALIZE_SLOTS
from ztorch.terminal.work_line import at, counted

# By the key of a kernel, or by its name without the size of its tile.
Schedules = Mapping[str, Schedule | str]


class Chooser(NamedTuple):
    """Schedules in place of those of the rules, such as measured ones."""

    kernel: Callable[[RegionKernel], Schedule | None]  # None: that of the rules
    plan: Callable[[Graph], PlanSchedule] = lambda graph: RULES  # for a function


@dataclass(frozen=True)
class Plan:
    """One function of a program."""

    name: str
    inputs: list[Value]
    outputs: list[tuple[str, Value]]
    steps: list[KernelStep]
    arena: int  # bytes of memory that live during one call
    buffers: list[tuple[str, ArenaBuffer, int]]  # in the arena: label, lifetime, offset
    loops: Sequence[LoopSpan] = ()  # steps that are repeated; outer loops before those inside
    # Workers whose number divides this one meet where loops begin, and not at barriers that are
    # `skipped`: each goes on with its own part of all buffers.
    apart: int = 1

    @property
    def cycles(self) -> float:
        return sum(s.cycles * count for s, count in zip(self.steps, self.run_counts(), strict=True))

    @property
    def parts(self) -> list[KernelStep]:
        """The steps of single regions, several of which a launch may join."""
        return [part for s in self.steps for part in s.parts]

    def run_counts(self) -> list[int]:
        """How often each step runs, at most."""
        return [math.prod(loop.trip_count for loop in self.loops if loop.first <= k < loop.end)
                for k in range(len(self.steps))]

    def runs(self, goes_on: Callable[[Location], bool]
             ) -> Iterator[tuple[KernelStep, tuple[Location, ...]]]:
        """Each run of a step in order, with the locations of its buffers at that iteration.

        Args:
            goes_on: Whether the bool at a location is true, by which a loop ends early.
        """
        return runs_of(self.steps, self.loops, goes_on)


@cached_reads()
def lower(name: str, graph: Graph, limits: Limits, params: Params, fusion: bool = True,
          derived: Derived | None = None, schedules: Schedules | None = None,
          memory_limit: int | None = None, chooser: Chooser | None = None) -> Plan:
    """The kernels and buffers of one function. States and constants get a location in `params`.

    With `derived`, states never change, and values of states alone are computed by another
    function. `schedules` override those of the rules, by the key of a kernel (function/name) or by
    its name without the tile size; `chooser` is called for all other kernels. With `memory_limit`,
    kernels run again so that the arena stays within so many bytes."""
    at(f"fuse {name}")
    choice = RULES if chooser is None else chooser.plan(graph)
    choice = choice if fusion else replace(choice, fusion=APART)
    graph = prepare(graph, limits, derived, layouts=choice.layout > 0, library=choice.library)
    if derived is not None or graph.leaves("constant"):
        graph = (derived or Stored()).take(graph)
    if memory_limit is None and not graph.recomputed:
        graph = with_insets(graph, only_longer_rows=limits.grid is not None)
    placement = _placed(graph, graph.leaves("input"), {}, limits, params, choice.fusion, name,
                        memory_limit)
    planned = _Steps(name, schedules or {}, chooser, choice.library)
    steps, loops = planned.of(placement)
    accesses = [[*map(BufferAccess, s.locations, s.writes)] for s in steps]
    barriers = barriers_before(accesses, loops)
    apart, fewer = (1, barriers) if limits.grid else workers_apart(steps, loops, barriers)
    steps = [replace(s, barrier=barrier or remains, skipped=barrier and not remains)
             for s, barrier, remains in zip(steps, barriers, fewer, strict=True)]
    if limits.grid is not None and limits.grid.launch_barriers and not loops and fusion:
        steps = with_chains(steps, planned.kernels, params)
    if limits.grid and limits.grid.skips_branches and choice.fusion != APART:
        steps, loops = with_joined_launches(steps, loops, limits)
    plan = Plan(name, list(placement.inputs), list(graph.outputs.items()), steps,
                placement.arena, placement.buffers, loops, apart)
    if limits.grid is not None:
        return plan
    work = [(s.cycles, n, s.barrier) for s, n in zip(steps, plan.run_counts(), strict=True)]
    return replace(plan, loops=lone_loops(loops, work))


def _placed(graph: Graph, inputs: Sequence[Value], carries: Mapping[Value, int], limits: Limits,
            params: Params, fusion: int, function: str = "",
            memory_limit: int | None = None) -> Placement:
    """The regions of a graph and the locations of their buffers, also for the bodies of loops.
    `carries`: for each carry, the distance in bytes from its state before an iteration to the next.
    """
    bodies = {}
    for v in graph.nodes():
        if v.op.kind == "loop":
            body: Body = v.attrs["body"]
            steps = row_steps(body, limits.buffer_align)
            inner = {c: steps.get(k, 0) for k, c in enumerate(body.carries)}
            bodies[v] = _placed(body_graph(body), (*body.slices, *body.shared), inner, limits,
                                params, fusion)
    most = limits.grid.max_buffers if limits.grid else 0
    in_outputs = bool(function) and limits.grid is None and memory_limit is None and (
        not graph.recomputed)
    parallel = limits.grid is not None and memory_limit is None and not graph.recomputed
    place = functools.partial(Placement, limits=limits, params=params, inputs=inputs,
                              carries=carries, bodies=bodies, in_outputs=in_outputs,
                              parallel=parallel)
    fused = functools.partial(
        fuse, graph, fusion != APART, parallel=parallel,
        rematerialize=(REMATERIALIZE_SLOTS if limits.grid or fusion == RECOMPUTED
                       else REMATERIALIZE_CORE_SLOTS),
        shared_tiles=int(limits.processor.l2_bytes * L2_SHARE) if limits.grid is None else 0,
        sums=ColumnSums(graph, limits) if limits.grid else None,
        light_epilogues=fusion == HEAVY_APART or (
            limits.grid is not None and limits.grid.asynchronous_products))
    regions = fused()
    placement = place(graph, regions)
    while most and placement.too_many_buffers():
        # Buffers that a kernel adds are not known in advance, so the limit may have to be lower.
        regions = fused(max_buffers=most, rematerialize=0.0)
        placement = place(graph, regions)
        most -= 1
    if graph.recomputed or (memory_limit is not None and placement.arena > memory_limit):
        return with_less_memory(placement, regions, functools.partial(place, graph), graph,
                                memory_limit, function)
    return placement


class _Steps:
    """The kernels of a function, including those of its loops, in order."""

    def __init__(self, function: str, schedules: Schedules, chooser: Chooser | None,
                 library: str):
        self.function, self.schedules, self.chooser = function, schedules, chooser
        self.library = library  # that computes products whose schedule is not chosen; empty: none
        self.kernels: dict[int, RegionKernel] = {}  # by the number of the step, outside of loops

    def of(self, placement: Placement, prefix: str = "") -> tuple[list[KernelStep], list[LoopSpan]]:
        """The kernels of a placement, and the loops around them."""
        steps: list[KernelStep] = []
        loops: list[LoopSpan] = []
        for number, region in enumerate(counted(f"plan {self.function}", placement.regions)):
            label = f"{prefix}{placement.first_run[region]}"
            again = placement.runs_again(number)
            if region.kind != "loop":
                kernel = self._kernel(placement, number, label)
                if not prefix:
                    self.kernels[len(steps)] = kernel
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
            loops.append(LoopSpan(first, len(steps), into.body.trip_count, into.proceed()))
            loops += [replace(s, first=s.first + first, end=s.end + first, proceed=s.proceed and
                              into.place(s.proceed)) for s in spans]
        return steps, loops

    def _kernel(self, placement: Placement, number: int, label: str) -> RegionKernel:
        """The kernel of a region, with a schedule if it is not that of the rules."""
        kernel = RegionKernel(self.function, placement, number, label)
        override = self.schedules.get(kernel.key, self.schedules.get(kernel.stem))
        if override is not None:
            kernel.chosen = nests.checked(override, kernel.region, kernel.limits, kernel.key)
        elif self.chooser is not None:
            kernel.chosen = self.chooser.kernel(kernel)
            if kernel.chosen is None and self.library and kernel.hints is None:
                kernel.chosen = nests.by_library(self.library, kernel.region, kernel.limits)
            kernel.tuned = kernel.chosen is not None
        return kernel


class _LoopPlaces:
    """Maps the buffers of a loop body to locations in the function that contains the loop."""

    def __init__(self, loop: Value, placement: Placement, number: int):
        self.body: Body = loop.attrs["body"]
        at = functools.partial(placement.at, number)
        self.arena = at(loop).offset
        self.trip_count = self.body.trip_count
        inits, sequences, shared = arguments(self.body, loop.args)
        align = placement.limits.buffer_align
        self.all_iterations = placement.limits.grid is not None
        results = {v.attrs["index"]: v for r in placement.regions if loop in r.flat
                   for v in r.members if v.op.kind == "result"}

        def row(stack: Value, part: Value) -> int:
            """The stride of a stack or sequence between iterations, in bytes."""
            overlay = placement.parts.get(stack)
            separate = row_elements(part, align) * part.dtype.bytes
            return separate if overlay is None else overlay.row or separate

        moving = [(at(x), row(x, s))
                  for s, x in zip(self.body.slices, sequences, strict=True)]
        count, states = len(self.body.carries), state_outs(self.body)
        stacks = [(at(results[count + k]), row(results[count + k], v))
                  for k, v in enumerate(self.body.outs) if k not in states]
        steps = row_steps(self.body, align)
        self.slots = {"carries": [self._state(at(x), steps.get(k, 0)) for k, x in enumerate(inits)],
                      "inputs": [*moving, *((at(x), 0) for x in shared)], "outputs": stacks}

    def _state(self, first: Location, step: int) -> tuple[Location, int]:
        """The first row, in memory order, from which iterations read a state, and the row's bytes.
        """
        lowest = first.offset + (self.trip_count - 1) * min(step, 0)
        return replace(first, offset=lowest) if step else first, abs(step)

    def place(self, location: Location) -> Location:
        """The location of a buffer of the body, with its stride between iterations."""
        if location.space not in SLOTS:
            offset = location.offset + (self.arena if location.space == "arena" else 0)
            return replace(location, offset=offset, strides=(0, *location.strides))
        base, stride = self.slots[location.space][location.offset]
        start = base.start + location.start + (self.trip_count - 1) * stride * self.body.reverse
        strides = (-stride if self.body.reverse else stride, *location.strides)
        if base.space in SLOTS:
            return Location(base.space, base.offset, location.size, start, strides)
        return Location(base.space, base.offset + start, location.size, 0, strides)

    def proceed(self) -> Location | None:
        """The location of the bool that ends the loop. GPUs run all iterations: they read no bool,
        and no barrier is before it."""
        if self.body.proceed is None or self.all_iterations:
            return None
        location, _ = self.slots["carries"][self.body.proceed]
        return replace(location, strides=(0,))
