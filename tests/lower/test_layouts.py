"""Values are computed in the order of axes that turns the fewest elements, and mean the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases.random_graphs import random_graph
from ztorch import ops
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.rewrites.layouts import with_fewest_transposes

X = leaf("input", "x", (2, 6, 5, 3), "float32")
NUMBERS = np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)


def turned(y: Value) -> Graph:
    """The graph of y in its best orders, with unchanged results."""
    graph = Graph({"y": y})
    better = with_fewest_transposes(graph)
    [want], [got] = (evaluate(g.roots, {X: NUMBERS}) for g in (graph, better))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return better


def count(graph: Graph, op: str) -> int:
    return sum(v.op.name == op for v in graph.nodes())


def source() -> Value:
    """A value that only exists channels last, seen channels first."""
    return ops.transpose(ops.sum(ops.windows(X, (1, 2), 2), axis=(4, 5)), (0, 3, 1, 2))


def back(y: Value) -> Value:
    """y where windows need channels last again."""
    return ops.sum(ops.windows(ops.transpose(y, (0, 2, 3, 1)), (1, 2), 2), axis=(4, 5))


CASES = {
    "elementwise": lambda y: ops.relu(y) * 2.0,
    "channels": lambda y: y * ops.reshape(X[0, 0, 0], (1, 3, 1, 1)),
    "residual": lambda y: ops.tanh(y) + y,
    "pad": lambda y: ops.pad(y, (0, 1, 2, 0), (0, 0, 1, 3), 1.5),
    "slice": lambda y: y[:, ::2, 1:, ::-1],
    "concat": lambda y: ops.concat(y, ops.exp(y), axis=1),
    "softmax": lambda y: ops.softmax(y, axis=1),
    "gate": lambda y: y * ops.sigmoid(ops.mean(y, axis=(2, 3), keepdims=True)),
    "normalized": lambda y: y - ops.mean(y, axis=(0, 2, 3), keepdims=True),
}


@pytest.mark.parametrize("name", CASES)
def test_no_transposes_between_convolutions(name: str) -> None:
    graph = turned(back(CASES[name](source())))
    assert count(graph, "transpose") == 0


def test_several_kinds_together() -> None:
    y = source()
    for case in CASES.values():
        y = case(y)
    assert count(turned(back(y)), "transpose") == 0


def test_a_needed_transpose_runs_once() -> None:
    graph = turned(ops.reshape(ops.relu(source()), (2, -1)))
    assert count(graph, "transpose") == 1


def test_sums_with_reordered_axes_are_transposed_afterwards() -> None:
    y = ops.tanh(ops.tanh(source()))
    rows = ops.sum(y, axis=2)  # (batch, channels, columns)
    graph = turned(ops.concat(ops.reshape(back(y), (-1,)), ops.reshape(rows, (-1,)), axis=0))
    assert [v.size for v in graph.nodes() if v.op.name == "transpose"] == [rows.size]


def test_the_gradient_of_pooling_keeps_channels_contiguous() -> None:
    """Windows that overlap are read wherever they lie, so nothing transposes them."""
    [slope] = gradients(ops.sum(ops.max_pool(X, 3, 1) * 2.0), [X])
    better = turned(slope)
    assert {v.shape for v in better.nodes() if v.rank == 6 and v.op.opcode} == {(2, 4, 3, 3, 3, 3)}
    assert all(v.attrs["axes"] == (3, 4) for v in better.nodes() if v.op.kind == "reduce" and v.args[0].rank == 6
               and v.args[0].op.name == "cast")


def test_a_graph_without_gain_is_unchanged() -> None:
    graph = Graph({"y": ops.exp(ops.transpose(X, (0, 3, 1, 2)))})
    assert with_fewest_transposes(graph).outputs["y"].shape == (2, 3, 6, 5)
    plain = Graph({"y": ops.exp(X)})
    assert with_fewest_transposes(plain) is plain


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_graph_means_the_same(seed: int) -> None:
    graph, feeds = random_graph(seed, 20, exact=True)
    for got, want in zip(evaluate(with_fewest_transposes(graph).roots, feeds),
                         evaluate(graph.roots, feeds), strict=True):
        np.testing.assert_array_equal(got, want)
