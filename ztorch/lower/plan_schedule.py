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


RULES = PlanSchedule(layout=1, fusion=FUSED)


def other_plans() -> Iterator[PlanSchedule]:
    """The plans that differ from that of the rules in one way, the most promising first.

    >>> [*other_plans()]
    [plan layout(0) fusion(2), plan layout(1) fusion(3), plan layout(1) fusion(1)]
    """
    yield replace(RULES, layout=0)
    for level in (RECOMPUTED, HEAVY_APART):  # nothing is faster with each op apart
        yield replace(RULES, fusion=level)
