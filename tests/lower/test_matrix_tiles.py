"""Which tiles multiply 16 bits in stages: those with the least estimated time, of the parts of a product along k, too."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.convolutions import of_kernel, same
from tests.cases.grouping import together
from tests.cases.products import Make, bound, job, step_of, through_text
from tests.parity import interpreted, plan_of
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, bf16, f16
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.lower.grid import mma_tiles
from ztorch.lower.grid.mma import MmaTile

SM_80 = TARGETS["cuda:sm_80"].limits
ONE = TARGETS["cuda:sm_80"].on_device({"compute_units": 1}).limits


@together()
@pytest.mark.parametrize(("make", "shapes", "d", "schedule"), [
    (of_kernel, ((2, 6, 8, 64), (2, 6, 8, 40)), f16, "subgroups(down=4, across=1) stages(3) epilogue(bands=1)"),
    (of_kernel, ((1, 9, 8, 32), (1, 9, 8, 64)), bf16, "subgroups(down=4, across=1) stages(2) epilogue(bands=3)"),
    (same, ((2, 11, 9, 32), (3, 3, 32, 64)), bf16, "subgroups(down=4, across=1) stages(3) epilogue(bands=1)")])
def test_three_matrices_of_rows_for_each_subgroup(make: Make, shapes: tuple, d: DType, schedule: str) -> None:
    one, text = job(make, *shapes, d=d), f"grid_matrix tile(rows=192, columns=64, depth=64) {schedule}"
    step = step_of(one, ONE, text)
    assert repr(step.schedule) == text
    (got,), (want,) = interpreted(one, ONE, schedules={step.key: text}), one.oracle()
    assert (np.abs(got.astype(np.float64) - want) <= bound(one, d, 600)).all()
    np.testing.assert_array_equal(through_text(one, step, "sm_80"), got.reshape(-1))


@together()
@pytest.mark.parametrize(("side", "channels", "want"), [
    (56, 64, "32x576x64"), (28, 128, "8x1152x128"), (14, 256, "2x2304x256")])
def test_gradients_of_kernels_occupy_an_a100(side: int, channels: int, want: str) -> None:
    """In 96 workgroups, each of which reads less for a multiply-add: 65.5 us for 125 of 64 images of 56 x 56 x 64."""
    x, g = (leaf("input", n, (64, side, side, channels), bf16) for n in "xg")
    product = plan_of(Graph({"y": of_kernel(x, g)}), SM_80)[0].parts[0]
    [sums] = (m for m in product.kernel.memories if m.space == "global" and m.access == "w")
    assert (product.schedule.tile_rows, product.schedule.tile_columns) == (192, 64)
    assert sums.size == np.prod([int(n) for n in want.split("x")])


def test_what_limits_tiles_in_stages() -> None:
    """Shared memory limits small ones, matrix instructions a large one, and copies one whose strips have two stages."""
    grid = SM_80.grid
    assert grid is not None
    shape = next(s for s in grid.mma_shapes if s.of is bf16)

    def step(rows: int, columns: int, down: int, across: int, stages: int = 4, units: int = 108) -> float:
        tile = MmaTile(rows, columns, 64, shape, down, across, 32, 1, stages)
        m, n = rows * units, columns
        return (mma_tiles.cycles(tile, m, n, 1 << 14, 1, grid) - mma_tiles.cycles(tile, m, n, 1 << 13, 1, grid)) / (1 << 13)

    assert step(64, 64, 2, 2) == 8 and step(192, 64, 4, 1) == 15  # cycles of 128 bytes
    assert step(256, 128, 4, 2) == pytest.approx(256 * 128 / grid.unit.subgroup_products)
    assert step(64, 64, 2, 2, stages=2) == grid.unit.copy_cycles / 64
    assert step(64, 64, 2, 2, units=162) == pytest.approx(8 * (0.7 * 2 + 0.3 * 1.5))
