"""Convolutions whose images are copied as boxes, without a copy that has a border: right forward and for both
gradients, whatever patches, windows and edges; and every word of their ring is needed."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.cases.convolutions import of_images, of_kernel, same
from tests.cases.grouping import together
from tests.cases.products import Make, bound, job, step_of, through_text, with_units
from tests.cases.ring_schedules import played
from tests.machines.ptx.parse import PtxError
from tests.parity import Job, interpreted, plan_of
from ztorch import Sequential, layers, ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import DType, bf16, f16, f32
from ztorch.graph.autodiff import pullback
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.ir.tile_maps import tile_maps
from ztorch.lower.schedule import IllegalSchedule

ONE, TWO, HOPPER = with_units(1), with_units(2), TARGETS["cuda:sm_90a"].limits
IMAGES, KERNEL = (2, 12, 12, 64), (3, 3, 64, 64)


def halving(x: Value, w: Value) -> Value:
    return ops.conv(x, w, padding="same", stride=2)


def valid(x: Value, w: Value) -> Value:
    return ops.conv(x, w)


def of_halving_kernel(x: Value, g: Value) -> Value:
    w = leaf("input", "w", (3, 3, x.shape[-1], g.shape[-1]), x.dtype)
    return pullback({halving(x, w): g}, [w])[0]


# Patches that fit and that reach over edges, in one strip for all rows of a window or not; and how many sums a result has.
CASES: list[tuple[Make, tuple, DType, str, Limits]] = [
    (same, (IMAGES, KERNEL), f16,
     "tile(rows=128, columns=64) stages(2) epilogue(bands=2) cluster(rows=1, columns=1) taps(3) patch(1, 8, 16)", TWO),
    (same, (IMAGES, KERNEL), bf16,
     "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=2, columns=1) taps(3) patch(2, 4, 8)", TWO),
    (same, (IMAGES, KERNEL), f16,
     "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=4, columns=1) taps(1) patch(1, 8, 8)", TWO),
    (valid, ((2, 11, 9, 128), (4, 2, 128, 72)), f16,
     "tile(rows=64, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=1) taps(1) patch(1, 16, 4)", TWO),
    (halving, (IMAGES, KERNEL), bf16,
     "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(1) patch(1, 8, 8)", TWO),
    (lambda x, w: ops.conv(x, w, padding=((2, 1), (1, 2)), stride=2), ((3, 8, 12, 64), (5, 4, 64, 64)), f16,
     "tile(rows=64, columns=64) stages(2) epilogue(bands=2) cluster(rows=1, columns=1) taps(1) patch(2, 4, 8)", ONE),
    (of_halving_kernel, ((4, 8, 8, 64), (4, 4, 4, 64)), f16,
     "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(1) patch(2, 4, 4)", ONE),
    (lambda x, w: ops.relu(ops.conv(x, w, padding="same", dilation=2) + 1), ((1, 9, 8, 64), (3, 3, 64, 64)), f16,
     "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(3) patch(8, 8)", ONE),
    (same, ((3, 40, 64), (5, 64, 64)), f16,  # sequences
     "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(5) patch(8, 8)", ONE),
    (same, ((2, 2, 4, 8, 64), (3, 1, 3, 64, 64)), f16,  # volumes
     "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(3) patch(1, 2, 4, 8)", ONE),
    (lambda x, g: ops.matmul(ops.transpose(ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (16, 128))),  # heads side by side
                             ops.reshape(ops.transpose(g, (0, 2, 1, 3)), (16, 128))), ((2, 2, 8, 64), (2, 2, 8, 64)), f16,
     "tile(rows=64, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=1) taps(1) patch(2, 8)", TWO),
    (lambda x, g: ops.matmul(ops.transpose(ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (64, 128))),  # lines of a panel shared
                             ops.reshape(ops.transpose(g, (0, 2, 1, 3)), (64, 128))), ((2, 2, 32, 64), (2, 2, 32, 64)), f16,
     "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=2, columns=1) taps(1) patch(1, 32)", TWO),
    (lambda x, g: ops.matmul(ops.transpose(x), ops.reshape(ops.transpose(g, (0, 2, 1, 3)), (16, 128))),
     ((16, 128), (2, 2, 8, 64)), f16,
     "tile(rows=64, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=1) taps(1) patch(2, 8)", TWO),
    (lambda x, g: ops.matmul(ops.transpose(ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (16, 256))),  # panels of both shared
                             ops.reshape(ops.transpose(g, (0, 2, 1, 3)), (16, 256))), ((2, 4, 8, 64), (2, 4, 8, 64)), f16,
     "tile(rows=128, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=2) taps(1) patch(2, 8)", TWO),
    (same, (IMAGES, (3, 3, 64, 128)), f16,  # lines of both, those of two images or of rows of one
     "tile(rows=128, columns=64) stages(2) epilogue(bands=1) cluster(rows=2, columns=2) taps(1) patch(2, 8, 8)", TWO),
    (same, (IMAGES, (3, 3, 64, 128)), bf16,
     "tile(rows=128, columns=64) stages(2) epilogue(bands=1) cluster(rows=2, columns=2) taps(3) patch(1, 4, 32)", TWO),
    (same, (IMAGES, KERNEL), f16,  # a patch for each team, the last two behind the images
     "tile(rows=256, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(3) patch(2, 8, 4)", TWO),
    (same, ((1, 8, 16, 64), (3, 3, 64, 128)), bf16,  # a cluster of which half the patches are
     "tile(rows=128, columns=64) stages(2) epilogue(bands=1) cluster(rows=2, columns=2) taps(1) patch(8, 8)", with_units(4)),
    (valid, ((3, 10, 10, 64), KERNEL), f16,  # two teams share a patch
     "tile(rows=256, columns=64) stages(2) epilogue(bands=2) cluster(rows=1, columns=1) taps(3) patch(2, 8, 8)", ONE),
    (of_images, (IMAGES, KERNEL), f16,
     "tile(rows=128, columns=64) stages(2) epilogue(bands=1) cluster(rows=2, columns=1) taps(3) patch(1, 4, 32)", TWO),
    (of_images, ((2, 6, 5, 128), (3, 3, 64, 128)), bf16,
     "tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(1) patch(2, 8, 4)", ONE),
    (of_kernel, (IMAGES, IMAGES), f16,
     "tile(rows=192, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(3) patch(2, 12, 4)", ONE),
    (of_kernel, ((2, 8, 8, 128), (2, 8, 8, 128)), bf16,
     "tile(rows=128, columns=128) stages(2) epilogue(bands=2) cluster(rows=1, columns=1) taps(1) patch(1, 8, 4)", ONE),
    (of_kernel, ((2, 8, 8, 128), (2, 8, 8, 128)), f16,
     "tile(rows=192, columns=128) stages(2) epilogue(bands=1) cluster(rows=2, columns=1) taps(3) patch(2, 4, 4)", TWO),
]


@together()
@pytest.mark.parametrize(("make", "shapes", "d", "schedule", "limits"), CASES)
def test_convolutions(make: Make, shapes: tuple, d: DType, schedule: str, limits: Limits) -> None:
    """By the interpreter and by PTX, which agree in every bit."""
    one = job(make, *shapes, d=d)
    text = f"grid_windows {schedule}"
    step = step_of(one, limits, text)
    assert repr(step.schedule) == text
    (got,), (want,) = interpreted(one, limits, schedules={step.key: text}), one.oracle()
    assert (np.abs(got.astype(np.float64) - want) <= bound(one, d, 1200)).all()
    np.testing.assert_array_equal(through_text(one, step), got.reshape(-1))
    assert played(step.kernel) == "" == played(step.kernel, last_first=True)


SM_80 = TARGETS["cuda:sm_80"].on_device({"compute_units": 1}).limits


@together()
@pytest.mark.parametrize(("make", "shapes", "limits"), [
    (same, ((2, 7, 6, 32), (3, 3, 32, 64)), SM_80),
    (lambda x, w: ops.relu(ops.conv(x, w, stride=2, padding="same") + 1), ((2, 9, 8, 64), (3, 3, 64, 40)), SM_80),
    (of_images, ((1, 6, 8, 64), (3, 3, 32, 64)), SM_80), (of_kernel, ((2, 6, 8, 64), (2, 6, 8, 32)), SM_80),
    (same, ((2, 12, 12, 32), (3, 3, 32, 64)), ONE)])
def test_threads_copy_zeros_for_borders(make: Make, shapes: tuple, limits: Limits) -> None:
    """Where no maps are, or images do not lie as these need: one kernel, whose copies bring zeros from outside."""
    one = job(make, *shapes, d=f16)
    step = step_of(one, limits)
    assert step.schedule.kind == ("grid_async" if limits is ONE else "grid_matrix")
    (got,), (want,) = interpreted(one, limits), one.oracle()
    assert (np.abs(got.astype(np.float64) - want) <= bound(one, f16, 600)).all()
    chip = "sm_90a" if limits is ONE else "sm_80"
    np.testing.assert_array_equal(through_text(one, step, chip), got.reshape(-1))
    with pytest.raises((PtxError, AssertionError)):  # without the zeros
        broken = through_text(one, step, chip, r"(cp.async.cg.shared.global \[[^]]*\], \[[^]]*\], 16), %n", r"\1")
        np.testing.assert_array_equal(broken, got.reshape(-1))


@together()
@pytest.mark.parametrize(("name", "old", "new"), [
    ("a window that does not move", r"(\{ %v\d+, )%v\d+(, )", r"\g<1>0\2"),
    ("positions of another image", r", %v\d+( \}\], \[%b\])", r", 1\1"),
    ("rows of a window in the wrong lines", r"%aa, %aa, 16384;", "%aa, %aa, 8192;"),
    ("a byte count without one place of a window", r"(arrive\.expect_tx\S+ _, \[%a\], )\d+", r"\g<1>36864"),
    ("an arrival before the products are done", r"wgmma\.wait_group\.sync\.aligned 1;", "wgmma.wait_group.sync.aligned 2;"),
    ("sums that are not waited for", r"wgmma\.wait_group\.sync\.aligned 0;", "")])
def test_a_broken_convolution_is_detected(name: str, old: str, new: str) -> None:
    one = job(same, IMAGES, KERNEL, d=f16)
    text = "grid_windows tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(3) patch(2, 4, 8)"
    step = step_of(one, ONE, text)
    with pytest.raises((PtxError, AssertionError)):
        np.testing.assert_array_equal(through_text(one, step, "sm_90a", old, new),
                                      interpreted(one, ONE, schedules={step.key: text})[0].reshape(-1))


# -- guards -----------------------------------------------------------------------------------------------


def kinds(one: Job, limits: Limits) -> list[str]:
    return [s.schedule.kind for s in plan_of(one.alone("j"), limits)[0].parts]


@together()
@pytest.mark.parametrize(("make", "shapes", "d", "want"), [
    (same, ((2, 12, 12, 64), KERNEL), f16, "grid_windows"),
    (same, ((2, 12, 12, 32), (3, 3, 32, 64)), f16, "grid_async"),  # channels that are half a line
    (halving, (IMAGES, KERNEL), f16, "grid_windows"),
    (halving, ((2, 11, 12, 64), KERNEL), f16, "grid_async"),  # images that are no whole number of steps
    (same, ((2, 12, 12, 64), KERNEL), f32, "grid_product")])
def test_where_they_are_chosen(make: Make, shapes: tuple, d: DType, want: str) -> None:
    """Threads copy what does not, and only float32 is computed from a copy with a border."""
    actual = kinds(job(make, *shapes, d=d), ONE)
    assert actual[-1] == want and (len(actual) == 1) == (d is f16)


def test_gradients_of_kernels_are_divided_between_images() -> None:
    one = job(of_kernel, (4, 8, 8, 64), (4, 8, 8, 64), d=f16)
    assert kinds(one, HOPPER) == ["grid_windows", "grid_rows"]
    (got,), (want,) = interpreted(one, HOPPER), one.oracle()
    assert (np.abs(got.astype(np.float64) - want) <= bound(one, f16, 300)).all()


SCHEDULE = "grid_windows tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(3) patch(1, 8, 8)"


@pytest.mark.parametrize(("old", "new", "why"), [
    (r"patch\(1, 8", "patch(8", "must have 3 sizes"), ("taps.3", "taps(2", r"must be 1 or 3"),
    ("8, 8", "16, 8", r"must have tile\(rows=...\) positions"), (r"1, 8, 8", "1, 64, 1", "1 lines apart, no multiple of 8"),
    (r"stages.2", "stages(9", "must be 2 to 8|bytes of shared memory"), ("stages.2", "stages(1", "must be at least 2"),
    (r"cluster.rows=1", "cluster(rows=3", "must be 1 x 1 or one of")])
def test_what_no_convolution_can_have(old: str, new: str, why: str) -> None:
    one = job(same, IMAGES, KERNEL, d=f16)
    assert re.search(old, SCHEDULE)
    with pytest.raises(IllegalSchedule, match=why):
        step_of(one, ONE, re.sub(old, new, SCHEDULE))


def test_gradients_of_kernels_use_complete_patches() -> None:
    one = job(of_kernel, IMAGES, IMAGES, d=f16)
    for schedule, why in (("192, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(3) patch(1, 8, 8)", "must divide"),
                          ("64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(3) patch(2, 12, 4)", "must be 192"),
                          ("64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) taps(1) patch(1, 6, 2)", "multiple of 16")):
        with pytest.raises(IllegalSchedule, match=why):
            step_of(one, ONE, f"grid_windows tile(rows={schedule}")


def test_strips_of_positions_leave_room_for_stages() -> None:
    """The gradient of a projection to 12 heads: predicted 8.8 us on an H200, for 15.8 in two stages of 256 positions."""
    x, g = leaf("input", "x", (4096, 768), bf16), leaf("input", "g", (32, 12, 128, 64), bf16)
    heads = ops.reshape(ops.transpose(g, (0, 2, 1, 3)), (4096, 768))
    step = plan_of(Graph({"y": ops.matmul(ops.transpose(x), heads)}), HOPPER)[0].steps[0]
    assert repr(step.schedule) == (
        "grid_windows tile(rows=128, columns=192) stages(6) epilogue(bands=1) cluster(rows=2, columns=2) taps(1) patch(1, 32)")


def test_a_strip_serves_all_rows_of_a_window() -> None:
    """Ten rows of images for eight of results, by one map; three places of the kernel by another."""
    x, w = (8, 56, 56, 64), (3, 3, 64, 64)
    step = step_of(job(same, x, w, d=bf16), with_units(4))
    assert repr(step.schedule) == (
        "grid_windows tile(rows=256, columns=64) stages(2) epilogue(bands=1) cluster(rows=4, columns=1) taps(3) patch(4, 8, 8)")
    assert [m.box for m in tile_maps(step.kernel)] == [(64, 8, 4, 10), (64, 16, 1, 1)]


def test_a_patch_for_each_team_fills_the_machine() -> None:
    """392 patches of 64 positions are 131 tiles, for 132 units; patches of 192 positions would be 140. The last tile of
    the last cluster is empty."""
    step = step_of(job(same, (32, 28, 28, 128), (3, 3, 128, 128), d=bf16), HOPPER)
    assert repr(step.schedule) == (
        "grid_windows tile(rows=192, columns=128) stages(2) epilogue(bands=2) cluster(rows=2, columns=1) taps(3) patch(4, 4, 4)")
    assert step.kernel.body[0].args[1].number == 132
    assert [m.box for m in tile_maps(step.kernel)] == [(64, 4, 4, 6), (64, 64, 1, 1)]


def test_mixed_precision_rounds_images_once() -> None:
    """Where they have fewest elements: not for each window."""
    model = Sequential([layers.Input((16, 16, 64)), layers.Conv2D(64, 3, padding="same", activation="relu"),
                        layers.Conv2D(64, 3, padding="same"), layers.Activation("tanh")])
    functions = model.trace(batch_size=16, optimizer="sgd", loss="mse", dtype="mixed_bfloat16").functions
    made = compile_functions(functions, TARGETS["cuda:sm_90a"].on_device({"compute_units": 4}), "m")
    assert len(re.findall(r"\.entry \w*windows", made.text)) == 7  # two that predict; in training two more, one for images, two for kernels
    assert "rows" not in made.text and "_pad" not in made.text
