"""Products whose workgroups have roles: taken where operands are in boxes, right to what the dtype and k promise, and
every wait, arrival, phase and stage of their ring is needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.products import (
    Make,
    bound,
    job,
    plain,
    step_of,
    through_text,
    transposed,
    with_units,
)
from tests.machines.ptx.parse import PtxError
from tests.parity import Job, interpreted, plan_of
from ztorch import Sequential, layers, ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import DType, bf16, f16, f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.limits import Limits
from ztorch.ir.tile_maps import tile_maps
from ztorch.lower.grid import pitches
from ztorch.lower.schedule import IllegalSchedule

ONE, TWO, HOPPER = with_units(1), with_units(2), TARGETS["cuda:sm_90a"].limits


CASES: list[tuple[Make, tuple, DType, str]] = [  # at ragged edges, all ways round; tiles x stages x bands x cluster
    (plain, ((72, 136), (136, 136)), f16, "tile(rows=64, columns=64) stages(3) epilogue(bands=2) cluster(rows=1, columns=1)"),
    (transposed, ((200, 72), (136, 72)), bf16, "tile(rows=64, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=1)"),
    (lambda a, b: ops.matmul(ops.transpose(a), b), ((200, 72), (200, 72)), bf16,
     "tile(rows=192, columns=64) stages(2) epilogue(bands=4) cluster(rows=1, columns=1)"),
    (lambda a, b: ops.matmul(ops.transpose(a), ops.transpose(b)), ((72, 256), (64, 72)), f16,
     "tile(rows=64, columns=64) stages(4) epilogue(bands=1) cluster(rows=1, columns=1)"),
    (lambda a, b: ops.matmul(ops.transpose(a, (0, 2, 1)), b), ((3, 64, 128), (3, 64, 128)), f16,
     "tile(rows=64, columns=128) stages(2) epilogue(bands=2) cluster(rows=2, columns=1)"),
    (lambda a, b: ops.matmul(a, b[8:, 64:]), ((128, 64), (72, 192)), f16,
     "tile(rows=64, columns=128) stages(2) epilogue(bands=1) cluster(rows=1, columns=1)"),
    # sizes that are not multiples of 16 bytes: the boxes' ends bring zeros
    (lambda a, b: ops.matmul(a[:, :69], ops.transpose(b[:131, :69])), ((72, 72), (136, 72)), bf16,
     "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1)"),
    (lambda a, b: ops.matmul(ops.transpose(a[:70, :67]), b[:70, :131]), ((72, 72), (72, 136)), f16,
     "tile(rows=64, columns=128) stages(2) epilogue(bands=2) cluster(rows=1, columns=1)"),
    # three panels, of each of which two workgroups copy half of the lines
    (plain, ((128, 72), (72, 200)), bf16, "tile(rows=64, columns=192) stages(2) epilogue(bands=3) cluster(rows=2, columns=1)"),
    (transposed, ((128, 72), (200, 72)), f16, "tile(rows=64, columns=192) stages(3) epilogue(bands=6) cluster(rows=2, columns=1)"),
    # clusters of four, each of which copies a quarter of the lines
    (plain, ((256, 72), (72, 136)), f16, "tile(rows=64, columns=192) stages(2) epilogue(bands=3) cluster(rows=4, columns=1)"),
    (transposed, ((200, 72), (136, 72)), bf16, "tile(rows=64, columns=128) stages(3) epilogue(bands=1) cluster(rows=4, columns=1)"),
    # clusters of two by two, which share panels or lines of both strips, along k and across it, in two batches
    (transposed, ((200, 72), (200, 72)), bf16,
     "tile(rows=128, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=2)"),
    (lambda a, b: ops.matmul(ops.transpose(a, (0, 2, 1)), b), ((2, 72, 512), (2, 72, 264)), f16,
     "tile(rows=128, columns=192) stages(2) epilogue(bands=2) cluster(rows=2, columns=2)"),
    # clusters with empty tiles below, beside, and in each of three batches
    (plain, ((192, 72), (72, 136)), f16, "tile(rows=64, columns=128) stages(2) epilogue(bands=1) cluster(rows=4, columns=1)"),
    (transposed, ((128, 72), (128, 72)), bf16, "tile(rows=128, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=2)"),
    (lambda a, b: ops.matmul(ops.transpose(a, (0, 2, 1)), b), ((3, 72, 64), (3, 72, 128)), f16,
     "tile(rows=64, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=1)"),
    # float32 truncated to tf32, along k
    (transposed, ((72, 100), (136, 100)), f32, "tile(rows=64, columns=64) stages(3) epilogue(bands=2) cluster(rows=1, columns=1)"),
    (lambda a, b: ops.matmul(a[:, :69], ops.transpose(b[:131, :69])), ((200, 72), (136, 72)), f32,
     "tile(rows=128, columns=64) stages(2) epilogue(bands=1) cluster(rows=2, columns=1)"),
    (lambda a, b: ops.matmul(a, ops.transpose(b, (0, 2, 1))), ((3, 128, 36), (3, 128, 36)), f32,
     "tile(rows=64, columns=128) stages(2) epilogue(bands=2) cluster(rows=2, columns=1)"),
]


@together()
@pytest.mark.parametrize(("make", "shapes", "d", "schedule"), CASES)
def test_products(make: Make, shapes: tuple, d: DType, schedule: str) -> None:
    one = job(make, *shapes, d=d)
    text = f"grid_roles {schedule}"
    limits = replace(TWO, product_mantissa_bits=10) if d is f32 else TWO
    step = step_of(one, limits, text)
    assert repr(step.schedule) == text
    (got,), (want,) = interpreted(one, limits, schedules={step.key: text}), one.oracle()
    assert (np.abs(got.astype(np.float64) - want) <= bound(one, d, 200)).all()
    np.testing.assert_array_equal(through_text(one, step), got.reshape(-1))


def fused(m: int = 128, n: int = 128, k: int = 328) -> Job:
    """Six strips, and an epilogue."""
    return job(lambda a, b, c: ops.relu(ops.matmul(a, ops.transpose(b)) + c), (m, k), (n, k), (n,), d=f16)


FAULTS = {  # replacements in the text, single or repeated
    "an arrival before the products are done": (r"wgmma\.wait_group\.sync\.aligned 1;", "wgmma.wait_group.sync.aligned 2;"),
    "no arrival": (r"mbarrier\.arrive\.shared::cta\.b64 _, \[%a\];", ""),
    "a byte count of one operand": (r"(arrive\.expect_tx\S+ _, \[%a\], )\d+", r"\g<1>8192"),
    "a wrong first phase": (r"mov\.b32 (%x\d+), 1;", r"mov.b32 \1, 0;"),
    "no fence of barriers": (r"fence\.mbarrier_init\.release\.cluster;", ""),
    "no fence of matrices": (r"wgmma\.fence\.sync\.aligned;", ""),
    "sums that are not waited for": (r"wgmma\.wait_group\.sync\.aligned 0;", ""),
    "tiles at another place": (r"(\{ %v\d+, %v\d+)( \}\], \[%b\])", r"{ 0, 0\2"),
    "the other barrier": (r"(mbarrier\.init\S+ \[%a\+?\S*\], )1;", r"\g<1>2;"),
    "no team": (r"bar\.sync 1, 256;", ""),
}


@together()
@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_ring_is_detected(name: str) -> None:
    one = fused()
    step = step_of(one, ONE, "grid_roles tile(rows=128, columns=64) stages(2) epilogue(bands=2) cluster(rows=1, columns=1)")
    with pytest.raises((PtxError, AssertionError)):
        np.testing.assert_array_equal(
            through_text(one, step, "sm_90a", *FAULTS[name]), interpreted(one, ONE)[0].reshape(-1))


@together()
@pytest.mark.parametrize(("old", "new"), [
    ("and.b32 %r, %r, 6;", "and.b32 %r, %r, 4;"), ("and.b32 %r, %r, 5;", "and.b32 %r, %r, 4;"),  # the first that gets a strip
    ("mov.b32 %m, 5;", "mov.b32 %m, 3;"), ("mov.b32 %m, 3;", "mov.b32 %m, 7;"), (r"\.multicast::cluster(.*), %k;", r"\1;"),
    (r"mapa\.shared::cluster\.u32 %r, %a, 3; mbarrier\S+ _, \[%r\];", ""), (r"barrier\.cluster\.(arrive|wait)\.\w+;", "")])
def test_a_broken_cluster_is_detected(old: str, new: str) -> None:
    """Of two by two workgroups: each strip comes to two of them, and each stage is empty when all four have read it."""
    one = job(transposed, (256, 200), (256, 200), d=f16)
    step = step_of(one, with_units(4), "grid_roles tile(rows=128, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=2)")
    with pytest.raises((PtxError, AssertionError)):
        np.testing.assert_array_equal(
            through_text(one, step, "sm_90a", old, new), interpreted(one, with_units(4))[0].reshape(-1))


# -- guards -----------------------------------------------------------------------------------------------


def kind(one: Job, limits: Limits = ONE) -> str:
    return plan_of(one.alone("j"), limits)[0].steps[-1].schedule.kind


def test_where_they_are_chosen() -> None:
    assert kind(job(plain, (128, 128), (128, 128), d=f16)) == "grid_roles"
    assert kind(job(plain, (128, 124), (124, 128), d=f16)) == "grid_matrix"  # rows that are not multiples of 16 bytes
    for start, taken in ((0, True), (4, False), (8, True)):  # a view whose first element is not a multiple of 16 bytes
        of = job(lambda a, b, start=start: ops.matmul(a, b[:, start:start + 128]), (128, 128), (128, 136), d=bf16)
        assert (kind(of) == "grid_roles") == taken
    assert kind(job(lambda x, w: ops.conv(x, w), (1, 18, 18, 32), (3, 3, 32, 64), d=f16)) == "grid_async"  # no box
    assert kind(job(plain, (128, 128), (128, 128), d=f32)) == "grid_product"
    for t in TARGETS.values():
        if t.limits.grid is not None and not t.name.endswith(":sm_90a"):
            assert not t.limits.grid.tile_copies


def test_rows_unaligned_for_box_copies_are_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of a matrix has longer rows, and serves a product with it and one with its transpose."""
    monkeypatch.setattr(pitches, "PITCH_REUSE", 64)
    a, b, c = (leaf("input", name, shape, bf16) for name, shape in (("a", (128, 134)), ("b", (134, 128)), ("c", (128, 198))))
    rng = np.random.default_rng(4)
    feeds = {v: rng.integers(-1, 2, v.shape).astype(np.float32) for v in (a, b, c)}
    one = Job(Graph({"y": ops.matmul(a, b), "z": ops.matmul(ops.transpose(a), c)}), feeds)
    steps = plan_of(one.alone("j"), ONE)[0].parts
    assert sorted(s.schedule.kind for s in steps) == ["grid_elements"] * 2 + ["grid_roles"] * 2
    for got, want in zip(interpreted(one, ONE), one.oracle(), strict=True):  # sums below 256 are exact
        assert np.abs(want).max() < 257
        np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_rows_are_longer_where_they_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that computes a matrix of unaligned rows for products stores them further apart: there is no copy."""
    monkeypatch.setattr(pitches, "PITCH_REUSE", 64)
    x, b, c = leaf("input", "x", (128, 134), f32), leaf("input", "b", (134, 128), bf16), leaf("input", "c", (128, 192), bf16)
    rng = np.random.default_rng(4)
    feeds = {v: rng.integers(-1, 2, v.shape).astype(np.float32) for v in (x, b, c)}
    a = ops.cast(x - ops.max(x, axis=1, keepdims=True), bf16)
    one = Job(Graph({"y": ops.matmul(a, b), "z": ops.matmul(ops.transpose(a), c)}), feeds)
    steps = plan_of(one.alone("j"), ONE)[0].parts
    assert sorted(s.schedule.kind for s in steps) == ["grid_roles"] * 2 + ["grid_rows"]
    assert 128 * 136 in {m.size for m in steps[0].kernel.memories if m.access != "r"}
    for got, want in zip(interpreted(one, ONE), one.oracle(), strict=True):  # sums below 256 are exact
        assert np.abs(want).max() < 257
        np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_float32_matrices_are_transposed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of float32 read copies of what lies across k, and the gradient of x both operands as they are."""
    monkeypatch.setattr(pitches, "PITCH_REUSE", 64)
    x, w, y = (leaf("input", name, shape, f32) for name, shape in (("x", (128, 66)), ("w", (66, 128)), ("y", (128, 128))))
    rng = np.random.default_rng(4)
    feeds = {v: rng.integers(-4, 5, v.shape).astype(np.float32) for v in (x, w, y)}
    one = Job(Graph({"y": ops.matmul(x, w), "dw": ops.matmul(ops.transpose(x), y), "dx": ops.matmul(y, ops.transpose(w))}), feeds)
    limits = replace(ONE, product_mantissa_bits=10)
    steps = plan_of(one.alone("j"), limits)[0].parts
    assert sorted(s.schedule.kind for s in steps) == ["grid_elements"] + ["grid_roles"] * 3 + ["grid_transpose"] * 3
    for got, want in zip(interpreted(one, limits), one.oracle(), strict=True):  # small whole numbers are exact
        np.testing.assert_array_equal(got.reshape(want.shape), want)


