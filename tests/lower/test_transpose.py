"""Transposing copies on a processor, by tiles in registers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cases.grid import job
from tests.parity import HERE, NARROW, Module, agree, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value


def flipped(x: Value) -> Value:
    """A kernel as the gradient of images reads it: a matrix whose rows are three axes."""
    axes = ops.transpose(ops.flip(x, (0, 1)), (0, 1, 3, 2))
    return ops.reshape(axes, (-1, x.shape[-2])) * 2.0


@pytest.mark.parametrize("shape", [(3, 3, 32, 48), (2, 3, 35, 41)], ids=["whole tiles", "odd"])
def test_flipped_kernels(shape: tuple[int, ...]) -> None:
    one = job(flipped, shape)
    for limits in (TARGETS[HERE[-1]].limits, NARROW):
        [step] = plan_of(one.alone("j"), limits)[0].steps
        assert step.schedule.kind == "transpose"
    agree(one, interpreted(one, NARROW))
    agree(one, Module([one], HERE[-1]).run(0, 2))


@pytest.mark.parametrize(("shape", "abreast"), [((9, 70), 3), ((17, 64), 2), ((5, 39), 4), ((8, 16), 1)])
def test_tiles_abreast_leave_a_rest(shape: tuple[int, int], abreast: int) -> None:
    """Rows of tiles in groups, then single tiles, then rows that fill none."""
    one = job(lambda x: ops.transpose(x) * 2.0, shape)
    limits = TARGETS["avx2"].limits
    [step] = plan_of(one.alone("j"), limits)[0].steps
    text = f"transpose lanes(8) abreast({abreast})"
    agree(one, interpreted(one, limits, schedules={step.key: text}, workers=2))


@pytest.mark.parametrize(("rows", "columns", "abreast"), [
    (255, 72, 1), (256, 72, 2), (63, 64, 1), (64, 64, 4), (256, 64, 2), (4, 1024, 4), (3, 1024, 0)])
def test_tiles_lie_abreast_where_their_lines_would_leave_the_cache(rows: int, columns: int, abreast: int) -> None:
    """Tiles of 8 columns read half lines. The L1 cache keeps half of 512 lines; rows of 64 columns begin in a
    quarter of its sets, those of 1024 columns in one. Short rows of the result take pairs of lines."""
    y = ops.transpose(leaf("input", "x", (rows, columns), f32)) * 2.0
    schedule = plan_of(Graph({"y": y}), TARGETS["avx2"].limits)[0].steps[0].schedule
    assert getattr(schedule, "abreast", 0) == abreast


@pytest.mark.parametrize(("shape", "l2_bytes", "prefetches"), [
    ((17, 70), 4096, 1), ((40, 24), 2048, 2), ((17, 70), 8192, 0)])
def test_far_sources_are_prefetched(shape: tuple[int, int], l2_bytes: int, prefetches: int) -> None:
    """By groups of tiles, and by the single ones behind them; the last tiles have none ahead."""
    one = job(lambda x: ops.transpose(x) * 2.0, shape)
    near = TARGETS["avx2"].limits
    far = replace(near, processor=near.processor._replace(l2_bytes=l2_bytes))
    [step] = plan_of(one.alone("j"), far)[0].steps
    text = "transpose lanes(8) abreast(2)"
    kernel = plan_of(one.alone("j"), far, schedules={step.key: text})[0].steps[0].kernel
    assert sum(i.opcode == "prefetch" for i in kernel.body) == 8 * prefetches
    agree(one, interpreted(one, far, schedules={step.key: text}, workers=2))


def test_axes_that_no_loops_divide() -> None:
    """Rows that begin within an axis of the source are read one by one."""
    one = job(lambda x: ops.reshape(ops.transpose(x), (35, 48))[1:] * 2.0, (40, 42))
    [step] = plan_of(one.alone("j"), TARGETS[HERE[-1]].limits)[0].steps
    assert step.schedule.kind == "elements"
    agree(one, Module([one], HERE[-1]).run(0, 1))
