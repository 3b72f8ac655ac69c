"""Kernels of a wave that share a launch. Where kernels run in parallel, a small one takes less time
than its launch, so those of a wave become the parts of one kernel: see `joined_kernel.py`.

A small kernel has few workgroups, so that it does not matter which registers and how much shared
memory the other parts need. Large elementwise kernels need little of both and share another launch:
so one updates all weights whose gradients are complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ztorch.ir.kernel import Kernel, Memory
from ztorch.ir.limits import Limits
from ztorch.lower import nests
from ztorch.lower.barriers import LoopSpan
from ztorch.lower.joined_kernel import grid_loop, group_count, joined, shared_bytes
from ztorch.lower.locations import Location
from ztorch.lower.region_kernel import KernelStep
from ztorch.lower.schedule import GridElementSchedule, GridRowSchedule, Schedule
from ztorch.lower.tuning import GROUP_THREADS, JOINED_GROUPS, JOINED_INSTRUCTIONS

# Schedules of kernels that can be joined. Asynchronous products are large.
KINDS = ("grid_elements", "grid_transpose", "grid_rows", "grid_product", "grid_matrix")


def with_joined_launches(steps: Sequence[KernelStep], loops: Sequence[LoopSpan], limits: Limits,
                         ) -> tuple[list[KernelStep], list[LoopSpan]]:
    """The steps of a function whose small kernels share launches, and the loops around them.

    Args:
        steps: The steps, in order, with their barriers.
        loops: Loops around steps.
        limits: The limits of a machine that launches grids.
    """
    joints = _Joints(limits)
    edges = {0, len(steps), *(k for k, s in enumerate(steps) if s.barrier)}
    edges |= {k for loop in loops for k in (loop.first, loop.end)}
    result: list[KernelStep] = []
    place = {0: 0}  # of edges, in the result
    for first, end in pairwise(sorted(edges)):
        wave = joints.of(steps[first:end])
        result += [replace(s, barrier=steps[first].barrier and k == 0)
                   for k, s in enumerate(wave)]
        place[end] = len(result)
    return result, [replace(loop, first=place[loop.first], end=place[loop.end]) for loop in loops]


class _Joints:
    """Joins the steps of waves. Waves with equal parts share one kernel."""

    def __init__(self, limits: Limits):
        assert limits.grid is not None
        self.limits, self.grid = limits, limits.grid
        self.kernels: dict[tuple, Kernel] = {}  # by the bodies and buffers of their parts

    def of(self, wave: Sequence[KernelStep]) -> list[KernelStep]:
        """The steps of a wave, each joint in the place of its first part."""
        parts = self._equally_large({k: s for k, s in enumerate(wave) if self._can_be_part(s)})
        together: dict[tuple, list[list[int]]] = {}
        for k, s in parts.items():
            small = group_count(s.kernel) <= JOINED_GROUPS * self.grid.compute_units
            if not small and not _is_light(s):
                continue
            lists = together.setdefault((small, s.kernel.workgroup, s.kernel.exact), [])
            fitting = (ks for ks in lists if self._fit([*(parts[h] for h in ks), s]))
            if (ks := next(fitting, None)) is not None:
                ks.append(k)
            else:
                lists.append([k])
        result = dict(enumerate(wave))
        for first, *others in (ks for lists in together.values() for ks in lists if ks[1:]):
            result[first] = self._join([parts[k] for k in (first, *others)])
            for k in others:
                del result[k]
        return list(result.values())

    def _can_be_part(self, step: KernelStep) -> bool:
        """Whether a kernel may share its launch with others. PoCL, which runs the threads of a
        workgroup as lanes, computes wrong numbers where barriers of several parts are in branches.
        """
        kernel = step.kernel
        return (step.schedule is not None and step.schedule.kind in KINDS
                and grid_loop(kernel) is not None and kernel.cluster == 1
                and not kernel.resident_threads
                and not (self.grid.implicit_simd and shared_bytes([kernel])))

    def _equally_large(self, parts: Mapping[int, KernelStep]) -> dict[int, KernelStep]:
        """The parts with the size of workgroup that most of them can have; others as they are."""
        sizes = {min(GROUP_THREADS, self.grid.threads), *(s.kernel.workgroup[0] for s in
                                                          parts.values())}
        choices = [(threads, {k: wider for k, s in parts.items() if (
            wider := self._with_threads(s, threads))}) for threads in sizes]
        _, schedules = max(choices, key=lambda choice: (len(choice[1]), choice[0]))
        return {k: _rescheduled(s, schedules.get(k)) for k, s in parts.items()}

    def _with_threads(self, step: KernelStep, threads: int) -> Schedule | None:
        """The schedule of a step with workgroups of some size; None if it cannot have them, or they
        would change results. More elements or rows in a workgroup change none."""
        schedule, source = step.schedule, step.region_kernel
        if step.kernel.workgroup[0] == threads:
            return schedule
        if source is None or source.chosen is not None or source.hints is not None:
            return None
        if isinstance(schedule, GridElementSchedule):
            schedule = replace(schedule, threads=threads)
        elif isinstance(schedule, GridRowSchedule) and schedule.team_ways <= threads:
            schedule = replace(schedule, team_rows=threads // schedule.team_ways)
        else:
            return None
        return schedule if nests.may_have(schedule, source.region, self.limits) else None

    def _fit(self, parts: Sequence[KernelStep]) -> bool:
        """Whether one kernel can have these parts, by the limits of the machine."""
        grid, kernels = self.grid, [s.kernel for s in parts]
        buffers: dict[Location, Memory] = {}
        for s in parts:
            for m, location in zip(_buffers(s.kernel), s.locations, strict=True):
                same = buffers.setdefault(location, m)
                if (same.dtype, same.size) != (m.dtype, m.size):
                    return False
        return (len(buffers) <= grid.max_buffers
                and sum(len(k.body) for k in kernels) <= JOINED_INSTRUCTIONS
                and sum(map(group_count, kernels)) <= grid.max_groups
                and shared_bytes(kernels) <= grid.declared_shared_bytes
                and _are_apart(list(buffers)))

    def _join(self, parts: Sequence[KernelStep]) -> KernelStep:
        """The parts as one step."""
        buffers: dict[Location, str] = {}
        names = [{m.name: buffers.setdefault(location, f"m{len(buffers)}")
                  for m, location in zip(_buffers(s.kernel), s.locations, strict=True)}
                 for s in parts]
        written = {location for s in parts for location, writes in zip(
            s.locations, s.writes, strict=True) if writes}
        key = tuple((id(s.kernel.body), *own.values()) for s, own in zip(parts, names, strict=True))
        if key not in self.kernels:
            self.kernels[key] = joined([s.kernel for s in parts], names)
        kernel = replace(
            self.kernels[key], name=f"{parts[0].kernel.name}_and_{len(parts) - 1}_more",
            origin=tuple(dict.fromkeys(name for s in parts for name in s.kernel.origin)))
        return KernelStep(kernel, tuple(buffers), tuple(p in written for p in buffers),
                          sum(s.cycles for s in parts), joined=tuple(parts))


def _rescheduled(step: KernelStep, schedule: Schedule | None) -> KernelStep:
    if schedule in (None, step.schedule):
        return step
    assert schedule is not None and step.region_kernel is not None
    other = step.region_kernel.with_schedule(schedule).step()
    return replace(step, kernel=other.kernel, schedule=schedule)


def _is_light(step: KernelStep) -> bool:
    """Whether a kernel needs few registers and no shared memory, and its threads compute several
    elements each, for which finding their part takes no time."""
    return isinstance(step.schedule, GridElementSchedule) and step.schedule.width > 1


def _buffers(kernel: Kernel) -> list[Memory]:
    return [m for m in kernel.memories if m.space == "global"]


def _are_apart(locations: Sequence[Location]) -> bool:
    """Whether no two buffers overlap. Kernels of a wave may read a part of what others read, but
    not every driver binds both to one kernel."""
    return not any(a.overlaps(b) for k, a in enumerate(locations) for b in locations[:k])
