"""Names of kernels."""

from __future__ import annotations

import re

from ztorch.dtypes import DType
from ztorch.graph.hints import layer_name
from ztorch.graph.value import Value
from ztorch.lower.loops import widest
from ztorch.lower.recurrence import RECURRENCE
from ztorch.lower.region import Region
from ztorch.lower.tuning import NAME_LENGTH_MAX


def stem_of(region: Region, label: str) -> str:
    """The name of a kernel but for the size of its tile. It reads like the model in a profiler:
    layer, ops and dtype; only letters, digits and underscores survive."""
    main = main_of(region)
    layer = next((layer_name(v.layer) for v in main if v.layer), "")
    ops = dict.fromkeys([*[v.op.name for v in main][:2], region.members[-1].op.name])
    words = re.sub(r"[^A-Za-z0-9_]+", "_", "_".join([w for w in [layer, *ops] if w]))
    return f"k{label}_{words[:NAME_LENGTH_MAX]}_{dtype_of(region).name}"


def dtype_of(region: Region) -> DType:
    """The dtype of its product or reduction, else the widest."""
    first = region.members[-1] if region.kind == "threads" else main_of(region)[0]
    if first.op is RECURRENCE:
        return first.attrs["recurrence"].widest
    return widest(region) if region.kind == "map" else first.dtype


def main_of(region: Region) -> list[Value]:
    """Its products and reductions; all values where it has neither."""
    return [v for v in region.members if v.op.kind != "map"] or region.members
