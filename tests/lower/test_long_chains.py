"""Chains of hundreds of ops, views and layers: no stage of the compiler recurses along them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.parity import HERE, Job, Module
from ztorch import layers as L
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import declare_states, plan_functions, simplify
from ztorch.compile.watch import Watch
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.order import bits
from ztorch.lower.plan import Plan
from ztorch.lower.region import is_view
from ztorch.lower.rewrites.prepare import prepare
from ztorch.lower.tuning import REGION_MEMBERS_MAX, VIEWS_MAX


def planned(graph: Graph, level: str = "scalar") -> Plan:
    """The plan of a graph for a level of processors."""
    watch, target = Watch(), TARGETS[level]
    graphs = simplify({"f": graph}, ("fold", "movement", "cse", "prune"), watch)
    return plan_functions(graphs, target, declare_states(graphs, target), watch)["f"]


def chain(x: Value, count: int) -> Value:
    y = x
    for _ in range(count):
        y = OPS.tanh(y)
    return y


def test_a_long_chain_is_planned_with_its_gradient() -> None:
    count = 600
    x = leaf("input", "x", (4,), "float32")
    y = chain(x, count)
    [dx] = gradients(y, [x])
    plan = planned(Graph({"y": y, "dx": dx}))
    opcodes = [sum(i.opcode in ("tanh", "mul", "sub") for i in step.kernel.body)
               for step in plan.steps]
    assert sum(opcodes) >= 4 * count and max(opcodes) <= REGION_MEMBERS_MAX + 2  # two for workers
    assert len(plan.steps) <= 2 * 4 * count // REGION_MEMBERS_MAX


def test_long_chains_equal_numpy() -> None:
    count = 3 * REGION_MEMBERS_MAX + 1
    model = zt.Sequential([L.Input((2,)), *(L.Activation("tanh") for _ in range(count))])
    x = leaf("input", "x", (1, 2), "float32")
    data = np.array([[0.5, -2.0]], np.float32)
    [expected] = evaluate([chain(x, count)], {x: data})
    program = model.compile("cpu:scalar", batch_size=1)
    np.testing.assert_allclose(program.predict(data), expected, rtol=1e-5)


def test_a_model_of_hundreds_of_layers_is_planned() -> None:
    model = zt.Sequential([L.Input((2,)), *(L.Dense(2) for _ in range(300))])
    plan = planned(model.trace(1).functions["predict"])
    assert len(plan.steps) == 300


def test_a_body_of_a_loop_may_be_a_long_chain() -> None:
    def f(x: zt.Tensor) -> zt.Tensor:
        def turn(y: zt.Tensor) -> zt.Tensor:
            for _ in range(400):
                y = zt.ops.sqrt(y) + 0.1
            return y
        return zt.ops.scan(lambda y, _: (turn(y), None), x, length=2)[0]

    y = np.float64(1.0)
    for _ in range(800):
        y = np.sqrt(y) + 0.1
    got = zt.compiled(f)(zt.tensor(np.ones(3, np.float32))).numpy()
    np.testing.assert_allclose(got, np.full(3, y), rtol=1e-5)


def test_a_long_chain_of_views_is_copied() -> None:
    x = leaf("input", "x", (8,), "float32")
    y = x
    for _ in range(2 * VIEWS_MAX + 1):  # a movement that no rule of the graph simplifies
        y = OPS.flip(OPS.reshape(y, (2, 4)), (1,))
        y = OPS.reshape(y, (8,))
    prepared = prepare(Graph({"y": OPS.exp(y)}), TARGETS["scalar"].limits)
    depth: dict[Value, int] = {}
    for v in prepared.nodes():
        depth[v] = 1 + max(depth[a] for a in v.args) if v.args and is_view(v) else 0
    assert max(depth.values()) == VIEWS_MAX
    before = np.arange(8, dtype=np.float32)
    [after] = evaluate([prepared.outputs["y"]], {x: before})
    np.testing.assert_allclose(after, np.exp(before.reshape(2, 4)[:, ::-1].reshape(8)), rtol=1e-6)


def test_a_reduction_over_a_chain_of_diamonds_is_planned_fast() -> None:
    x = leaf("input", "x", (4, 8), "float32")
    y = x
    for _ in range(REGION_MEMBERS_MAX // 4):  # 2**25 paths
        y = OPS.mul(OPS.sin(y), OPS.cos(y))
    assert planned(Graph({"y": OPS.sum(y, 1), "z": OPS.mul(y, OPS.softmax(y))})).steps


def replaced(ops: Any, x: Any, odd: Any, count: int) -> Any:
    """Each element of 32 in turn is replaced by the first of x, and then the odd ones grow by 1."""
    y = x
    for k in range(1, count + 1):
        cuts = [(y, 0, k), (x, 0, 1), (y, k + 1, 31 - k)]
        joined = ops.concat(*(ops.slice(v, (a,), (1,), (n,)) for v, a, n in cuts), axis=0)
        y = ops.where(odd, ops.add(joined, 1), joined)
    return y


def test_parts_replaced_again_and_again_are_computed_once() -> None:
    count = 12  # each update reads the array before it in two parts, so there are 2**12 paths
    x, odd = leaf("input", "x", (32,), "float32"), leaf("input", "odd", (32,), "bool")
    [step] = planned(Graph({"y": replaced(OPS, x, odd, count)}), "avx512").steps
    assert len(step.kernel.body) <= 20 * count


@pytest.mark.parametrize("level", HERE)
def test_parts_replaced_beside_a_reduction(level: str) -> None:
    """The index of a part ends where the part does, but what it reads is for all of the array."""
    x, pairs = leaf("input", "x", (32,), "float32"), leaf("input", "pairs", (32, 2), "float32")
    data = np.linspace(0.1, 1, 64, dtype=np.float32)
    feeds = {x: data[:32], pairs: data.reshape(32, 2)}
    odd = OPS.greater(OPS.max(pairs, 1), 0.5)
    y, large = data[:32].copy(), data[1::2] > 0.5
    for k in range(1, 4):
        y[k] = data[0]
        y[large] += 1
    [result] = Module([Job(Graph({"y": replaced(OPS, x, odd, 3)}), feeds, "y")], level).run(0)
    np.testing.assert_allclose(result, y, rtol=1e-6)


@pytest.mark.parametrize("numbers", [[], [0], [3, 64, 1000]])
def test_numbers_in_a_bit_set(numbers: list[int]) -> None:
    assert list(bits(sum(1 << n for n in numbers))) == numbers


def test_the_tests_run_under_the_usual_limit_of_recursion() -> None:
    assert sys.getrecursionlimit() <= 1000
