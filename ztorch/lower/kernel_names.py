"""Names of kernels."""

from __future__ import annotations

import re

from ztorch.dtypes import DType
from ztorch.graph.hints import layer_name
from ztorch.graph.value import Value
from ztorch.lower.loops import widest
from ztorch.lower.region import Region
from ztorch.lower.rewrites.recurrence import RECURRENCE
from ztorch.lower.tuning import NAME_LENGTH_MAX


def stem_of(region: Region, label: str) -> str:
    """The name of a kernel without its tile size, for profilers: layer, ops and dtype. All
    characters but letters, digits and underscores are replaced."""
    main = main_of(region)
    layer = next((layer_name(v.layer) for v in main if v.layer), "")
    ops = dict.fromkeys([*[v.op.name for v in main][:2], region.members[-1].op.name])
    words = re.sub(r"[^A-Za-z0-9_]+", "_", "_".join([w for w in [layer, *ops] if w]))
    return f"k{label}_{words[:NAME_LENGTH_MAX]}_{dtype_of(region).name}"


def dtype_of(region: Region) -> DType:
    """The dtype of a region's product or reduction, else the widest dtype of its members."""
    first = region.members[-1] if region.kind == "threads" else main_of(region)[0]
    if first.op is RECURRENCE:
        return first.attrs["recurrence"].widest
    return widest(region) if region.kind == "map" else first.dtype


def main_of(region: Region) -> list[Value]:
    """A region's products and reductions; all members if it has neither."""
    return [v for v in region.members if v.op.kind != "map"] or region.members
