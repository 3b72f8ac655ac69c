"""Regions that are alike share one kernel, and nothing else does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.parity import HERE, NARROW, SCALAR, WIDE, Job, Module, agree, interpreted, plan_of
from ztorch import layers as L
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import f32
from ztorch.graph.body import Body, slice_leaf
from ztorch.graph.loop import repeat
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.host.settings import using
from ztorch.ops.formulas import formula

ROWS, COLUMNS = 6, 40


def job(make: Any) -> Job:
    x, w = leaf("input", "x", (ROWS, COLUMNS), f32), leaf("input", "w", (COLUMNS, COLUMNS), f32)
    rng = np.random.default_rng(2)
    feeds = {v: rng.normal(size=v.shape).astype(np.float32) for v in (x, w)}
    return Job(Graph(make(x, w)), feeds)


def bodies(one: Job, limits: Any = NARROW) -> list[int]:
    steps = plan_of(one.alone("j"), limits)[0].steps
    return [id(s.kernel.body) for s in steps]


def hidden(x: Value, w: Value) -> Value:
    """Something in the arena to read from: the product keeps it from being fused away."""
    return ops.matmul(x, w)


def repeated(x: Value, w: Value) -> dict[str, Value]:
    for _ in range(4):
        x = ops.tanh(ops.matmul(x, w))
    return {"y": x}


def windows(x: Value, w: Value) -> dict[str, Value]:
    """The same work at increasing offsets of one buffer, as in an unrolled recurrent layer."""
    h = hidden(x, w)
    u = ops.slice(w, (0, 0), (1, 1), (8, 8))
    state = ops.slice(x, (0, 0), (1, 1), (ROWS, 8))
    for k in range(5):
        part = ops.slice(h, (0, 8 * k), (1, 1), (ROWS, 8))
        state = ops.tanh(ops.matmul(state, u) + part)
    return {"y": state}


def backwards(x: Value, w: Value) -> dict[str, Value]:
    """Reads that go down: their constant is not where they begin."""
    h = hidden(x, w)
    parts = [ops.softmax(ops.flip(ops.slice(h, (0, k), (1, 1), (ROWS, 9)), 1), axis=-1)
             for k in (0, 3, 7)]
    return {f"y{k}": p for k, p in enumerate(parts)}


def padded(x: Value, w: Value) -> dict[str, Value]:
    """Reads under a mask may be out of bounds."""
    h = hidden(x, w)
    return {f"y{k}": ops.softmax(ops.pad(h, (0, k), (0, 4 - k)), axis=-1) for k in (1, 2, 3)}


def strided(x: Value, w: Value) -> dict[str, Value]:
    h = hidden(x, w)
    return {f"y{k}": ops.softmax(ops.slice(h, (0, k), (1, 3), (ROWS, 10)), axis=-1)
            for k in (0, 1, 5)}


def beside(x: Value, w: Value) -> dict[str, Value]:
    """Two reads of one buffer, the second of which ends later."""
    h = hidden(x, w)
    parts = [[ops.slice(h, (0, k + s), (1, 1), (ROWS, 9)) for s in (0, 1)] for k in (1, 8, 17)]
    return {f"y{k}": ops.softmax(a * b) for k, (a, b) in enumerate(parts)}


def looked_up(x: Value, w: Value) -> dict[str, Value]:
    """Rows that only running tells."""
    which = ops.cast(ops.reshape(ops.slice(x, (0, 0), (1, 1), (ROWS, 1)), (ROWS,)), "int32")
    for _ in range(4):
        x = ops.matmul(ops.take(x, which, 0), w)
    return {"y": x}


MAKERS = (repeated, windows, backwards, padded, strided, beside, looked_up)


@pytest.mark.parametrize("limits", [NARROW, SCALAR, WIDE], ids=["narrow", "scalar", "wide"])
def test_sharing_changes_nothing(limits: Any) -> None:
    for make in MAKERS:
        one = job(make)
        agree(one, interpreted(one, limits), terms=COLUMNS * 4)


def test_repeated_layers_share_a_kernel() -> None:
    first, *rest = bodies(job(repeated))
    assert len(set(rest[:-1])) == 1  # from and to the arena; the ends are inputs and outputs
    assert first not in rest


def test_the_same_work_further_along_shares_a_kernel() -> None:
    _, *steps = bodies(job(windows))
    assert len(set(steps[1:-1])) == 1


def test_rows_looked_up_alike_share_a_kernel() -> None:
    """Whether they do depends on the work alone, not on where objects happen to lie."""
    steps = plan_of(job(looked_up).alone("j"), NARROW)[0].steps
    takes = [id(s.kernel.body) for s in steps if "take" in s.kernel.name]
    assert len(takes) == 4 and len(set(takes[1:])) == 1  # the first reads the input


def test_different_positions_do_not() -> None:
    """Under a mask, or where a read goes down from its constant."""
    for make in (padded, backwards):
        _, *steps = bodies(job(make))
        assert len(set(steps)) == 3


@pytest.mark.slow
def test_a_long_recurrent_layer_has_few_kernels() -> None:
    def kernels(length: int) -> tuple[int, int]:
        model = zt.Sequential([L.Input((length, 5)), L.LSTM(7), L.Dense(3)])
        traced = model.trace(4, "sgd", "mse")
        made = compile_functions(traced.functions, TARGETS["avx2"], "rnn")
        return made.text.count("define internal void @k"), len(made.code)

    few, small = kernels(6)
    many, large = kernels(18)
    assert many <= few + 2
    assert large < 2 * small


def test_parts_that_end_elsewhere_do_not() -> None:
    """One column replaced by another: what is read around it, and where, says nothing of the place of it."""
    def with_column(x: Value, w: Value, k: int) -> Value:
        return ops.concat(x[:, :k], ops.tanh(w[:ROWS, :1]), x[:, k + 1:], axis=1)

    j = job(lambda x, w: {f"y{k}": with_column(x, w, k) for k in (2, 5, 9)})
    agree(j, interpreted(j, SCALAR))


def test_ops_of_one_name_do_not() -> None:
    """Formulas of somebody else, in one program."""
    twice = formula("scaled", lambda b, x: b.mul(x, 2.0), lambda x: x * 2, 1)
    thrice = formula("scaled", lambda b, x: b.mul(x, 3.0), lambda x: x * 3, 1)
    for make in (lambda x, w: {"y": twice(x), "z": thrice(x)},
                 lambda x, w: {"y": thrice(twice(x)), "z": twice(thrice(x)), "v": thrice(twice(twice(x)))}):
        j = job(make)
        agree(j, interpreted(j, NARROW))


@pytest.mark.parametrize("target", ["scalar", HERE[-1]])
def test_ops_of_one_name_share_no_derived_state(target: str) -> None:
    """Values of weights alone, which a program that predicts computes when it is loaded."""
    twice = formula("scaled", lambda b, x: b.mul(x, 2.0), lambda x: x * 2, 1)
    thrice = formula("scaled", lambda b, x: b.mul(x, 3.0), lambda x: x * 3, 1)
    x, w = leaf("input", "x", (2, 3), f32), leaf("state", "w", (3, 4), f32, np.ones((3, 4), np.float32))
    one = Job(Graph({"y": ops.matmul(x, twice(w)), "z": ops.matmul(x, thrice(w))}),
              {x: np.ones((2, 3), np.float32), w: np.ones((3, 4), np.float32)})
    module = Module([one], target)
    assert sum(s.role == "derived" for s in module.compiled.spec.states.values()) == 2
    for result, number in zip(module.run(0), (6, 9), strict=True):
        np.testing.assert_array_equal(result, np.full((2, 4), number))


def test_a_schedule_does_not_depend_on_other_functions_of_a_program() -> None:
    """Tiles in a loop whose iterations multiply by one matrix differ from those of a product by itself."""
    x, w, xs = (leaf("input", name, shape, f32) for name, shape in (
        ("x", (64, 64)), ("w", (64, 64)), ("xs", (5, 64, 64))))
    once = Graph({"y": ops.matmul(x, w)})
    rows = slice_leaf(xs, 0)
    body = Body(5, False, (), (rows,), (), (), (ops.matmul(rows, w),))
    often = Graph({"y": repeat(body, [], [xs], ahead=False)[1][0]})

    def schedules(**functions: Graph) -> dict[str, Any]:
        with using(cache=None):
            plans = compile_functions(functions, TARGETS["avx512"], "both").plans
        return {name: [s.schedule for s in plan.steps] for name, plan in plans.items()}

    alone = {**schedules(once=once), **schedules(often=often)}
    assert alone["once"] != alone["often"]
    assert schedules(once=once, often=often) == schedules(often=often, once=once) == alone
