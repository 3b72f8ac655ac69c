"""Small kernels of a wave share a launch: workgroups are divided among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.machines.ptx.running import through_ptx
from tests.parity import Job, agree, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, f16, f32, i32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import Limits
from ztorch.ir.verify import verify
from ztorch.lower.barriers import LoopSpan
from ztorch.lower.joined_kernel import grid_loop, joined
from ztorch.lower.joined_launches import with_joined_launches
from ztorch.lower.locations import Location
from ztorch.lower.plan import Plan
from ztorch.lower.region_kernel import KernelStep
from ztorch.lower.schedule import GridElementSchedule

SM_90 = TARGETS["cuda:sm_90a"].limits
RNG = np.random.default_rng(11)


def value(name: str, *shape: int, dtype: DType = f32) -> Value:
    return leaf("input", name, shape, dtype)


def job(outputs: dict[str, Value]) -> Job:
    return Job(Graph(outputs), {v: RNG.normal(size=v.shape).astype(np.float32)
                                for v in Graph(outputs).leaves("input")})


def plan(one: Job, limits: Limits = SM_90) -> Plan:
    return plan_of(one.alone("j"), limits)[0]


def sums_of_rows(name: str, rows: int, ways: int, dtype: DType = f32) -> Kernel:
    """A workgroup for each row, which adds its elements in shared memory between barriers."""
    b = Builder(name, i32)
    b.memory("x", dtype, rows * ways), b.memory("y", dtype, rows, access="w")
    b.memory("parts", dtype, ways, space="shared", access="rw")
    b.workgroup = (ways, 1, 1)
    with b.loop(0, rows, kind="grid") as g, b.loop(0, ways, kind="block") as t:
        b.store("parts", t, b.load("x", b.add(b.mul(g, ways), t)))
        b.barrier()
        distance = ways // 2
        while distance:
            with b.if_(b.lt(t, distance)):
                b.store("parts", t, b.add(b.load("parts", t), b.load("parts", b.add(t, distance))))
            b.barrier()
            distance //= 2
        with b.if_(b.eq(t, 0)):
            b.store("y", g, b.load("parts", 0))
    return b.kernel()


@pytest.mark.parametrize("rows", [(1, 1), (5, 2), (3, 1, 4, 2, 7)], ids=str)
def test_each_workgroup_runs_its_part(rows: tuple[int, ...]) -> None:
    """Barriers are right, because a workgroup takes one branch; memory is that of one part."""
    parts = [sums_of_rows(f"part_{k}", n, 8) for k, n in enumerate(rows)]
    whole = joined(parts, [{"x": f"x{k}", "y": f"y{k}"} for k in range(len(rows))])
    verify(whole)
    assert [m.size for m in whole.memories if m.space == "shared"] == [8]
    assert whole.workgroup == (8, 1, 1)
    buffers = {f"x{k}": RNG.normal(size=n * 8).astype(np.float32) for k, n in enumerate(rows)}
    buffers |= {f"y{k}": np.zeros(n, np.float32) for k, n in enumerate(rows)}
    interpret(whole, buffers)
    for k, n in enumerate(rows):
        alone = np.zeros(n, np.float32)
        interpret(parts[k], {"x": buffers[f"x{k}"], "y": alone})
        np.testing.assert_array_equal(buffers[f"y{k}"], alone)
        np.testing.assert_allclose(alone, buffers[f"x{k}"].reshape(n, 8).sum(1, dtype=float), 1e-5)


def test_parts_share_the_buffers_that_they_read() -> None:
    parts = [sums_of_rows(f"part_{k}", 3, 4) for k in range(2)]
    whole = joined(parts, [{"x": "x", "y": "y0"}, {"x": "x", "y": "y1"}])
    assert [m.name for m in whole.memories if m.space == "global"] == ["x", "y0", "y1"]
    x = RNG.normal(size=12).astype(np.float32)
    y0, y1 = np.zeros((2, 3), np.float32)
    interpret(whole, {"x": x, "y0": y0, "y1": y1})
    np.testing.assert_array_equal(y0, y1)
    np.testing.assert_allclose(y0, x.reshape(3, 4).sum(1), 1e-5)


def test_arrays_of_other_dtypes_are_apart() -> None:
    parts = [sums_of_rows("one", 2, 4), sums_of_rows("two", 2, 4, i32)]
    whole = joined(parts, [{"x": "x0", "y": "y0"}, {"x": "x1", "y": "y1"}])
    assert sorted(m.dtype.name for m in whole.memories if m.space == "shared") == ["f32", "i32"]


def test_kernels_without_a_loop_along_x_are_no_parts() -> None:
    b = Builder("k", i32)
    with b.loop(0, 2, kind="grid", axis=1):
        pass
    assert grid_loop(b.kernel()) is None
    assert grid_loop(Builder("empty", i32).kernel()) is None
    assert grid_loop(sums_of_rows("k", 3, 4)) is not None


X, Y, M = value("x", 16, 12), value("y", 7, 9), value("m", 12, 8)
WAVE = {"product": ops.matmul(X, M), "rows": ops.sum(Y, 1), "columns": ops.sum(X, 0),
        "all": ops.sum(X * 2.0), "elements": ops.exp(Y), "turned": ops.transpose(X) * 3.0}


@pytest.mark.parametrize("target", ["cuda:sm_90a", "rocm:gfx1100", "metal", "opencl", "webgpu",
                                    "vulkan", "cuda:sm_75"])
def test_a_wave_is_one_launch(target: str) -> None:
    """Same bits as with a launch for each, in any order of kernels between barriers."""
    limits, one = TARGETS[target].limits, job(WAVE)
    whole = plan(one, limits)
    assert limits.grid is not None
    parts = [part.kernel.name for s in whole.steps for part in s.parts]
    assert len(parts) == len(set(parts)) >= 5
    assert len(whole.steps) == (1 if limits.grid.max_buffers > 8 else 2), [
        s.kernel.name for s in whole.steps]
    for s in whole.steps:
        assert len(s.locations) == len(set(s.locations)) <= limits.grid.max_buffers
    results = interpreted(one, limits)
    agree(one, results, terms=200)
    for result, backwards in zip(results, interpreted(one, limits, backwards=True), strict=True):
        np.testing.assert_array_equal(result, backwards)


def apart(limits: Limits) -> Limits:
    """The limits of a machine on which each kernel has its own launch."""
    assert limits.grid is not None
    return replace(limits, grid=replace(limits.grid, skips_branches=False))


def test_results_have_the_bits_of_separate_launches() -> None:
    one = job(WAVE)
    assert len(plan(one, apart(SM_90)).steps) >= 5
    for a, b in zip(interpreted(one, SM_90), interpreted(one, apart(SM_90)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("chip", ["sm_75", "sm_90a"])
def test_through_ptx(chip: str) -> None:
    """A chip's threads meet at the barriers of their part."""
    exact = {name: v for name, v in WAVE.items() if name != "elements"}
    [step] = plan(job(exact), TARGETS[f"cuda:{chip}"].limits).steps
    assert "barrier" in step.kernel.opcodes() and len(step.parts) >= 4
    start = {m.name: RNG.normal(size=m.size).astype(np.float32) for m in step.kernel.memories
             if m.space == "global"}
    results = {name: a.copy() for name, a in start.items()}
    through_ptx(step.kernel, results, chip)
    interpret(step.kernel, start, subgroup=32)
    for name, a in start.items():
        np.testing.assert_array_equal(results[name], a)


