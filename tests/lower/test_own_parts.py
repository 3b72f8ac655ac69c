"""Workers that go on with their own rows of a batch, and do not meet inside of loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cases.schedules import MACHINES
from tests.parity import Job, agree, interpreted, plan_of
from tests.workers_apart import run_apart, skipped_inside
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.builder import Builder
from ztorch.lower.barriers import BufferAccess, LoopSpan, barriers_before
from ztorch.lower.locations import Location
from ztorch.lower.own_parts import own_parts
from ztorch.lower.passes import share_out
from ztorch.machines.processors import processor

ZEN4 = replace(TARGETS["avx512"].limits, processor=processor("zen4"))


def _own(offset: int, stride: int, size: int = 64, own: bool = True, writes: bool = True) -> BufferAccess:
    return BufferAccess(Location("arena", offset, size, strides=(stride,)), writes, own)


@pytest.mark.cheap
@pytest.mark.parametrize(("first", "second", "meets"), [
    (_own(0, 0), _own(0, 0, writes=False), False),
    (_own(0, 0), _own(0, 0, own=False, writes=False), True),
    (_own(0, 0, 128), _own(0, 0, writes=False), True),  # their parts are other bytes
    (_own(0, 64), _own(64, 64, writes=False), False),  # the state before and after an iteration
    (_own(0, 64), _own(32, 64, writes=False), True),
    (_own(0, 32), _own(0, 32, writes=False), True),  # parts of two iterations overlap
    (_own(0, 64), _own(256, 64, own=False, writes=False), True),  # some iterations later
    (_own(0, 64), _own(4096, 64, own=False, writes=False), False)])
def test_workers_meet_unless_both_kernels_keep_to_their_parts(first: BufferAccess, second: BufferAccess,
                                                              meets: bool) -> None:
    barriers = barriers_before([[first], [second]], [LoopSpan(0, 2, 8)], True)
    assert any(barriers) is meets


def test_workers_meet_where_a_loop_begins() -> None:
    """So what was before needs no barrier in each iteration; what follows has one."""
    whole = BufferAccess(Location("arena", 0, 64), True)
    steps = [[whole], [_own(0, 0)], [whole]]
    assert barriers_before(steps, [LoopSpan(1, 2, 8)], True) == [False, False, True]


@pytest.mark.parametrize(("trip_count", "own"), [(64, {"x", "y"}), (16, {"x", "y"}), (10, set())])
def test_parts_are_equal_and_in_order(trip_count: int, own: set[str]) -> None:
    """Ten iterations of some elements each cannot be four equal parts."""
    b = Builder("k")
    x, y = b.memory("x", f32, 640), b.memory("y", f32, 640, access="w")
    step = 640 // trip_count
    with b.loop(0, trip_count, kind="parallel") as i, b.loop(0, step, 2) as j:
        at = b.add(b.mul(i, step), j)
        b.store(y, at, b.load(x, at, lanes=2))
    assert own_parts(share_out(b.kernel()), 4) == own


def test_a_part_that_others_read_is_nobodys_own() -> None:
    b = Builder("k")
    x, y = b.memory("x", f32, 65), b.memory("y", f32, 64, access="w")
    with b.loop(0, 64, kind="parallel") as i:
        b.store(y, i, b.add(b.load(x, i), b.load(x, i, 1)))
    assert own_parts(share_out(b.kernel()), 2) == {"y"}


def _recurrent(rows: int, width: int, flipped: bool = False, train: bool = False) -> Job:
    random = np.random.default_rng(7)
    h, u, xs = (leaf("input", name, shape, "float32") for name, shape in (
        ("h", (rows, width)), ("u", (width, width)), ("xs", (6, rows, width))))

    def step(h: Value, x: Value) -> tuple[Value, None]:
        before = ops.flip(h, axis=0) if flipped else h
        h = ops.tanh(ops.matmul(before, u) + x)
        return ops.sin(h * 2.0) * ops.cos(h), None

    last, _ = ops.scan(step, h, xs)
    results = {"y": last}
    if train:
        results["g"], results["gu"] = gradients(ops.sum(last), [h, u])
    return Job(Graph(results), {v: random.uniform(-0.5, 0.5, v.shape).astype(np.float32)
                                for v in (h, u, xs)})


@pytest.mark.parametrize("train", [False, True], ids=["predict", "train"])
@pytest.mark.parametrize("rows", [16, 24])
def test_a_worker_may_be_any_number_of_iterations_ahead(rows: int, train: bool) -> None:
    """Each worker runs whole loops before another one begins."""
    job = _recurrent(rows, 32, train=train)
    plan = plan_of(job.alone("j"), ZEN4)[0]
    assert plan.apart > 1 and any(skipped_inside(plan))
    agree(job, run_apart(job, ZEN4), terms=50)
    agree(job, interpreted(job, ZEN4, workers=plan.apart, backwards=True), terms=50)


def test_workers_that_read_one_anothers_rows_meet() -> None:
    plan = plan_of(_recurrent(16, 32, flipped=True).alone("j"), ZEN4)[0]
    assert not any(skipped_inside(plan))


def test_grids_have_no_workers() -> None:
    plan = plan_of(_recurrent(16, 32).alone("j"), MACHINES["wide grid"])[0]
    assert plan.apart == 1 and not any(step.skipped for step in plan.steps)
