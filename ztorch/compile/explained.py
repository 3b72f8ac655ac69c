"""How a graph is scheduled on a device, in words."""

from __future__ import annotations

from ztorch.compile.pipeline import place_states, plan_functions, simplify
from ztorch.compile.targeting import target_for
from ztorch.compile.watch import Watch
from ztorch.graph import passes
from ztorch.graph.value import Graph
from ztorch.runtime.devices import resolve


def scheduled(name: str, graph: Graph, device: str) -> list[str]:
    """A line for each kernel of a graph: its name and its schedule; and one for each hint that it
    does not follow."""
    target, watch = target_for(resolve(device)), Watch()
    graphs = simplify({name: graph}, passes.DEFAULT, watch)
    plans = plan_functions(graphs, target, place_states(graphs, target), watch)
    lines = []
    for plan in plans.values():
        for step in plan.steps:
            lines.append(f"{step.kernel.name} on {target.name}: {step.schedule!r}")
            lines += [f"    {why}" for why in step.unmet]
    return lines
