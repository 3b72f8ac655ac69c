"""How a graph is scheduled on a device, in words."""

from __future__ import annotations

from collections.abc import Sequence

from ztorch.compile.pipeline import place_states, plan_functions, simplify
from ztorch.compile.targeting import target_for
from ztorch.compile.watch import Watch
from ztorch.graph import passes
from ztorch.graph.value import Graph, Value
from ztorch.lower.fuse import fuse
from ztorch.lower.prepare import prepare
from ztorch.lower.region import Region, is_view, real_reads
from ztorch.runtime.devices import resolve


def scheduled(name: str, graph: Graph, device: str) -> list[str]:
    """A line for each kernel of a graph: its name and its schedule. Below it, what is fused in it,
    why it does not hold what it reads as well, and the hints that it does not follow."""
    target, watch = target_for(resolve(device)), Watch()
    graphs = simplify({name: graph}, passes.DEFAULT, watch)
    plans = plan_functions(graphs, target, place_states(graphs, target), watch)
    lines = []
    for key, plan in plans.items():
        regions = fuse(prepare(graphs[key], target.limits))
        if len(regions) != len(plan.steps) or plan.loops:  # loops have kernels of their own
            regions = []
        for k, step in enumerate(plan.steps):
            lines.append(f"{step.kernel.name} on {target.name}: {step.schedule!r}")
            if regions:
                lines += [f"    {why}" for why in _fused(regions, k)]
            lines += [f"    {why}" for why in step.unmet]
    return lines


def _fused(regions: Sequence[Region], number: int) -> list[str]:
    """What a kernel computes at once, and why it is not one with those that it reads from."""
    region = regions[number]
    names = list(dict.fromkeys(v.op.name for v in region.members))
    lines = [f"fuses {', '.join(names)}"] if len(names) > 1 else []
    for home, other in enumerate(regions[:number]):
        between = [(v, s) for v in region.members for s in _read(v)
                   if s in other.flat and s not in region.flat]
        if between:
            lines.append(f"apart from k{home}: {_reason(*between[0], region, other)}")
    return lines


def _read(v: Value) -> list[Value]:
    """What a value reads, through views."""
    sources, stack = [], list(v.args)
    while stack:
        a = stack.pop()
        if is_view(a):
            stack += a.args
        else:
            sources.append(a)
    return sources


def _reason(v: Value, source: Value, region: Region, other: Region) -> str:
    if v.op.kind not in ("map", "reduce"):
        return f"{v.op.name} reads all of it again and again"
    if other.kind not in ("map", "reduce", "contract"):
        return "what it gives is known at its end only"
    if region.kind == other.kind == "contract":
        return "a kernel has one product"
    if other.size != region.size:
        return f"{v.op.name} has another shape, {'x'.join(map(str, v.shape)) or 'a number'}"
    here = [at for s, at in real_reads(v, region.index(v)) if s is source]
    if all(at == other.flat[source] for at in here):
        return "others run in between"
    return f"{v.op.name} reads its elements elsewhere than they are computed"