def test_products_of_matrix_instructions_are_parts() -> None:
    """Subgroups multiply fragments beside workgroups that add rows; whole numbers are exact."""
    rng = np.random.default_rng(3)
    a, b = value("a", 32, 64, dtype=f16), value("b", 64, 48, dtype=f16)
    feeds = {v: rng.integers(-2, 3, v.shape).astype(np.float32) for v in (a, b, X)}
    one = Job(Graph({"product": ops.matmul(a, b), "rows": ops.sum(X, 1)}), feeds)
    limits = TARGETS["cuda:sm_80"].limits
    [step] = plan(one, limits).steps
    assert [part.schedule and part.schedule.kind for part in step.parts] == ["grid_matrix", "grid_rows"]
    for result, want in zip(interpreted(one, limits), one.oracle(), strict=True):
        np.testing.assert_array_equal(result.reshape(want.shape), want)
    buffers = {m.name: rng.integers(-2, 3, m.size).astype(m.dtype.numpy)
               for m in step.kernel.memories if m.space == "global"}
    results = {name: a.copy() for name, a in buffers.items()}
    through_ptx(step.kernel, results, "sm_80")
    interpret(step.kernel, buffers, subgroup=32)
    for name, array in buffers.items():
        np.testing.assert_array_equal(results[name], array)


