"""Tiles whose threads multiply 8 x 8 numbers each, with odd sides, and their registers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.products import job, step_of, through_text
from tests.machines.ptx.parse import PtxError
from tests.parity import agree, interpreted
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32

SIZES = ["64, columns=64, depth=8", "128, columns=64, depth=8", "64, columns=128, depth=8"]
SCHEDULE = "grid_product tile(rows={}) thread(rows=8, columns=8) epilogue(bands=2) teams(1)"


@pytest.mark.parametrize("chip", ["sm_75", "sm_90a"])
def test_narrow_loads_of_large_tiles_have_more_registers(chip: str) -> None:
    """Where rows are odd, a thread holds the place of each element, so fewer threads share a unit."""
    limits, schedule = TARGETS[f"cuda:{chip}"].limits, SCHEDULE.format(SIZES[0])
    resident = []
    for k in (80, 77):
        one = job(ops.matmul, (4096, k), (k, 1024), d=f32)
        resident.append(step_of(one, limits, schedule).kernel.resident_threads)
    assert resident == [0, 384]


@pytest.mark.parametrize(("a", "sizes"), [*zip([(70, 11), (11, 70), (67, 11)], SIZES, strict=True)])
def test_tiles_of_8_x_8_numbers_a_thread(a: tuple[int, int], sizes: str) -> None:
    """With odd sides, in the interpreter, which finds races, and the same bits in PTX."""
    one = job(lambda x, y: ops.relu(ops.matmul(ops.transpose(x) if a[0] == 11 else x, y)), a, (11, 67), d=f32)
    limits = TARGETS["cuda:sm_90a"].limits
    step = step_of(one, limits, SCHEDULE.format(sizes))
    (got,) = interpreted(one, limits, schedules={step.key: step.schedule})
    agree(one, [got], terms=11)
    np.testing.assert_array_equal(through_text(one, step), got.reshape(-1))
    with pytest.raises((PtxError, AssertionError)):
        np.testing.assert_array_equal(through_text(one, step, old=r"bar\.sync 0;", new=""), got.reshape(-1))
