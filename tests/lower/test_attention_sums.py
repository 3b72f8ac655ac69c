"""Sums over the keys in gradients of attention, taken over the values instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import bf16, f32, u32
from ztorch.graph import passes
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.rewrites.attention import attention_of
from ztorch.lower.rewrites.attention_sums import with_sums_over_values
from ztorch.machines.gpus import gpu
from ztorch.performance.step import predict_functions

KEYS, SIZE = 7, 3
MASK = np.array([[True] * KEYS, [False] * KEYS, [True, False] * 3 + [True], [False] + [True] * 6, [True] * KEYS])
random = np.random.default_rng(2)
Attention = Callable[[Value, Value, Value], Value]


def dropped(q: Value, k: Value, v: Value) -> Value:
    weights = ops.attention_weights(q, k)
    return ops.matmul(ops.dropout(weights, 0.5, constant(np.array([1, 2]), u32), constant(np.array(0), u32)), v)


def by_heads(q: Value, k: Value, v: Value) -> Value:
    """The values come from a transpose that the gradient's transpose is merged with."""
    return ops.attention(q, k, ops.transpose(ops.reshape(v, (KEYS, 2, SIZE)), (1, 0, 2)))


CASES: dict[str, Attention] = {
    "plain": ops.attention, "scaled": lambda q, k, v: ops.attention(q, k, v, scale=2.0),
    "masked": lambda q, k, v: ops.attention(q, k, v, constant(MASK)), "causal": lambda q, k, v: ops.attention(
        q, k, v, causal=True), "heads": by_heads}


def training(attention: Attention) -> tuple[Graph, list[Value]]:
    inputs = [leaf("input", name, (2, n, SIZE), f32) for name, n in (("q", 5), ("k", KEYS), ("v", KEYS))]
    y = attention(*inputs)
    slope = leaf("input", "slope", y.shape, f32)
    grads = gradients(ops.sum(y * slope), inputs)
    return passes.run(Graph({"y": y, **{f"d{k}": g for k, g in enumerate(grads)}})), [*inputs, slope]


def long_sums(graph: Graph) -> int:
    """The sums over keys of what a product with the slope is a part of."""
    return sum(v.op.kind == "reduce" and v.op.opcode == "add" and v.args[0].shape[-1] == KEYS
               and v.args[0].op.opcode == "mul" for v in graph.nodes())


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_unchanged(name: str) -> None:
    graph, leaves = training(CASES[name])
    rewritten = with_sums_over_values(graph)
    assert long_sums(graph) == 1 and long_sums(rewritten) == 0
    given: dict[Value, Any] = {x: random.normal(size=x.shape).astype(np.float32) for x in leaves}
    for old, new in zip(evaluate(list(graph.outputs.values()), given),
                        evaluate(list(rewritten.outputs.values()), given), strict=True):
        np.testing.assert_allclose(new, old, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("attention", [
    dropped, lambda q, k, v: ops.matmul(ops.exp(ops.matmul(q, ops.transpose(k, (0, 2, 1)))), v),
    lambda q, k, v: ops.matmul(ops.softmax(ops.matmul(q, ops.transpose(k, (0, 2, 1))), axis=-2), v)])
def test_other_sums_are_unchanged(attention: Attention) -> None:
    graph, _ = training(attention)
    assert with_sums_over_values(graph) is graph or [v.op for v in with_sums_over_values(graph).nodes()] == [
        v.op for v in graph.nodes()]


def test_the_gradient_of_scores_is_computed_with_their_product() -> None:
    """No kernel reads a matrix of float32 for each query and key, of which there were two. Heads are such that each product
    has a kernel: their lines cannot be copied in 16 bytes."""
    q, k, v, slope = (leaf("input", name, (1, 4, 1024, 60), bf16) for name in ("q", "k", "v", "slope"))
    y = ops.attention(q, k, v)
    grads = gradients(ops.sum(y * slope), [q, k, v])
    graph = Graph({"y": y, **{f"d{i}": g for i, g in enumerate(grads)}})
    kernels = predict_functions({"f": graph}, TARGETS["cuda:sm_80"], gpu("A100"))["f"].kernels
    assert sum("_sum_" in x.kernel.name and x.kernel.l2_bytes > 4 * 1024 * 1024 * 4 for x in kernels) == 1


def test_how_far_rows_see_is_known() -> None:
    """Of a mask that only a graph tells: the columns that every row sees, and those that none does."""
    def seen(rows: int, columns: int, mask: np.ndarray | None = None) -> tuple[int | None, int | None]:
        q, k, v = (leaf("input", name, (1, n, SIZE), f32) for name, n in (("q", rows), ("k", columns), ("v", columns)))
        y = ops.attention(q, k, v, causal=True) if mask is None else ops.attention(q, k, v, constant(mask))
        nodes = passes.run(Graph({"y": y})).nodes()
        [(a, _)] = [a for n in nodes if n.op.kind == "contract" and (a := attention_of(n))]
        return a.shown, a.ahead

    assert seen(40, 40) == (1, 1) and seen(40, 50) == (1, 1) and seen(50, 40) == (1, 1)
    assert seen(40, 50, np.tril(np.ones((40, 50), bool), 10)) == (11, 11)  # rows that continue a text
    holes = np.tril(np.ones((40, 40), bool))
    holes[20, 3] = False
    assert seen(40, 40, holes) == (None, 1)
    ends = np.ones((40, 40), bool)
    ends[:, 35:] = False
    assert seen(40, 40, ends) == (1, None)
