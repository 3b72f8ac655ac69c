"""Products whose columns are read in groups are one kernel with what is made of them, and states that such
a kernel writes alternate between two buffers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.parity import HERE, Job, compiled, plan_of
from ztorch import layers as L
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import build
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.plan import Plan
from ztorch.lower.rewrites.column_groups import with_column_groups
from ztorch.machines.processors import processor
from ztorch.model.sequential import Sequential
from ztorch.model.trace import trace

ZEN4 = replace(TARGETS["avx512"].limits, processor=processor("zen4"))


def _plan(layer: L.Layer, steps: int, rows: int, width: int) -> Plan:
    graph = trace(Sequential([L.Input((steps, width)), layer], seed=1), rows).functions["predict"]
    return plan_of(graph, ZEN4)[0]


def _kernels_of_a_step(plan: Plan, steps: int) -> float:
    [loop] = plan.loops
    return (loop.end - loop.first) * loop.trip_count / steps


@pytest.mark.parametrize(("kind", "steps", "rows", "sequences", "kernels"), [
    ("LSTM", 10, 1, False, 1), ("GRU", 10, 8, False, 1), ("SimpleRNN", 10, 32, False, 1),
    ("LSTM", 9, 1, True, 1),  # each step has a row for its state anyway
    ("LSTM", 9, 1, False, 2),  # an odd number of steps copies the state
    ("LSTM", 10, 9, False, 2)])  # rows enough that it does not pay
def test_a_step_is_one_kernel(kind: str, steps: int, rows: int, sequences: bool, kernels: int) -> None:
    plan = _plan(getattr(L, kind)(32, return_sequences=sequences), steps, rows, 24)
    assert _kernels_of_a_step(plan, steps) == kernels


def test_weights_that_the_cache_does_not_hold_stay_whole() -> None:
    assert _kernels_of_a_step(_plan(L.LSTM(512), 4, 1, 8), 4) == 2


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("device", ["cpu", "cpu:avx2", "cpu:scalar", "c"])
@pytest.mark.parametrize(("steps", "rows", "units", "backwards"), [
    (4, 1, 16, False), (6, 3, 21, True), (7, 1, 13, False), (8, 8, 33, True), (6, 1, 64, False)])
def test_an_lstm_by_hand(device: str, steps: int, rows: int, units: int, backwards: bool) -> None:
    model = Sequential([L.Input((steps, 5)), L.LSTM(units, go_backwards=backwards)], seed=2)
    x = np.random.default_rng(units).standard_normal((rows, steps, 5), np.float32)
    kernel, recurrent, bias = (w.astype(np.float64) for w in model.get_weights())
    h = c = np.zeros((rows, units))
    for t in reversed(range(steps)) if backwards else range(steps):
        i, f, g, o = np.split(x[:, t] @ kernel + bias + h @ recurrent, 4, axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
    program = model.compile(device, batch_size=rows)
    np.testing.assert_allclose(program.predict(x), h, rtol=2e-5, atol=2e-6)


def _inputs(**shapes: tuple[int, ...]) -> list[Value]:
    return [leaf("input", name, shape, f32) for name, shape in shapes.items()]


@pytest.mark.parametrize(("rows", "columns"), [(1, 48), (5, 37), (20, 64)])
def test_gated_units_have_the_bits_of_two_kernels(rows: int, columns: int) -> None:
    """A product whose halves meet, and two products that do, as in a SwiGLU block."""
    x, w = _inputs(x=(rows, 19), w=(19, 2 * columns))
    whole = ops.matmul(x, w) + 0.5
    halves = [ops.matmul(x, w[:, k:k + columns]) + 0.5 for k in (0, columns)]
    graph = Graph({"one": ops.silu(whole[:, :columns]) * whole[:, columns:],
                   "two": ops.silu(halves[0]) * halves[1]})
    made = build({"predict": graph, "apart": Graph({"whole": whole})}, "cpu", "gated")
    random = np.random.default_rng(rows)
    calls = {name: made.bind(name) for name in ("predict", "apart")}
    arrays = {v.attrs["name"]: random.standard_normal(v.shape, np.float32) for v in (x, w)}
    for call in calls.values():
        for name, array in arrays.items():
            call.inputs[name][...] = array
        call()
    y = arrays["x"].astype(np.float64) @ arrays["w"] + 0.5
    want = y[:, :columns] * _sigmoid(y[:, :columns]) * y[:, columns:]
    outputs = {name: calls["predict"].outputs[name].copy() for name in ("one", "two")}
    for z in outputs.values():
        np.testing.assert_allclose(z, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs["one"], outputs["two"])
    np.testing.assert_allclose(calls["apart"].outputs["whole"], y, rtol=1e-5, atol=1e-6)


def test_what_reads_all_columns_keeps_the_product_whole() -> None:
    x, w = _inputs(x=(2, 8), w=(8, 12))
    y = ops.matmul(x, w)
    gated = ops.sigmoid(y[:, :6]) * y[:, 6:]
    apart = ops.exp(y[:, :4]) + ops.exp(y[:, 4:8])
    for outputs, products in (({"z": gated}, 2), ({"z": gated, "y": y}, 1), ({"z": gated, "s": ops.sum(y)}, 1),
                              ({"a": apart, "b": y[:, 8:]}, 1), ({"a": y[:, :6], "b": y[:, 6:]}, 1)):
        nodes = with_column_groups(Graph(outputs), ZEN4).nodes()
        assert sum(v.op.kind == "contract" for v in nodes) == products, outputs


def test_values_of_a_product_may_depend_on_a_group_of_it() -> None:
    """The sum that the second group is read from is made of the first group."""
    x, w = _inputs(x=(8, 24), w=(24, 32))
    whole = ops.matmul(x, w)
    first = ops.tanh(whole[:, :16])
    y = first * (whole + ops.concat(first, first, axis=1))[:, 16:]
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(v.shape, np.float32) for v in (x, w))
    z = a.astype(np.float64) @ b
    first_64 = np.tanh(z[:, :16])
    [got] = compiled(Job(Graph({"y": y}), {x: a, w: b}), HERE[-1])
    np.testing.assert_allclose(got, first_64 * (z[:, 16:] + first_64), rtol=2e-5, atol=2e-5)
