"""A kind of loop nest, as a row of the tables in `cpu/loop_nests.py` and `grid/loop_nests.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.limits import Limits
from ztorch.lower.region import Region
from ztorch.lower.schedule import Schedule

Emit = Callable[[Builder, Region, Mapping[Value, str], Mapping[Value, str], Limits, Any], None]


@dataclass(frozen=True)
class LoopNest:
    """One kind of loop nest."""

    kind: str  # of its schedules
    propose: Callable[[Region, Limits], Schedule | None]  # None: not for this region
    refusal: Callable[[Any, Region, Limits], str]  # why a schedule is illegal; empty: it is legal
    emit: Emit  # writes the loop nest
    # Whether it is preferred to those before it in the table. None: never.
    gains: Callable[[Region, Limits], bool] | None = None
