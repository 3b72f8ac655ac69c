"""Products by asynchronous matrix instructions: taken where the guard allows, right to what the dtype and
k promise, and every wait and fence of their pipeline is needed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.products import Make, bound, job, plain, step_of, through_text
from tests.machines.ptx.parse import PtxError
from tests.machines.ptx.running import rendered
from tests.parity import Job, interpreted, plan_of
from ztorch import Sequential, layers, ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import DType, bf16, f16, f32
from ztorch.ir.kernel import MmaShape
from ztorch.ir.limits import Limits
from ztorch.lower.grid import asynchronous
from ztorch.lower.schedule import GridAsyncSchedule, IllegalSchedule

# The chip without copies of tiles, which would be preferred.
HOPPER = TARGETS["cuda:sm_90a"].on_device({"compute_units": 1, "tile_copies": False}).limits


CASES: list[tuple[Make, tuple, DType]] = [
    (plain, ((72, 136), (136, 264)), f16),
    (lambda a, b: ops.matmul(ops.transpose(a), ops.transpose(b)), ((200, 72), (64, 200)), bf16),
    (lambda x, w: ops.conv(x, w, stride=2), ((1, 17, 19, 16), (3, 3, 16, 64)), bf16),
]


@together()
@pytest.mark.parametrize(("make", "shapes", "d"), CASES)
def test_products(make: Make, shapes: tuple, d: DType) -> None:
    one = job(make, *shapes, d=d)
    step = step_of(one, HOPPER)
    assert isinstance(step.schedule, GridAsyncSchedule)
    (got,), (want,) = interpreted(one, HOPPER), one.oracle()
    assert (np.abs(got.astype(np.float64) - want) <= bound(one, d, 200)).all()
    np.testing.assert_array_equal(through_text(one, step), got.reshape(-1))


def fused(m: int = 72, n: int = 72, k: int = 200) -> Job:
    """Five strips, which pass through three or four stages, and an epilogue."""
    return job(lambda a, b, c: ops.relu(ops.matmul(a, ops.transpose(b)) + c), (m, k), (n, k), (n,), d=f16)


@together()
@pytest.mark.parametrize("schedule", [
    "grid_async tile(rows=128, columns=64) stages(4) epilogue(bands=1)",
    "grid_async tile(rows=64, columns=192) stages(3) epilogue(bands=3)"])
def test_no_schedule_changes_results(schedule: str) -> None:
    one = fused()
    step = step_of(one, HOPPER, schedule)
    assert repr(step.schedule) == schedule
    (usual,), (got,) = interpreted(one, HOPPER), interpreted(one, HOPPER, schedules={step.key: schedule})
    np.testing.assert_array_equal(got, usual)
    np.testing.assert_array_equal(through_text(one, step), got.reshape(-1))


@pytest.mark.parametrize(("m", "before"), [(128, 4), (72, 1)])
def test_several_lines_of_a_finished_tile_are_loaded_before_any_is_stored(m: int, before: int) -> None:
    """So that they share the latency of memory. One by one where some are outside of the product."""
    one = job(lambda a, b, c: ops.relu(ops.matmul(a, b) + c), (m, 72), (72, 128), (m, 128), d=f16)
    schedule = "grid_async tile(rows=128, columns=128) stages(3) epilogue(bands=1)"
    step = step_of(one, HOPPER, schedule)
    body = step.kernel.body
    last = max(at for at, i in enumerate(body) if i.opcode == "mma_store")
    store = next(at for at in range(last, len(body)) if body[at].opcode == "store")
    source = max(i.attrs["mem"] for i in body[last:store] if i.opcode == "load" and i.attrs["mem"] != "tile")
    assert sum(i.opcode == "load" and i.attrs["mem"] == source for i in body[last:store]) == before
    (got,), (want,) = interpreted(one, HOPPER, schedules={step.key: schedule}), one.oracle()
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=2.0**-9 * np.abs(want).max())
    np.testing.assert_array_equal(through_text(one, step), got.reshape(-1))


def test_chips_without_the_opcodes_run_the_same_schedule_by_mma() -> None:
    one = fused(64, 64, 136)
    step = step_of(one, HOPPER, "grid_async tile(rows=64, columns=64) stages(3) epilogue(bands=1)")
    text = rendered([step.kernel], "sm_80")
    assert "mma.sync" in text and "ldmatrix" in text and "wgmma" not in text
    np.testing.assert_array_equal(through_text(one, step, "sm_80"), interpreted(one, HOPPER)[0].reshape(-1))


PIPELINE = {
    "a dropped wait for copies": (r"cp\.async\.wait_group 1;", "cp.async.wait_group 2;"),
    "a dropped wait for products": (r"wgmma\.wait_group\.sync\.aligned 1;", "wgmma.wait_group.sync.aligned 2;"),
    "sums that are not waited for": (r"wgmma\.wait_group\.sync\.aligned 0;", ""),
    "a fence of memory less": (r"fence\.proxy\.async\.shared::cta;", ""),
    "a fence of matrices less": (r"wgmma\.fence\.sync\.aligned;", ""),
    "no barrier": (r"(fence\.proxy\S+)\s+bar\.sync 0;", r"\1"),
    "another stage": (r"(mad\.lo\.s32 %ab, )(%v\d+)(, 2, \S+ shr)", r"\g<1>0\3"),
    "another swizzle": (r"and\.b32 %z, %z, 112;", "and.b32 %z, %z, 96;"),
}


@together()
@pytest.mark.parametrize("name", PIPELINE)
def test_a_broken_pipeline_is_detected(name: str) -> None:
    one = fused(64, 64, 328)
    step = step_of(one, HOPPER, "grid_async tile(rows=64, columns=64) stages(4) epilogue(bands=1)")
    with pytest.raises((PtxError, AssertionError)):
        np.testing.assert_array_equal(
            through_text(one, step, "sm_90a", *PIPELINE[name]), interpreted(one, HOPPER)[0].reshape(-1))


# -- guards -------------------------------------------------------------------------------------------


def kind(one: Job, limits: Limits = HOPPER) -> str:
    return plan_of(one.alone("j"), limits)[0].steps[-1].schedule.kind


def test_where_they_are_chosen() -> None:
    half, odd = job(plain, (128, 128), (128, 128), d=f16), job(plain, (128, 124), (124, 128), d=f16)
    assert kind(half) == "grid_async"
    assert kind(odd) == "grid_matrix"  # rows that copies of 16 bytes cannot bring
    assert kind(job(plain, (16, 128), (128, 64), d=f16)) == "grid_matrix"  # a quarter of the least tile
    assert kind(job(plain, (128, 128), (128, 128), d=f32)) == "grid_product"
    for t in TARGETS.values():
        if t.limits.grid is not None and t.chip != "sm_90a":
            assert not t.limits.grid.asynchronous_products


@pytest.mark.parametrize(("schedule", "why"), [
    ("tile(rows=32, columns=64) stages(3) epilogue(bands=1)", r"tile\(rows=...\) must be a multiple of 64"),
    ("tile(rows=64, columns=72) stages(3) epilogue(bands=1)", r"tile\(columns=...\) must be a multiple of 64"),
    ("tile(rows=64, columns=320) stages(3) epilogue(bands=1)", "must be at most 256"),
    ("tile(rows=64, columns=64) stages(2) epilogue(bands=1)", "must be at least 3"),
    ("tile(rows=64, columns=64) stages(3) epilogue(bands=3)", "must be a multiple of 3"),
    ("tile(rows=256, columns=256) stages(4) epilogue(bands=1)", "bytes of shared memory of 232448")])
def test_what_no_product_can_have(schedule: str, why: str) -> None:
    with pytest.raises(IllegalSchedule, match=why):
        step_of(fused(), HOPPER, f"grid_async {schedule}")


def test_tiles_fit_their_machine() -> None:
    grid, shape = TARGETS["cuda:sm_90a"].limits.grid, MmaShape(16, 8, 16, f16, f32)
    for m, n, k in ((64, 64, 8), (64, 1000, 72), (4096, 4096, 4096)):
        _, tile = asynchronous.choose(m, n, k, 1, grid, shape)
        assert tile.shared <= grid.shared_bytes and tile.threads <= grid.threads and tile.across % tile.bands == 0
    assert (tile.rows, tile.columns, tile.stages, tile.threads) == (128, 256, 4, 256)


def test_a_bfloat16_model_uses_them_only_on_chips_that_have_them() -> None:
    model = Sequential([layers.Input((512,)), layers.Dense(512, activation="relu")])
    functions = model.trace(batch_size=512, optimizer="sgd", loss="mse", dtype="mixed_bfloat16").functions
    assert "wgmma.mma_async" in compile_functions(functions, TARGETS["cuda:sm_90a"], "m").text
    assert "wgmma" not in compile_functions(functions, TARGETS["cuda:sm_90"], "m").text