@pytest.mark.parametrize(("schedule", "why"), [
    ("tile(rows=32, columns=64) stages(3) epilogue(bands=1) cluster(rows=1, columns=1)", r"tile\(rows=...\) must be a multiple of 64"),
    ("tile(rows=64, columns=320) stages(3) epilogue(bands=1) cluster(rows=1, columns=1)", "must be at most 256"),
    ("tile(rows=64, columns=64) stages(1) epilogue(bands=1) cluster(rows=1, columns=1)", "must be at least 2"),
    ("tile(rows=128, columns=64) stages(2) epilogue(bands=1) cluster(rows=2, columns=1)", "must be 1 x 1 or one of"),
    ("tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=2, columns=1)", "must be 1 x 1 or one of"),
    ("tile(rows=64, columns=256) stages(6) epilogue(bands=1) cluster(rows=1, columns=1)", "bytes of shared memory of 232448"),
    ("tile(rows=256, columns=192) stages(2) epilogue(bands=8) cluster(rows=1, columns=1)", "its threads take 122 registers of 104"),
    ("tile(rows=512, columns=64) stages(2) epilogue(bands=8) cluster(rows=1, columns=1)", "threads|bytes of shared memory")])
def test_what_no_product_can_have(schedule: str, why: str) -> None:
    with pytest.raises(IllegalSchedule, match=why):
        step_of(fused(), ONE, f"grid_roles {schedule}")


