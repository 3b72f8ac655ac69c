"""Loops on workers: barriers, values that share a buffer, and the memory of a loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.cases.loops import LOOPS, LoopCase, loop_gradient, loop_value
from tests.cases.schedules import MACHINES
from tests.parity import Job, agree, interpreted, plan_of
from ztorch import ops
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.memory import ArenaBuffer
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.barriers import LoopSpan, barriers_before, lone_loops, runs_of
from ztorch.lower.locations import Location


@pytest.mark.parametrize("case", LOOPS, ids=lambda case: case.name)
@pytest.mark.parametrize("make", [loop_gradient, loop_value])  # the hardest first, for the inner loop
def test_workers_may_drift_as_far_as_barriers_let_them(make: Callable[..., Job], case: LoopCase) -> None:
    """Kernels between two barriers run in reverse, with several workers: also across turns."""
    job = make(case, f32)
    agree(job, interpreted(job, MACHINES["avx2"], workers=3, backwards=True), terms=50)


def place(offset: int, stride: int = 0, size: int = 64) -> Location:
    return Location("arena", offset, size, strides=(stride,))


def test_iterations_wait_for_the_previous_one() -> None:
    state, row, kept = place(0), place(64, 64), place(1024, 64)
    once = [LoopSpan(0, 2, 8)]
    other = place(4096)
    # (reads row, writes other), (reads other and state, writes state): other is written again
    # while someone may still read it.
    steps = [[(row, False), (other, True)], [(other, False), (state, False), (state, True)]]
    assert barriers_before(steps, once) == [True, True]
    # Each turn writes a separate row: nothing waits.
    assert barriers_before([[(row, False), (kept, True)]], [LoopSpan(0, 1, 8)]) == [False]
    # A kernel after the loop reads all rows; one before it wrote the operands of the rows.
    around = [[(place(64, size=512), True)], [(row, False), (kept, True)],
              [(place(1024, size=512), False), (place(8192), True)]]
    around = [[(Location(p.space, p.offset, p.size), w) for p, w in around[0]], around[1],
              [(Location(p.space, p.offset, p.size), w) for p, w in around[2]]]
    assert barriers_before(around, [LoopSpan(1, 2, 8)]) == [False, True, True]


def test_parts_of_an_output_do_not_conflict() -> None:
    """Each turn stores its part of an output, or all turns store one."""
    part, whole = (Location("outputs", 1, 64, strides=(n,)) for n in (64, 0))
    for stored, waits in ((part, False), (whole, True)):
        assert barriers_before([[(place(0), False), (stored, True)]], [LoopSpan(0, 1, 8)]) == [waits]
    after = [(Location("outputs", 1, 512), False)]
    assert barriers_before([[(part, True)], after], [LoopSpan(0, 1, 8)]) == [False, True]


def test_all_workers_read_the_loop_condition_before_it_changes() -> None:
    state, flag = place(0), Location("arena", 512, 64)
    loop, turns, after = LoopSpan(0, 1, 8, proceed=flag), place(512), [(flag, True)]
    assert barriers_before([[(state, True)]], [loop]) == [False]  # the barrier before the test is enough
    assert barriers_before([[(turns, True)]], [loop]) == [True]
    # The first worker that leaves the loop writes where the others may still read.
    assert barriers_before([[(state, True)], after], [loop]) == [False, True]
    # Also where the loop has barriers of its own, and in the next turn of an outer loop.
    steps = [[(state, True)], [(state, False), (turns, True)], after]
    assert barriers_before(steps, [replace(loop, end=2)]) == [False, True, True]
    inner = [LoopSpan(0, 2, 4), LoopSpan(1, 2, 8, proceed=place(512))]
    assert barriers_before([[(turns, True)], [(state, True)]], inner) == [True, False]


@pytest.mark.parametrize(("make", "name"), [(loop_gradient, "cond"), (loop_value, "while")])
def test_loops_on_gpus_place_no_barriers_for_their_condition(make: Callable[..., Job],
                                                             name: str) -> None:
    job = make(next(c for c in LOOPS if c.name == name), f32)
    plan = plan_of(job.alone("j"), MACHINES["wide grid"])[0]
    assert not any(loop.proceed for loop in plan.loops)
    agree(job, interpreted(job, MACHINES["wide grid"], backwards=True), terms=50)


def test_loops_inside_one_another_run_in_order() -> None:
    class Step:
        def __init__(self, name: str, *locations: Location):
            self.name, self.locations = name, locations

    steps = [Step("a", Location("arena", 0, 4, strides=(8,))),
             Step("b", Location("arena", 100, 4, strides=(8, -4))), Step("c")]
    order = [(step.name, *(at.offset for at in places)) for step, places in runs_of(
        steps, [LoopSpan(0, 2, 2), LoopSpan(1, 2, 3)], lambda at: True)]
    assert order == [("a", 0), ("b", 100), ("b", 96), ("b", 92), ("a", 8), ("b", 108), ("b", 104),
                     ("b", 100), ("c",)]


def test_one_worker_may_run_loops_whose_kernels_are_short() -> None:
    """But not those of large kernels, without barriers, of few iterations, or inside such a loop."""
    loops = [LoopSpan(0, 2, 50), LoopSpan(1, 2, 9), LoopSpan(2, 3, 50), LoopSpan(3, 4, 50), LoopSpan(4, 5, 3)]
    work = [(1e3, 50, True), (1e3, 450, True), (1e6, 50, True), (1e3, 50, False), (1e3, 3, True)]
    assert [loop.lone for loop in lone_loops(loops, work)] == [True, False, False, False, False]


def recurrent(turns: int, checkpoint: int | None = None) -> Graph:
    x = leaf("input", "x", (turns, 16, 32), "float32")
    u = leaf("input", "u", (32, 32), "float32")
    h = leaf("input", "h", (16, 32), "float32")
    last, _ = ops.scan(lambda s, r: (ops.tanh(ops.sin(r + s @ u) * ops.cos(s)), None), h, x,
                       checkpoint=checkpoint)
    return Graph({"g": gradients(ops.sum(last), [u])[0]})


def test_code_size_is_independent_of_iterations_and_memory_is_not() -> None:
    short, long = (plan_of(recurrent(n), MACHINES["avx2"])[0] for n in (64, 256))
    assert len(short.steps) == len(long.steps) and short.runs is not None
    assert [s.kernel.name for s in short.steps] == [s.kernel.name for s in long.steps]
    row = 16 * 32 * 4
    kept = (long.arena - short.arena) / (192 * row)
    assert kept <= 7, "rows a turn: the input, five values of a turn, the slope"
    segments = plan_of(recurrent(256, checkpoint=16), MACHINES["avx2"])[0]
    assert segments.arena < 0.3 * long.arena


@pytest.mark.parametrize("turns", [100, 200, 300])
def test_training_an_lstm_stores_seven_rows_per_step(turns: int) -> None:
    batch, width = 8, 64
    shapes = {"x": (turns, batch, width), "w": (width, 4 * width), "u": (width, 4 * width)}
    x, w, u = (leaf("input", name, shape, "float32") for name, shape in shapes.items())

    def step(state: tuple[Value, Value], row: Value) -> tuple[tuple[Value, Value], Value]:
        h, c = state
        z = row @ w + h @ u
        i, f, g, o = (z[:, k * width:(k + 1) * width] for k in range(4))
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(c)
        return (h, c), h

    zero = ops.full((batch, width), 0.0)
    _, y = ops.scan(step, (zero, zero), x)
    dw, du = gradients(ops.sum((y - x) ** 2), [w, u])
    plan = plan_of(Graph({"dw": dw, "du": du}), MACHINES["avx2"])[0]
    rows = (plan.arena / 4 - 2 * w.size) / x.size
    assert rows < 7.05, "four gates, two states, the gradient of the output"


def test_a_recomputed_block_needs_less_memory() -> None:
    def plan(again: bool) -> int:
        x = leaf("input", "x", (64, 32), "float32")
        weights = [leaf("input", f"w{k}", (32, 32), "float32") for k in range(12)]
        h: Value = x
        for w in weights:
            def block(h: Value, w: Value = w) -> Value:
                return ops.sin(ops.exp(ops.tanh(h @ w)) * 0.1) + ops.cos(h)
            h = ops.checkpoint(block, h) if again else block(h)
        slopes = gradients(ops.sum(h * h), weights)
        return plan_of(Graph({f"d{k}": g for k, g in enumerate(slopes)}), MACHINES["avx2"])[0].arena

    assert plan(True) < 0.7 * plan(False)


def test_a_branch_not_taken_runs_no_kernel() -> None:
    case = next(c for c in LOOPS if c.name == "cond")
    [x] = case.leaves(f32)
    plan = plan_of(Graph({"y": case.function(x)}), MACHINES["avx2"])[0]
    loops = list(plan.loops)
    assert [loop.trip_count for loop in loops] == [1] * 4 and all(loop.proceed for loop in loops)
    inside = sum(loop.end - loop.first for loop in loops)
    assert len(list(plan.runs(lambda at: False))) == len(plan.steps) - inside
    assert np.all([step.cycles >= 0 for step in plan.steps])


@pytest.mark.parametrize("sign", [1, -1])
def test_a_branch_not_taken_has_no_gradient(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing reads what it would have stored: no buffer is where another one was."""
    def apart(buffers: list[ArenaBuffer]) -> tuple[dict[Any, int], int]:
        ends = list(itertools.accumulate((-(-b.size // b.align) * b.align for b in buffers), initial=0))
        return {b.id: at for b, at in zip(buffers, ends, strict=False)}, ends[-1]

    monkeypatch.setattr("ztorch.lower.placement.place_buffers", apart)
    job = loop_gradient(next(c for c in LOOPS if c.name == "cond"), f32)
    job = Job(job.graph, {v: sign * a for v, a in job.feeds.items()}, job.label)
    agree(job, interpreted(job, MACHINES["avx2"]), terms=50)
