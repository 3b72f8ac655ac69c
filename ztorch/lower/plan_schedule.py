"""How a whole function is computed on a processor: in which layouts, and what is one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ztorch.lower.schedule import Schedule

# What `fusion` means. Each level of a plan computes the same values.
APART, HEAVY_APART, FUSED = 0, 1, 2
RECOMPUTED = FUSED + 1


@dataclass(frozen=True, repr=False)
class PlanSchedule(Schedule):
    """The kernels of a function on a processor."""

    kind = "plan"
    layout: int  # 1: each region in the layout with the fewest transposes; 0: that of the model
    # 0: each op is a kernel; 1: heavy work after products is one of its own; 2: all is fused that
    # can be; 3: and readers compute again what costs three times as much as they usually would
    fusion: int


@dataclass(frozen=True, repr=False)
class LibraryPlan(PlanSchedule):
    """The kernels of a function whose products another library computes where it can. It reads
    their operands where they are: none is packed, copied or transposed for our tiles."""


class OpenblasPlan(LibraryPlan):
    """Products by OpenBLAS."""

    kind, library = "openblas_plan", "openblas"


class OnednnPlan(LibraryPlan):
    """Products by oneDNN."""

    kind, library = "onednn_plan", "onednn"


RULES = PlanSchedule(layout=1, fusion=FUSED)


def other_plans() -> Iterator[PlanSchedule]:
    """The plans that differ from that of the rules in one way, the most promising first.

    >>> [*other_plans()]
    [plan layout(0) fusion(2), plan layout(1) fusion(3), plan layout(1) fusion(1)]
    """
    yield replace(RULES, layout=0)
    for level in (RECOMPUTED, HEAVY_APART):  # nothing is faster with each op apart
        yield replace(RULES, fusion=level)


def library_plan(plan: PlanSchedule, library: str) -> LibraryPlan:
    """The same plan with products by a library.

    >>> library_plan(RULES, "openblas")
    openblas_plan layout(1) fusion(2)
    """
    [kind] = [kind for kind in (OpenblasPlan, OnednnPlan) if kind.library == library]
    return kind(plan.layout, plan.fusion)
