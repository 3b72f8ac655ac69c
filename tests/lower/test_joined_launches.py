"""Small regions with the same loops that can run at the same time are one kernel where kernels run in parallel."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import SCALAR, Job, agree, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value

SM_90 = TARGETS["cuda:sm_90a"].on_device({"launch_barriers": False}).limits  # without chains
X, Y = leaf("input", "x", (6, 5), f32), leaf("input", "y", (6, 5), f32)
COUNTER = leaf("state", "counter", (), f32)
RNG = np.random.default_rng(5)
FEEDS = {X: RNG.normal(size=(6, 5)).astype(np.float32), Y: RNG.normal(size=(6, 5)).astype(np.float32)}


def kernels(graph: Graph, limits: object = SM_90) -> int:
    return len(plan_of(graph, limits)[0].parts)


def job(outputs: dict[str, Value], updates: dict[str, Value] | None = None) -> Job:
    inputs = {v.attrs["name"] for v in Graph(outputs, updates or {}).leaves("input")}
    feeds = {v: a for v, a in FEEDS.items() if v.attrs["name"] in inputs}
    return Job(Graph(outputs, updates or {}), feeds | ({COUNTER: np.float32(3)} if updates else {}))


@pytest.mark.parametrize(("outputs", "count"), [
    ({"a": ops.sum(X), "b": ops.sum(Y * 2.0)}, 1),
    ({"a": ops.sum(X, 0), "b": ops.sum(Y, 1)}, 2),  # other loops
    ({"a": ops.exp(X), "b": ops.tanh(Y)}, 1),
    ({"a": ops.exp(X), "b": ops.sum(Y)}, 2),
    ({"a": ops.exp(X), "b": ops.transpose(Y) * 2.0}, 2)],  # other shapes
    ids=["sums", "other axes", "elements", "kinds", "shapes"])
def test_independent_values(outputs: dict[str, Value], count: int) -> None:
    one = job(outputs)
    assert kernels(one.alone("j")) == count and kernels(one.alone("j"), SCALAR) == 2
    agree(one, interpreted(one, SM_90), terms=30)


def test_one_that_runs_later_keeps_its_launch() -> None:
    """The sum of a sum's elements is no wave earlier or later for the other sum beside it."""
    one = job({"a": ops.sum(ops.softmax(X) * ops.sum(X)), "b": ops.sum(Y)})
    agree(one, interpreted(one, SM_90), terms=30)
    waves = [bool(s.barrier) for s in plan_of(one.alone("j"), SM_90)[0].steps]
    assert sum(waves) == sum(bool(s.barrier) for s in plan_of(Graph({"a": one.graph.outputs["a"]}), SM_90)[0].steps)


def test_a_counter_is_read_and_counted_in_one_kernel() -> None:
    one = job({"rate": 1.0 / (COUNTER + 1.0)}, {"counter": COUNTER + 2.0})
    assert kernels(one.alone("j")) == 1
    agree(one, interpreted(one, SM_90))


def test_a_counter_that_others_read_is_counted_after_them() -> None:
    """The last kernel needs the rate, which therefore must not wait for the counter."""
    rate = 1.0 / (COUNTER + 1.0)
    one = job({"y": ops.sum(X * rate) * COUNTER + ops.sum(Y, (0, 1)), "rate": rate}, {"counter": COUNTER + 2.0})
    agree(one, interpreted(one, SM_90), terms=30)
    agree(one, interpreted(one, SM_90, backwards=True), terms=30)


def test_elements_of_a_state_that_another_overwrites() -> None:
    """Threads of one kernel would read what others have written."""
    state = leaf("state", "s", (40,), f32)
    one = Job(Graph({"y": ops.exp(ops.flip(state, 0))}, {"s": state * 2.0}),
              {state: RNG.normal(size=40).astype(np.float32)})
    assert kernels(one.alone("j")) == 2
    agree(one, interpreted(one, SM_90))
