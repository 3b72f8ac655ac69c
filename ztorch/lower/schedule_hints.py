"""Schedules with user hints: each hint sets a field of the proposed schedule, if the loop nest has
that field and the machine supports the value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ztorch.graph.hints import Hints
from ztorch.ir.limits import Limits
from ztorch.lower.schedule import Schedule

# By the kind of a schedule: the fields that each hint sets.
FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    "elements": {"vector_width": ("lanes",)},
    "rows": {"vector_width": ("lanes",)},
    "sliding": {"vector_width": ("lanes",)},
    "correlation": {"vector_width": ("lanes",)},
    "recurrence": {"vector_width": ("lanes",), "unroll": ("vectors",)},
    "product": {"unroll": ("unroll",), "tile": ("tile_rows", "tile_vectors")},
    "grid_elements": {"workgroup": ("threads",), "vector_width": ("width",)},
    "grid_recurrence": {"workgroup": ("threads",)},
    "grid_rows": {"vector_width": ("width",)},
    "grid_product": {"tile": ("tile_rows", "tile_columns", "tile_depth")},
    "grid_matrix": {"tile": ("tile_rows", "tile_columns", "tile_depth"), "stages": ("stages",)},
    "grid_async": {"tile": ("tile_rows", "tile_columns"), "stages": ("stages",)},
    "grid_roles": {"tile": ("tile_rows", "tile_columns"), "stages": ("stages",)},
    "grid_stream": {"tile": ("tile_rows", "tile_columns"), "stages": ("stages",)},
    "grid_windows": {"stages": ("stages",)}}
# Schedules of instructions that multiply matrices.
MATRIX_KINDS = ("grid_matrix", "grid_async", "grid_roles", "grid_stream", "grid_windows")


def with_shared_memory(limits: Limits, most: int | None) -> Limits:
    """The limits of a machine, with shared memory per workgroup limited by a hint."""
    grid = limits.grid
    if grid is None or most is None:
        return limits
    return replace(limits, grid=replace(
        grid, shared_bytes=min(most, grid.shared_bytes),
        static_shared_bytes=min(most, grid.static_shared_bytes)))


@dataclass(frozen=True)
class Hinted:
    """A schedule, and the hints that it does not follow."""

    schedule: Schedule
    unmet: tuple[str, ...] = ()  # a sentence for each hint that is not followed


def hinted(proposal: Schedule, hints: Hints, lanes: int,
           refusal: Callable[[Schedule], str]) -> Hinted:
    """A proposal of the rules, changed by hints.

    Args:
        proposal: The schedule that the rules propose.
        hints: The hints.
        lanes: The lanes of a vector, to convert columns to vectors.
        refusal: Returns why a schedule is illegal; empty if it is legal.
    """
    schedule, unmet = proposal, []
    for name, x in hints.given.items():
        if name in ("kind", "shared_memory"):  # followed before there was a proposal
            continue
        if name == "tensor_cores":
            if x != (schedule.kind in MATRIX_KINDS):
                unmet.append(f"hint tensor_cores={x} is not followed: this is {schedule.kind}")
            continue
        names = FIELDS.get(schedule.kind, {}).get(name, ())
        values: tuple[Any, ...] = x if isinstance(x, tuple) else (x,)
        if "tile_vectors" in names:
            values = (values[0], max(1, values[1] // lanes))
        changed = replace(schedule, **dict(zip(names, values, strict=False)))
        why = refusal(changed) if names else f"{schedule.kind} has no such field"
        if why:
            unmet.append(f"hint {name}={x} is not followed: {why}")
        else:
            schedule = changed
    return Hinted(schedule, tuple(unmet))