def test_one_launch_updates_all_weights() -> None:
    """Adam on weights of many sizes; the count of steps is a launch before them."""
    rng, feeds, updates = np.random.default_rng(5), dict[Value, np.ndarray](), dict[str, Value]()
    count = value("count")
    rate = 1.0 / ops.sqrt(count + 1.0)
    for k, size in enumerate((7, 30, 300, 2048, 40_000)):
        w, m = (leaf("state", f"{n}{k}", (size,), f32) for n in "wm")
        g = value(f"g{k}", size)
        new = m * 0.9 + g * 0.1
        updates |= {f"m{k}": new, f"w{k}": w - rate * new / (ops.abs(new) + 1e-3)}
        feeds |= {v: rng.normal(size=size).astype(np.float32) for v in (w, m, g)}
    one = Job(Graph({}, updates), {**feeds, count: np.float32(3)})
    *before, last = plan(one).steps
    assert len(last.parts) == 5 and len(before) <= 1
    assert last.barrier
    agree(one, interpreted(one, SM_90), terms=20)


def test_a_schedule_of_a_part_is_followed() -> None:
    """Its workgroups have the size that it says, so it keeps a launch of its own."""
    one = job({"a": ops.exp(X), "b": ops.sum(Y, 1)})
    [whole] = plan(one).steps
    elements, rows = whole.parts
    schedules = {elements.key: "grid_elements threads(16) width(1)"}
    steps = plan_of(one.alone("j"), SM_90, schedules=schedules)[0].steps
    assert [s.kernel.workgroup[0] for s in steps] != [256, 256] and 16 in [
        s.kernel.workgroup[0] for s in steps]
    assert {part.key for s in steps for part in s.parts} == {elements.key, rows.key}
    agree(one, interpreted(one, SM_90, schedules=schedules), terms=20)


def test_later_waves_wait() -> None:
    one = job({"a": ops.softmax(X) * ops.sum(X), "b": ops.exp(Y) - ops.sum(Y, 0)})
    whole = plan(one)
    assert [s.barrier for s in whole.steps] == [k > 0 for k in range(len(whole.steps))]
    agree(one, interpreted(one, SM_90), terms=200)


def test_a_machine_with_few_buffers_joins_fewer() -> None:
    assert SM_90.grid is not None
    one = job({f"y{k}": ops.exp(value(f"x{k}", 3 + k)) for k in range(6)})
    for most, launches in ((256, 1), (8, 2), (6, 2), (4, 3), (3, 6)):
        limits = replace(SM_90, grid=replace(SM_90.grid, max_buffers=most))
        assert len(plan(one, limits).steps) == launches
        agree(one, interpreted(one, limits))