@pytest.mark.parametrize("make", [plain, transposed])
def test_proposals_are_legal(make: Make) -> None:
    """Clusters among them: none of one panel, and empty tiles where they take no further round, not for 41 tiles in three
    columns."""
    for m, n, k, cluster in ((512, 512, 512, 1), (1024, 1024, 512, 4), (1088, 1024, 512, 4), (5248, 768, 512, 2),
                             (1024, 1024, 64, 1), (256, 4096, 1024, 4), (512, 1024, 128, 1), (128, 8192, 1024, 2)):
        one = job(make, (m, k), (k, n) if make is plain else (n, k), d=f16)
        key, schedule = next((s.key, repr(s.schedule)) for s in plan_of(one.alone("j"), HOPPER)[0].steps
                             if s.schedule.kind == "grid_roles")
        assert f"cluster(rows={cluster}, columns=1)" in schedule
        plan_of(one.alone("j"), HOPPER, schedules={key: schedule})  # raises if it is refused


def test_large_products_share_strips_in_clusters() -> None:
    one = job(transposed, (1024, 512), (1024, 512), d=bf16)
    step = step_of(one, with_units(4))
    assert repr(step.schedule) == "grid_roles tile(rows=128, columns=256) stages(3) epilogue(bands=2) cluster(rows=4, columns=1)"
    assert [m.box for m in tile_maps(step.kernel)] == [(64, 128), (64, 64)]
    assert step.kernel.workgroup == (384, 1, 1) and step.kernel.cluster == 4


@pytest.mark.parametrize(("k", "units", "end"), [
    (1024, 4, "stages(3) epilogue(bands=2)"), (1088, 4, "stages(4) epilogue(bands=4)"),
    (1024, 32, "stages(4) epilogue(bands=4)")])  # one tile for each workgroup
def test_tiles_of_few_strips_end_in_few_bands(k: int, units: int, end: str) -> None:
    step = step_of(job(transposed, (1024, k), (1024, k), d=bf16), with_units(units))
    assert f"tile(rows=128, columns=256) {end}" in repr(step.schedule)


def test_a_model_uses_them_only_on_chips_that_have_them() -> None:
    model = Sequential([layers.Input((512,)), layers.Dense(512, activation="relu")])
    functions = model.trace(batch_size=512, optimizer="sgd", loss="mse", dtype="mixed_bfloat16").functions
    made = compile_functions(functions, TARGETS["cuda:sm_90a"], "m")
    assert "cp.async.bulk.tensor" in made.text and made.spec.maps
    other = compile_functions(functions, TARGETS["cuda:sm_90"], "m")
    assert "cp.async.bulk" not in other.text and not other.spec.maps
