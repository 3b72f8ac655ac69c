"""Rows that threads hold in registers: what is counted, beside what NVIDIA's assembler reports."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cases.grouping import together
from ztorch import ops
from ztorch.codegen.targets import target
from ztorch.compile.pipeline import declare_states, plan_functions
from ztorch.compile.watch import Watch
from ztorch.dtypes import bf16, f32, f64
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import GridLimits
from ztorch.lower.grid.held_rows import sharing_threads
from ztorch.lower.plan import KernelStep
from ztorch.lower.schedule import GridRowSchedule
from ztorch.performance.assembled import assembled_resources

ROWS = 4096


def kernel(f: Callable[[Value], dict[str, Value]], length: int, d: object, chip: str) -> Kernel:
    """The only kernel of a function of rows."""
    made_for, watch = target(f"cuda:{chip}"), Watch()
    functions = {"f": Graph(f(leaf("input", "x", (ROWS, length), d)))}
    plan = plan_functions(functions, made_for, declare_states(functions, made_for), watch)["f"]
    step, = (s for s in plan.steps if isinstance(s, KernelStep))
    return step.kernel


def softmax(x: Value) -> dict[str, Value]:
    return {"y": ops.softmax(x)}


def norm(x: Value) -> dict[str, Value]:
    return {"y": ops.standardize(x)}


def both(x: Value) -> dict[str, Value]:
    """Two values of each element are needed after the sum."""
    return {"y": ops.softmax(x), "log": ops.log_softmax(x)}


GRID = target("cuda:sm_90a").limits.grid


@together()
@pytest.mark.parametrize(("ways", "registers", "threads"), [
    (256, 32, 0), (256, 33, 256), (256, 112, 256), (256, 113, -1), (512, 32, 0), (512, 48, 512), (512, 49, -1),
    (128, 32, 0), (128, 33, -1)])
def test_who_shares_the_registers(ways: int, registers: int, threads: int) -> None:
    assert sharing_threads(GridRowSchedule(1, ways, 1, registers), 1, GRID) == threads


def test_nothing_is_known_of_other_machines() -> None:
    assert [sharing_threads(GridRowSchedule(1, 256, 1, n), 1, GridLimits()) for n in (32, 48, 49)] == [0, 256, -1]


@together()
@pytest.mark.parametrize(("f", "length", "d", "threads", "rest"), [
    (softmax, 2048, f32, 256, 0), (softmax, 16383, f32, 512, 0), (softmax, 24001, f32, 512, 0),
    (softmax, 30522, f32, 512, 5946), (both, 12001, f32, 512, 0), (both, 20001, f32, 512, 7713),
    (softmax, 20001, f64, 512, 7713), (norm, 44001, bf16, 512, 19425), (softmax, 80001, f32, 512, 55425),
    (softmax, 85001, f32, 256, 56329)])
def test_threads_of_a_row(f: Callable, length: int, d: object, threads: int, rest: int) -> None:
    """Registers hold 48 elements of each of 512 threads or 112 of each of 256, shared memory the rest."""
    k = kernel(f, length, d, "sm_90a")
    assert k.workgroup[0] == threads and {m.size for m in k.memories if m.name.startswith("rest")} == {rest} - {0}
    assert rest or "loop" not in {i.opcode for i in k.body if i.attrs.get("kind") not in ("grid", "block")}


def test_a_row_that_a_unit_cannot_hold_is_read_in_each_pass() -> None:
    k = kernel(softmax, 90001, f32, "sm_90a")
    assert not [m for m in k.memories if m.name.startswith("rest")] and k.workgroup[0] == 256


@pytest.mark.parametrize(("f", "length", "d", "chip"), [
    (softmax, 24001, f32, "sm_90a"), (softmax, 30522, f32, "sm_80"), (norm, 44001, bf16, "sm_100"),
    (both, 20001, f32, "sm_90a"), (softmax, 44001, f32, "sm_75")])
def test_assembled(f: Callable, length: int, d: object, chip: str) -> None:
    pytest.importorskip("cuda.bindings.nvjitlink", reason="needs nvJitLink: pip install 'ztorch[cuda]'")
    k = kernel(f, length, d, chip)
    used = assembled_resources({0: k}, target(f"cuda:{chip}"))[0]
    assert used.spilled == 0 and used.registers > 48