def test_large_kernels_are_joined_if_all_are_elementwise() -> None:
    """Large rows keep the registers and the shared memory of a compute unit for themselves."""
    large, small = value("large", 4096, 256), value("small", 2048, 512)
    graph = Graph({"a": ops.exp(large), "b": ops.tanh(small), "c": ops.sum(large, 1),
                   "d": ops.sum(small, 1), "e": ops.sum(Y, 1)})
    kinds = [[part.schedule.kind for part in s.parts] for s in plan_of(graph, SM_90)[0].steps]
    assert sorted(kinds) == [["grid_elements", "grid_elements"], ["grid_rows"], ["grid_rows"],
                             ["grid_rows"]]


def test_loops_join_the_kernels_of_an_iteration() -> None:
    """Spans of loops count launches; kernels before and after a loop are not joined with it."""
    xs, h = value("xs", 4, 6, 5), value("h", 6, 5)

    def step(states: tuple[Value, Value], x: Value) -> tuple[tuple[Value, Value], Value]:
        a, b = states
        return (ops.sin(a @ ops.transpose(x))[:, :5] + x, ops.cos(ops.sum(b, 0) + x)), a

    (a, b), rows = ops.scan(step, (h, h * 0.5), xs)
    one = job({"a": a, "b": b, "rows": rows, "c": ops.sum(h, 1), "d": ops.exp(xs)})
    whole = plan(one)
    [loop] = whole.loops
    assert any(s.joined for s in whole.steps[loop.first:loop.end])
    assert whole.steps[loop.first].barrier
    agree(one, interpreted(one, SM_90), terms=100)
    agree(one, interpreted(one, SM_90, backwards=True), terms=100)


def element_step(name: str, read: Location, write: Location) -> KernelStep:
    """A kernel that doubles elements of the arena."""
    b, count = Builder(name, i32), write.size // f32.bytes
    b.memory("x", f32, read.size // f32.bytes), b.memory("y", f32, count, access="w")
    b.workgroup = (4, 1, 1)
    with b.loop(0, count // 4, kind="grid") as g, b.loop(0, 4, kind="block") as t:
        at = b.add(b.mul(g, 4), t)
        b.store("y", at, b.mul(b.load("x", at), 2.0))
    return KernelStep(b.kernel(), (read, write), (False, True), 1.0,
                      schedule=GridElementSchedule(4, 1))


def arena(start: int, size: int) -> Location:
    return Location("arena", start, size)


@pytest.mark.parametrize(("reads", "launches"), [
    ((arena(0, 64), arena(0, 64)), 1), ((arena(0, 64), arena(0, 32)), 2),
    ((arena(0, 64), arena(64, 64)), 1), ((arena(0, 64), arena(32, 64)), 2)], ids=str)
def test_buffers_are_shared_whole_or_not_at_all(reads: tuple[Location, Location],
                                                launches: int) -> None:
    """Not every driver binds overlapping parts of its memory to one kernel."""
    steps = [element_step(f"k{k}", read, arena(256 * (k + 1), 32)) for k, read in enumerate(reads)]
    result, _ = with_joined_launches(steps, [], SM_90)
    assert len(result) == launches
    bound = {*reads, *(s.locations[-1] for s in steps)} if launches == 1 else {*steps[0].locations}
    assert {*result[0].locations} == bound and len(result[0].locations) == len(bound)
    assert [p.kernel.name for s in result for p in s.parts] == ["k0", "k1"]


def test_a_barrier_is_before_the_launch_that_its_kernel_is_in() -> None:
    steps = [element_step(f"k{k}", arena(0, 64), arena(256 * (k + 1), 32)) for k in range(5)]
    steps = [replace(s, barrier=k in (2, 3)) for k, s in enumerate(steps)]
    loops = [LoopSpan(1, 5, 3)]  # the first kernel runs once
    result, [loop] = with_joined_launches(steps, loops, SM_90)
    assert [[p.kernel.name for p in s.parts] for s in result] == [["k0"], ["k1"], ["k2"], ["k3", "k4"]]
    assert [s.barrier for s in result] == [False, False, True, True]
    assert (loop.first, loop.end) == (1, 4)
