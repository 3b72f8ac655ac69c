"""Runs of small kernels that depend on one another as chains, each in one launch.

A launch that depends on another one starts some time after its end. A barrier of one workgroup or
of a cluster takes less time, and one of a whole launch lets weights be loaded before it. The run
is divided where that takes the least time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from ztorch.dtypes import f32, u32
from ztorch.ir.kernel import Memory, launch_grid
from ztorch.ir.limits import GridLimits
from ztorch.lower.grid.chain_kernels import COUNTER, ChainPart, can_be_part, chain_kernel
from ztorch.lower.grid.chain_schedules import KINDS, elements_of, part_schedule
from ztorch.lower.grid.workgroups import power_of_two
from ztorch.lower.locations import Location
from ztorch.lower.params import Params
from ztorch.lower.region_kernel import KernelStep, RegionKernel
from ztorch.lower.tuning import (
    CHAIN_BYTES,
    CHAIN_CLUSTER,
    CHAIN_CLUSTER_GROUPS,
    CHAIN_ELEMENT,
    CHAIN_GAP,
    CHAIN_GROUPS,
    CHAIN_GROUPS_HOPPER,
    CHAIN_LATENCY,
    CHAIN_LAUNCH,
    CHAIN_MOST,
    CHAIN_ROUND,
    CHAIN_UNIT_BYTES,
    GROUP_THREADS,
)


class Meeting(NamedTuple):
    """A way for workgroups to meet."""

    groups: int  # of the launch
    cycles: int  # of a barrier
    cluster: bool  # whether they are a cluster


class _Launch(NamedTuple):
    """Steps that become one launch."""

    cycles: float  # estimated, of it and all before it
    first: int
    way: Meeting | None  # None: one step as it is


def with_chains(steps: Sequence[KernelStep], kernels: Mapping[int, RegionKernel], params: Params
                ) -> list[KernelStep]:
    """The steps of a function with chains in place of small kernels.

    Args:
        steps: The steps, with barriers. None is in a loop.
        kernels: The regions that they compute, by their numbers.
        params: The layout of the parameters, which gets the counters of barriers.
    """
    result: list[KernelStep] = []
    run: list[int] = []
    waits = [True, *(step.barrier for step in steps[1:]), True]
    for k, step in enumerate(steps):
        # A kernel that runs beside others does so in less time than after them.
        alone = waits[k] and waits[k + 1]
        if alone and k in kernels and _is_small(step, kernels[k]) and len(run) < CHAIN_MOST:
            run.append(k)
            continue
        result += _chained([steps[n] for n in run], [kernels[n] for n in run], params)
        result.append(step)
        run = []
    result += _chained([steps[n] for n in run], [kernels[n] for n in run], params)
    return result


def _is_small(step: KernelStep, kernel: RegionKernel) -> bool:
    """Whether a kernel may become part of a chain. Those with a schedule of the user or the tuner
    stay as they are."""
    return (kernel.chosen is None and kernel.hints is None and step.schedule is not None
            and step.schedule.kind in KINDS and can_be_part(step.kernel)
            and _bytes(step) <= CHAIN_BYTES)


def _bytes(step: KernelStep) -> int:
    return sum(m.size * m.dtype.bytes for m in step.kernel.memories if m.space == "global")


def _ways(grid: GridLimits) -> list[Meeting]:
    ways = [Meeting(1, 0, False)]
    if grid.tile_copies:
        ways.append(Meeting(CHAIN_CLUSTER_GROUPS, CHAIN_CLUSTER, True))
    most = CHAIN_GROUPS_HOPPER if grid.tile_copies else CHAIN_GROUPS
    return [*ways, Meeting(min(most, grid.compute_units), CHAIN_LAUNCH, False)]


def _chained(steps: Sequence[KernelStep], kernels: Sequence[RegionKernel], params: Params
             ) -> list[KernelStep]:
    """A run of small kernels as the launches that take the least time."""
    if len(steps) < 2:
        return list(steps)
    grid = kernels[0].limits.grid
    assert grid is not None
    parts = {way: _parts(steps, kernels, way) for way in _ways(grid)}
    elements = [elements_of(kernel.region) for kernel in kernels]
    best = [_Launch(0.0, 0, None)]
    for end in range(1, len(steps) + 1):
        options = []
        for first in range(end):
            before = best[first].cycles + (CHAIN_GAP if first else 0)
            if end - first == 1:
                groups = launch_grid(steps[first].kernel)[0]
                alone = _reading(steps[first], elements[first], groups)
                options.append(_Launch(before + alone, first, None))
                continue
            for way, possible in parts.items():
                some = [p for p in possible[first:end] if p is not None]
                if len(some) == end - first:
                    together = _estimate(some, elements[first:end], way)
                    options.append(_Launch(before + together, first, way))
        best.append(min(options, key=lambda s: s.cycles))
    launches: list[KernelStep] = []
    end = len(steps)
    while end:
        _, first, chosen = best[end]
        launches.insert(0, steps[first] if chosen is None else _joined(
            [p for p in parts[chosen][first:end] if p is not None], chosen, params))
        end = first
    return launches


def _parts(steps: Sequence[KernelStep], kernels: Sequence[RegionKernel], way: Meeting
           ) -> list[KernelStep | None]:
    """Each kernel as a part of a chain; None if it cannot be."""
    parts: list[KernelStep | None] = []
    for step, kernel in zip(steps, kernels, strict=True):
        schedule = part_schedule(kernel.region, kernel.limits, way.groups)
        part = kernel.with_schedule(schedule).step() if schedule else None
        fits = part is not None and can_be_part(part.kernel)
        parts.append(replace(part, barrier=step.barrier) if part and fits else None)
    return parts


def _reading(step: KernelStep, elements: int, groups: int) -> float:
    """Cycles in which so many workgroups read all data of a kernel and compute with them."""
    data = max(_bytes(step), elements * f32.bytes)
    return (data / CHAIN_UNIT_BYTES + elements / GROUP_THREADS * CHAIN_ELEMENT) / groups


def _estimate(parts: Sequence[KernelStep], elements: Sequence[int], way: Meeting) -> float:
    """Cycles of a chain: its barriers, the time to read its data, and the waits of workgroups that
    do the work of several, one after another."""
    counts = [launch_grid(p.kernel)[0] for p in parts]
    used = [min(n, way.groups) for n in counts]
    barriers = sum(max(pair) > 1 for pair in pairwise(used))
    reading = sum(map(_reading, parts, elements, used))
    rounds = sum(math.ceil(n / way.groups) - 1 for n in counts)
    return (barriers * way.cycles + reading + rounds * CHAIN_ROUND
            - CHAIN_LATENCY * (len(parts) - 1))


def _joined(parts: Sequence[KernelStep], way: Meeting, params: Params) -> KernelStep:
    """The launch of a chain."""
    memories: dict[tuple[Location, str], Memory] = {}
    written = [p for part in parts for p, w in zip(part.locations, part.writes, strict=True) if w]
    joined = []
    for part in parts:
        names = {}
        buffers = [m for m in part.kernel.memories if m.space == "global"]
        for m, place in zip(buffers, part.locations, strict=True):
            key = place, m.dtype.name
            if key not in memories:
                memories[key] = replace(m, name=f"m{len(memories)}", access="rw")
            names[m.name] = memories[key].name
        joined.append(ChainPart(part.kernel, names))
    locations = [place for place, _ in memories]
    writes = [any(place == w for w in written) for place in locations]
    common = list(memories.values())
    fixed = {m.name for (place, _), m in memories.items()
             if not any(place.overlaps(w) for w in written)}
    groups = min(way.groups, power_of_two(max(p.groups for p in joined)))
    if groups > 1 and not way.cluster:
        common.append(Memory(COUNTER, u32, 1, access="rw"))
        locations.append(Location("params", params.counters(), u32.bytes))
        writes.append(True)
    first, last = parts[0].kernel, parts[-1].kernel
    label, _, rest = first.name.partition("_")
    name = f"{label}_to_{last.name.partition('_')[0]}_{rest}"
    kernel = chain_kernel(name, joined, common, fixed, groups, way.cluster)
    origin = tuple(dict.fromkeys(layer for part in parts for layer in part.kernel.origin))
    return KernelStep(replace(kernel, origin=origin), tuple(locations), tuple(writes),
                      math.fsum(part.cycles for part in parts), parts[0].barrier,
                      key=f"{parts[0].key.partition('/')[0]}/{name}", joined=tuple(parts),
                      in_turn=True)
