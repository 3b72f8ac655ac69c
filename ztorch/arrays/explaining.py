"""How a kernel is scheduled on a device."""

from __future__ import annotations

from collections.abc import Sequence

from ztorch.arrays.placement import default_device
from ztorch.compile.explained import scheduled
from ztorch.graph.value import Graph, Value


def schedules_of(name: str, results: Sequence[Value], on: str | None = None) -> list[str]:
    """A sentence for each kernel that some values become, and for each hint that one does not
    follow.

    Args:
        name: Of the program.
        results: The values.
        on: The device. `None` means the default. Default: `None`.
    """
    graph = Graph({f"y{k}": v for k, v in enumerate(results)})
    return scheduled(name, graph, on or default_device())
