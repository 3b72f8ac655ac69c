"""The text of a graph: the same for equal graphs, another one for any that differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from tests.cases.samples import Case, cases
from ztorch import ops
from ztorch.arrays.derivatives import WATCHED
from ztorch.graph.autodiff import gradients
from ztorch.graph.batching import vectorized
from ztorch.graph.op import constant, leaf
from ztorch.graph.text import is_ours, text_of
from ztorch.graph.value import Graph, Op, Value, layer_scope, topological

FIRST = [c for c in cases("f") if c.number == 0 and c.sample.shapes]


def text(y: Value) -> str:
    own = text_of(Graph({"y": y}))
    assert own is not None
    return own


@together()
@pytest.mark.parametrize("case", FIRST, ids=str)
def test_every_op_has_a_text(case: Case) -> None:
    first, second = (text(case.call(*case.leaves())) for _ in range(2))
    assert first == second


def test_no_two_ops_have_one_name() -> None:
    """In a text, the name of an op identifies its function."""
    nodes: list[Value] = []
    for case in cases("fsb"):
        leaves = case.leaves()
        y = case.call(*leaves)
        slopes = gradients(y, leaves) if y.dtype.is_float and leaves else []
        nodes += topological([y, *slopes])
    ops_used = {v.op for v in nodes if v.op.kind != "leaf" and not v.op.alias}
    assert len(ops_used) > 75 and all(map(is_ours, ops_used))
    names = sorted((op.infer.__module__, op.name) for op in ops_used)
    assert names == sorted(set(names))


X = leaf("input", "x", (3,), "float32")
FUNCTIONS: dict[str, Callable[[], Value]] = {
    "1.0": lambda: X * 1.0, "-0.0": lambda: X * -0.0, "0.0": lambda: X * 0.0,
    "two nodes": lambda: X * 1.0 + X * 1.0, "reversed": lambda: X[::-1], "part": lambda: X[1:],
    "square": lambda: X * X, "sum": lambda: ops.sum(X), "max": lambda: ops.max(X),
    "array": lambda: X * constant(np.array([1.0, 2.0, 3.0], np.float32)),
    "other array": lambda: X * constant(np.array([1.0, 2.0, 4.0], np.float32)),
    "other input": lambda: leaf("input", "z", (3,), "float32") * 1.0,
    "other dtype": lambda: leaf("input", "x", (3,), "float64") * 1.0,
    "other shape": lambda: leaf("input", "x", (4,), "float32") * 1.0,
}


def test_graphs_that_differ_have_other_texts() -> None:
    texts = {name: text(make()) for name, make in FUNCTIONS.items()}
    assert len(set(texts.values())) == len(texts)
    assert {name: text(make()) for name, make in FUNCTIONS.items()} == texts


def test_order_of_arguments_names_of_results_and_layers() -> None:
    z = leaf("input", "z", (3,), "float32")
    assert text(X - z) != text(z - X)
    assert text_of(Graph({"a": X, "b": z})) != text_of(Graph({"a": z, "b": X}))
    assert text_of(Graph({"a": X})) != text_of(Graph({"a": X}, declared=(X, z)))
    with layer_scope("dense"):
        inside = ops.exp(X)
    assert text(inside) != text(ops.exp(X))


def test_inputs_that_a_function_takes_count_without_being_read() -> None:
    z = leaf("input", "z", (3,), "float32")
    graphs = [Graph({"y": X}, declared=taken) for taken in ((), (X, z), (X, leaf("input", "w", (3,), "float32")))]
    assert len({*map(text_of, graphs)}) == 3


def test_names_of_results_alone_do_not_matter() -> None:
    assert text(WATCHED(X * 2.0)) == text(ops.stop_gradient(X) * 2.0) == text(X * 2.0)


def test_other_ops_have_no_text() -> None:
    own = Op("own", "map", lambda x: (x.shape, x.dtype), numpy=lambda x: x,
             body=lambda e, index: e.read(0, index))
    assert not is_ours(own)
    assert text_of(Graph({"y": own(X) + 1.0})) is None
    xs = leaf("input", "xs", (2, 3), "float32")
    wrapped = vectorized([own(X)], {X: xs}, 2)
    assert text_of(Graph({"y": next(v for v in wrapped.values() if v is not xs)})) is None


def test_a_formula_of_somebody_else_has_no_text() -> None:
    from ztorch.ops.formulas import formula

    def emit(b: Any, x: Any) -> Any:
        return b.mul(x, x)

    assert not is_ours(formula("squared", emit, zt.ops.exp, 1))
