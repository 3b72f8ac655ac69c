"""Rough estimates of the work of kernels."""

from __future__ import annotations

import math

from ztorch.dtypes import DType
from ztorch.graph.threads import THREADS
from ztorch.ir.limits import Limits
from ztorch.lower.insets import stored
from ztorch.lower.placement import Placement
from ztorch.lower.region import Region
from ztorch.lower.rewrites.library_convolutions import CONVOLUTION
from ztorch.lower.rewrites.recurrence import RECURRENCE
from ztorch.lower.tuning import OP_SLOTS_MIN


def region_cycles(region: Region, placement: Placement) -> float:
    """A rough estimate of the cycles of a region; for a loop, of all its iterations."""
    if region.kind != "loop":
        return kernel_cycles(region, placement.limits)
    loop = region.members[0]
    body = placement.bodies[loop]
    trip_count: int = loop.attrs["body"].trip_count
    return trip_count * sum(region_cycles(r, body) for r in body.regions)


def kernel_cycles(region: Region, limits: Limits) -> float:
    """A rough estimate, which decides whether more workers pay."""
    total = 0.0
    for v in region.members:
        lanes = lanes_at_once(limits, v.dtype)
        if v.op.kind == "contract":
            total += v.size * v.args[0].shape[-1] / (limits.processor.fma_ports * lanes)
        elif v.op is CONVOLUTION:
            total += v.size * math.prod(v.args[1].shape[:-1]) / (limits.processor.fma_ports * lanes)
        elif v.op is THREADS:
            program = v.attrs["program"]
            total += program.blocks * program.threads * program.size * OP_SLOTS_MIN
        elif v.op is RECURRENCE:
            r = v.attrs["recurrence"]
            lanes = lanes_at_once(limits, r.widest)
            total += r.size * r.work / (limits.processor.fma_ports * lanes)
        else:
            n = (v.args[0].size if v.op.kind in ("reduce", "scatter") else
                 v.args[1].size if region.in_place else stored(v))
            slots = n * max(v.op.cost, OP_SLOTS_MIN) + v.attrs.get("flops", 0) / 2
            total += slots / (limits.processor.fma_ports * lanes)
    return total


def lanes_at_once(limits: Limits, d: DType) -> int:
    """Lanes that a port starts per cycle: a wider vector occupies it for several cycles."""
    return min(limits.lanes(d), max(1, limits.processor.port_bits // d.bits))
