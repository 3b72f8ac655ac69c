"""The estimated time of a convolution on a grid, with and without Winograd's transforms."""

from __future__ import annotations

from ztorch.dtypes import f32
from ztorch.ir.limits import GridLimits
from ztorch.lower.grid.split_k import fastest
from ztorch.lower.tuning import SPLIT_START, TRANSFORM_GAIN

Sizes = tuple[int, int, int]  # m, n, k


def pays(plain: Sizes, at_point: Sizes, points: int, untransformed: int, transformed: int,
         launches: int, grid: GridLimits) -> bool:
    """Whether a convolution by threads is faster at points. Transforms take the time to read and
    write their elements.

    Args:
        plain: The sizes of its product.
        at_point: Those of the product at each point.
        points: Their number.
        untransformed: Elements that transforms read, or write, before and after.
        transformed: Elements at all points.
        launches: The number of transforms.
        grid: The limits of the machine.

    >>> pays((200704, 64, 576), (12544, 64, 64), 36, 25 << 20, 55 << 20, 3, GridLimits())
    True
    >>> pays((3136, 16, 144), (196, 16, 16), 36, 100_000, 230_000, 3, GridLimits())
    False
    """
    each = f32.bytes * grid.unit.f32 / (grid.unit.memory_bytes * grid.compute_units)  # of a number
    products = max(fastest(*at_point, points, grid, f32.bytes, None)[0], transformed * each)
    after = products + (untransformed + transformed) * each + launches * SPLIT_START
    return after <= TRANSFORM_GAIN * fastest(*plain, 1, grid, f32.bytes, None)[0]
