"""The schedules of a kernel that are worth measuring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, permutations, product
from typing import Any

from ztorch.lower import contract, nests
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import ProductSchedule, Schedule
from ztorch.lower.tuning import PREFETCH_STEPS, SIDE_BY_SIDE_MAX, TILE_ROWS_MAX, TILE_VECTORS_MAX

MOST = 10  # schedules of a stage: the others are estimated to be slow, or unlikely to differ
MOST_AXES = 3  # all loop orders are tried for nests of at most so many axes
POWERS = (1, 2, 4, 8, 16, 32, 64)

# The fields that are varied together, stage by stage: each starts from the best of the last.
STAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "product": (("tile_rows", "tile_vectors"), ("unroll", "prefetch"), ("block_rows",),
                ("epilogue_inline",)),
    "elements": (("order", "share"), ("lanes",)),
    "transpose": (("lanes",),),
    "rows": (("sums",), ("columns",), ("lanes",)),
    "sliding": (("places",), ("lanes",)),
    "correlation": (("steps",), ("lanes",)),
    "recurrence": (("vectors",), ("lanes",)),
}
VALUES: dict[str, Iterable[int]] = {
    "tile_rows": range(1, TILE_ROWS_MAX + 1),
    "tile_vectors": range(1, TILE_VECTORS_MAX + 1),
    "block_rows": POWERS,
    "prefetch": (0, PREFETCH_STEPS // 2, PREFETCH_STEPS, 2 * PREFETCH_STEPS),
    "unroll": (2, 4, 8),
    "epilogue_inline": (0, 1),
    "lanes": POWERS,
    "share": range(4),
    "columns": POWERS,
    "places": range(1, SIDE_BY_SIDE_MAX + 1),
    "steps": range(1, SIDE_BY_SIDE_MAX + 1),
    "vectors": POWERS,
}


def other_kinds(kernel: RegionKernel, rule: Schedule) -> list[Schedule]:
    """The rules' proposals for a kernel as loop nests of other kinds."""
    proposals = nests.proposals(kernel.region, kernel.limits)
    return [s for s in proposals if s.kind != rule.kind]


def stages(schedule: Schedule) -> tuple[tuple[str, ...], ...]:
    """The fields of a schedule that are varied together, in the order of their effect."""
    return STAGES.get(schedule.kind, ())


def alternatives(kernel: RegionKernel, best: Schedule, fields: tuple[str, ...]) -> list[Schedule]:
    """Schedules that the kernel can have and that differ from `best` in some of these fields, the
    most promising first."""
    others: Iterable[Any] = (s for s in _varied(best, fields) if s != best)
    if isinstance(best, ProductSchedule) and "tile_rows" in fields:
        others = sorted(others, key=contract.estimator(kernel.region, kernel.limits))
    legal = (s for s in others if nests.may_have(s, kernel.region, kernel.limits))
    return list(islice(legal, MOST))


def _varied(best: Schedule, fields: tuple[str, ...]) -> Iterator[Schedule]:
    """All schedules that differ from one in these fields at most, legal or not."""
    values = [_values(name, getattr(best, name)) for name in fields]
    for chosen in product(*values):
        yield replace(best, **dict(zip(fields, chosen, strict=True)))


def _values(field: str, now: Any) -> Iterable[Any]:
    """The values of a field to try, where it has the value `now`."""
    if field == "order":
        return permutations(now) if len(now) <= MOST_AXES else (now, tuple(reversed(now)))
    if field == "sums":
        return [(n,) * len(now) for n in POWERS]
    return VALUES[field]
