"""The estimated time of the transforms of Winograd convolutions on a processor."""

from __future__ import annotations

import math

from ztorch.dtypes import f32
from ztorch.ir.limits import Limits
from ztorch.lower.tuning import TRANSFORM_CYCLES


def transforms_cycles(points: int, tiles: int, channels: int, filters: int, passes: int,
                      limits: Limits) -> float:
    """The estimated cycles of the transforms of a convolution, or of the gradient of its kernel,
    and of the memory traffic of transformed tiles, products and the kernel.

    Args:
        points: The points of a tile.
        tiles: The tiles of all images.
        channels: Of the images.
        filters: Of the kernel.
        passes: Over the kernel at all points: 1 if it is the same in every call; else it is
            stored, too.
        limits: The machine.
    """
    cpu, lanes = limits.processor, limits.lanes(f32)
    vectors = math.ceil(channels / lanes) + math.ceil(filters / lanes)
    stored = points * f32.bytes * tiles * (channels + filters)
    kernel = points * f32.bytes * channels * filters
    rate = cpu.l2_bytes_per_cycle if stored + kernel <= cpu.l2_bytes else (
        cpu.outer_bytes_per_cycle if stored <= cpu.l3_bytes else cpu.memory_bytes_per_cycle)
    kernel_rate = (cpu.memory_bytes_per_cycle if kernel > cpu.l3_bytes and passes == 1
                   else cpu.outer_bytes_per_cycle)
    return (tiles * vectors * TRANSFORM_CYCLES + 2 * stored / rate
            + kernel * passes / kernel_rate)
