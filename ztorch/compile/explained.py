"""Explains how graphs are scheduled on a device, kernel by kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.codegen.targets import Target
from ztorch.compile.pipeline import declare_states, plan_functions, simplify
from ztorch.compile.targeting import target_for, with_libraries
from ztorch.compile.tuned_schedules import chooser as tuned_chooser
from ztorch.compile.watch import Watch
from ztorch.graph import passes
from ztorch.graph.value import Graph, Value
from ztorch.lower.plan import Chooser
from ztorch.lower.region import Region, is_view, real_reads
from ztorch.lower.region_kernel import KernelStep, RegionKernel
from ztorch.lower.schedule import Schedule
from ztorch.runtime.devices import resolve


@dataclass(frozen=True)
class PlannedKernel:
    """A kernel at its position in a function."""

    step: KernelStep
    runs: int  # per call of the function
    kernel: RegionKernel  # its source

    @property
    def reasons(self) -> list[str]:
        """The fused values, the reasons against further fusion, and the hints that were not
        followed."""
        return [*_fused(self.kernel), *self._library(), *self.step.unmet]

    def _library(self) -> list[str]:
        """The library that computes the kernel, if one does."""
        library = self.step.schedule.library if self.step.schedule else ""
        return [f"computed by {name} {version}, which was measured to be faster here; files have "
                "our kernel instead" for name, version in self.kernel.limits.libraries
                if name == library]


def planned_kernels(functions: Mapping[str, Graph], target: Target,
                    threads: int | None = None) -> dict[str, list[PlannedKernel]]:
    """The kernels of each function, in the order in which they run.

    Args:
        functions: The graph of each function, by name.
        target: The target to compile for.
        threads: Worker threads that measured schedules are chosen for; None: one per core.
            Default: `None`.
    """
    kernels: dict[str, RegionKernel] = {}
    target = with_libraries(target)
    tuned = tuned_chooser(target, threads)

    def record(kernel: RegionKernel) -> Schedule | None:
        kernels.setdefault(kernel.key, kernel)
        return None if tuned is None else tuned.kernel(kernel)

    watch = Watch()
    graphs = simplify(functions, passes.DEFAULT, watch)
    chooser = Chooser(record) if tuned is None else tuned._replace(kernel=record)
    plans = plan_functions(graphs, target, declare_states(graphs, target), watch, chooser=chooser)
    return {name: [PlannedKernel(part, count, kernels[part.key])
                   for step, count in zip(plan.steps, plan.run_counts(), strict=True)
                   for part in step.parts]
            for name, plan in plans.items()}


def scheduled(name: str, graph: Graph, device: str) -> list[str]:
    """A line for each kernel of a graph, with its name and schedule, followed by the reasons."""
    place = resolve(device)
    target = with_libraries(target_for(place), place.ordinal is not None)
    lines = []
    for planned in planned_kernels({name: graph}, target).values():
        for p in planned:
            lines.append(f"{p.step.kernel.name} on {target.name}: {p.step.schedule!r}")
            lines += [f"    {why}" for why in p.reasons]
    return lines


def _fused(kernel: RegionKernel) -> list[str]:
    """The tile of a kernel, and why it is not fused with the kernels that it reads from."""
    region, before = kernel.region, kernel.placement.regions[:kernel.number]
    names = list(dict.fromkeys(v.op.name for v in region.members))
    lines = [f"fuses {', '.join(names)}"] if len(names) > 1 else []
    if region.kind == "threads" and region.members[0].attrs["program"].note:
        lines.append(region.members[0].attrs["program"].note)
    for home, other in enumerate(before):
        between = [(v, s) for v in region.members for s in _read(v)
                   if s in other.flat and s not in region.flat]
        if between:
            lines.append(f"separate from k{home}: {_reason(*between[0], region, other)}")
    return lines


def _read(v: Value) -> list[Value]:
    """The values that a value reads, also through views."""
    sources, stack = [], list(v.args)
    while stack:
        a = stack.pop()
        if is_view(a):
            stack += a.args
        else:
            sources.append(a)
    return sources


def _reason(v: Value, source: Value, region: Region, other: Region) -> str:
    if "threads" in (region.kind, other.kind):
        return "a loop over threads is one kernel as written; nothing can be fused with it"
    if v.op.kind not in ("map", "reduce"):
        return f"{v.op.name} reads all of it repeatedly"
    if other.kind not in ("map", "reduce", "contract"):
        return "its result is complete only at its end"
    if region.kind == other.kind == "contract":
        return "a kernel has one product"
    if other.size != region.size:
        return f"{v.op.name} has another shape, {'x'.join(map(str, v.shape)) or 'a scalar'}"
    positions = [at for s, at in real_reads(v, region.index(v)) if s is source]
    if all(at == other.flat[source] for at in positions):
        return "other kernels run in between"
    return f"{v.op.name} reads its elements at other positions than they are computed"
