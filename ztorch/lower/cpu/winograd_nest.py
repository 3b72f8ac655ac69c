"""The loop nests of Winograd convolutions on a processor: transforms of kernels and tiles, the
inverse transform of products, and those of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.lanes import lanes_refusal
from ztorch.lower.cpu.winograd_blocks import emit_blocks
from ztorch.lower.cpu.winograd_matrices import (
    RESULT_MATRIX,
    TILE_MATRIX,
    transposed,
)
from ztorch.lower.cpu.winograd_points import (
    channel_of,
    store_kernel,
    store_kernel_slopes,
    transform_of,
)
from ztorch.lower.cpu.winograd_tiles import ImageTiles, TileResults
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Var
from ztorch.lower.loops import vectors
from ztorch.lower.region import Region
from ztorch.lower.rewrites.winograd import (
    AT_POINTS,
    CONVOLVED_TILES,
    KERNEL_SLOPES,
    KIND,
    RESULTS,
    SLOPES,
    TILE,
    TILES,
)
from ztorch.lower.schedule import Schedule


@dataclass(frozen=True, repr=False)
class WinogradSchedule(Schedule):
    """A transform of a Winograd convolution on a processor."""

    kind = KIND
    lanes: int  # channels computed at once

    def tile(self, lanes: int) -> str:
        return f"{self.lanes}"


def propose(region: Region, limits: Limits) -> WinogradSchedule:
    """All lanes."""
    return WinogradSchedule(limits.lanes(transform_of(region).dtype))


def refusal(s: WinogradSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    return lanes_refusal(s.lanes, limits.lanes(transform_of(region).dtype))


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: WinogradSchedule) -> None:
    """One transform. Workers share the channels of a kernel, or the tiles."""
    v, e = transform_of(region), Emitter(b, memory, members=region.flat)
    if v.op is AT_POINTS:
        _kernel(e, region, v, target, limits, s.lanes)
    elif v.op is TILES:
        ImageTiles(v, target[v], limits, s.lanes, TILE, TILE_MATRIX).emit(e)
    elif v.op is SLOPES:
        ImageTiles(v, target[v], limits, s.lanes, RESULTS, transposed(RESULT_MATRIX)).emit(e)
    elif v.op is KERNEL_SLOPES:
        _kernel_slopes(e, region, v, target, limits, s.lanes)
    elif v.op is CONVOLVED_TILES:
        emit_blocks(e, region, v, target, limits, s.lanes)
    else:
        TileResults(region, v, target, limits, s.lanes).emit(e)


def _kernel(e: Emitter, region: Region, v: Value, target: Mapping[Value, str], limits: Limits,
            lanes: int) -> None:
    """The transform of a kernel."""
    channel, column = channel_of(v), Var("f", v.shape[-1])
    with e.b.loop(0, channel.extent, kind="parallel") as r:
        for scope, _ in vectors(e.within(bound={channel: r}), column, lanes):
            store_kernel(scope, region, v, target, limits, channel, column)


def _kernel_slopes(e: Emitter, region: Region, v: Value, target: Mapping[Value, str],
                   limits: Limits, lanes: int) -> None:
    """The gradient of a kernel from that of its transform."""
    channel, column = channel_of(v), Var("f", v.shape[-1])
    with e.b.loop(0, channel.extent, kind="parallel") as r:
        for scope, _ in vectors(e.within(bound={channel: r}), column, lanes):
            store_kernel_slopes(scope, region, v, target, limits, channel, column)
