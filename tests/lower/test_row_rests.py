"""Rows longer than what registers hold: the rest stays in shared memory between passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cases.grid import job
from tests.machines.ptx.parse import parse
from tests.machines.ptx.running import rendered, run
from tests.parity import Job, agree, buffers_of, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f16, f32, f64, from_storage
from ztorch.graph.value import Value
from ztorch.lower.fuse import fuse
from ztorch.lower.grid.held_rows import handed_values
from ztorch.lower.grid.row_rests import arrays
from ztorch.lower.plan import KernelStep
from ztorch.lower.region import Region
from ztorch.lower.rewrites.prepare import prepare
from ztorch.lower.schedule import IllegalSchedule

SM_80 = TARGETS["cuda:sm_80"].on_device({"compute_units": 2}).limits
HELD = "grid_rows team(rows=1, ways={}) width(1) turns(held={})"


def both(x: Value) -> Value:
    """Exponentials and logarithms: two values of each element are needed after the sum."""
    return ops.softmax(x) + ops.log_softmax(x) * 0.25


def framed(x: Value) -> Value:
    """Of rows with a border: elements are read under a condition."""
    return ops.softmax(ops.pad(x, (0, 3), (0, 5)))


CASES = {
    "softmax": (ops.softmax, ((3, 200),), f32),
    "two values": (both, ((3, 201),), f32),
    "two sums": (lambda x: ops.standardize(x), ((2, 130),), f32),
    "halves": (ops.softmax, ((2, 150),), f16),
    "doubles": (both, ((2, 99),), f64),
    "a border": (framed, ((2, 120),), f32),
    "beside a row": (lambda x, y: ops.softmax(x * y) * y, ((2, 140), (140,)), f32),
}


def step_of(one: Job, schedule: str) -> KernelStep:
    [usual] = plan_of(one.alone("j"), SM_80)[0].steps
    [step] = plan_of(one.alone("j"), SM_80, schedules={usual.key: schedule})[0].steps
    return step


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    """In the interpreter, which finds races, and the same bits in PTX."""
    make, shapes, d = CASES[name]
    one = job(make, *shapes, d=d)
    for ways, turns in ((32, 1), (32, 3), (64, 1)):
        step = step_of(one, HELD.format(ways, turns))
        got = interpreted(one, SM_80, schedules={step.key: step.schedule})
        agree(one, got, terms=100)
    held, out = buffers_of(step, one)
    run(step.kernel, held, parse(rendered([step.kernel], "sm_80")))
    agree(one, [from_storage(d, held[out]).reshape(one.graph.roots[0].shape)], got, terms=8)


def test_each_element_is_read_once() -> None:
    """Three turns are held, the fourth to seventh stay in shared memory: exponentials replace
    what they are computed from."""
    step = step_of(job(ops.softmax, (3, 200)), HELD.format(32, 3))
    loads = [i for i in step.kernel.body if i.opcode == "load" and i.attrs["mem"] == "m0"]
    assert len(loads) == 3 + 1 + 1  # one in the loop of the rest, and the last turn
    [rest] = [m for m in step.kernel.memories if m.name.startswith("rest")]
    assert (rest.name, rest.size, rest.dtype, rest.space) == ("rest0", 104, f32, "shared")


def test_values_share_an_array_when_one_replaces_the_other() -> None:
    def region(make: object, d: object) -> Region:
        return fuse(prepare(job(make, (4, 64), d=d).graph, SM_80), SM_80)[0]

    shared = [arrays(handed_values(region(f, f32))) for f in (ops.softmax, both)]
    assert [[len(users) for users in a] for a in shared] == [[2], [2, 1]]


@pytest.mark.parametrize(("schedule", "why"), [
    (HELD.format(32, 8), r"turns\(held=8\) must be 1 to 7"),
    ("grid_rows team(rows=2, ways=32) width(1) turns(held=2)", "leaves a rest of 5 turns"),
    ("grid_rows team(rows=1, ways=32) width(4) turns(held=1)", "leaves a rest of 1 turns")])
def test_refusals(schedule: str, why: str) -> None:
    one = job(ops.softmax, (4, 200))
    with pytest.raises(IllegalSchedule, match=why):
        step_of(one, schedule)


def test_a_rest_that_shared_memory_cannot_hold_is_refused() -> None:
    one = job(ops.softmax, (4, 200))
    limits = replace(SM_80, grid=replace(SM_80.grid, shared_bytes=500))
    [step] = plan_of(one.alone("j"), limits)[0].steps
    with pytest.raises(IllegalSchedule, match="share 544 bytes of 500"):
        plan_of(one.alone("j"), limits, schedules={step.key: HELD.format(32, 3)})
