"""Loops of a graph: their semantics, their gradients, and passes over them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.cases.loops import LOOPS, LoopCase
from ztorch import ops
from ztorch.dtypes import f64
from ztorch.graph import passes
from ztorch.graph.autodiff import gradients
from ztorch.graph.batching import vectorized
from ztorch.graph.evaluate import evaluate
from ztorch.graph.merging import merged
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value, topological

every_loop = pytest.mark.parametrize("case", LOOPS, ids=lambda c: c.name)


def slopes_by_differences(y: Value, leaves: list[Value], feeds: dict[Value, np.ndarray]
                          ) -> list[np.ndarray]:
    step = 1e-6
    slopes = []
    for v in leaves:
        slope = np.zeros(v.shape)
        for at in np.ndindex(*v.shape):
            ends = []
            for sign in (1, -1):
                moved = feeds[v].copy()
                moved[at] += sign * step
                ends.append(evaluate([y], {**feeds, v: moved})[0])
            slope[at] = (ends[0] - ends[1]) / (2 * step)
        slopes.append(slope)
    return slopes


def _overlapping(x: Value, u: Value, h: Value) -> Value:
    """Two parts of a product that begin at the same column."""
    def turn(s: Value, row: Value) -> tuple[Value, Value]:
        z = s @ u + row
        return ops.tanh(z), ops.sum(ops.sin(z[:, :1])) + ops.sum(ops.cos(z[:, :2]))

    return ops.scan(turn, h, x)[1]


OVERLAPPING = LoopCase("overlapping", _overlapping, ((4, 2, 3), (3, 3), (2, 3)))


@pytest.mark.parametrize("case", [*LOOPS, OVERLAPPING], ids=lambda c: c.name)
def test_gradients_are_those_of_finite_differences(case: LoopCase) -> None:
    leaves = case.leaves(f64)
    feeds = case.feeds(leaves)
    result = case.function(*leaves)
    y = ops.sum(result * result)
    graph = passes.run(Graph({str(k): g for k, g in enumerate(gradients(y, leaves))}))
    for got, want in zip(evaluate(graph.roots, feeds), slopes_by_differences(y, leaves, feeds),
                         strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["backwards", "nested", "plain", "cond"])
def test_gradients_of_gradients(name: str) -> None:
    case = next(c for c in LOOPS if c.name == name)
    leaves = case.leaves(f64)
    feeds = case.feeds(leaves)
    slopes = gradients(ops.sum(case.function(*leaves)), leaves)
    y = ops.sum(ops.concat(*(ops.reshape(g * g, (g.size,)) for g in slopes)))
    for got, want in zip(evaluate(gradients(y, leaves), feeds),
                         slopes_by_differences(y, leaves, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@every_loop
def test_passes_keep_every_bit_of_loops(case: LoopCase) -> None:
    leaves = case.leaves(f64)
    feeds = case.feeds(leaves)
    y = case.function(*leaves)
    graph = Graph({"y": y, **{str(k): g for k, g in enumerate(gradients(ops.sum(y), leaves))}})
    want = evaluate(graph.roots, feeds)
    for order in itertools.permutations(passes.PASSES, 2):
        for a, b in zip(evaluate(passes.run(graph, order).roots, feeds), want, strict=True):
            np.testing.assert_array_equal(a, b)


def loops(graph: Graph) -> list[Value]:
    return [v for v in passes.run(graph).nodes() if v.op.kind == "loop"]


def products(loop: Value) -> int:
    return sum(v.op.kind == "contract" for v in topological(loop.attrs["body"].roots))


def test_a_gradient_adds_one_loop_and_the_forward_one_runs_once() -> None:
    case = next(c for c in LOOPS if c.name == "gates")
    leaves = case.leaves(f64)
    y = case.function(*leaves)
    graph = Graph({"y": y, **{str(k): g for k, g in enumerate(gradients(ops.sum(y * y), leaves))}})
    forward, backward = loops(graph)
    assert products(forward) == products(backward) == 1, "one with the state, one with its slope"
    outside = [v.shape for v in passes.run(graph).nodes() if v.op.kind == "contract"]
    assert sorted(outside) == [(5, 21), (7, 21), (12, 5), (12, 21)], "one of each for all turns"


def test_products_of_loop_invariants_are_hoisted() -> None:
    """Also random numbers, such as a layer's dropout: they are the same in every turn."""
    x, w = leaf("input", "x", (4, 2, 3), "float32"), leaf("input", "w", (3, 3), "float32")
    noise = ops.random_uniform((2, 3), leaf("state", "seed", (2,), "uint32"),
                               leaf("state", "step", (), "uint32"))
    last, _ = ops.scan(lambda s, r: (s + (r * noise) @ w, None), x[0], x)
    [loop] = loops(Graph({"last": last}))
    assert products(loop) == 0


def test_unused_values_are_not_computed() -> None:
    x = leaf("input", "x", (4, 3), "float32")
    (_, b), (kept, other) = ops.scan(
        lambda s, r: ((s[0] + ops.exp(r), s[1] * r), (s[0], ops.sin(r))), (x[0], x[1]), x)
    [loop] = loops(Graph({"b": b}))
    body = loop.attrs["body"]
    assert (len(body.carries), len(body.outs)) == (1, 0)
    assert [v.op.name for v in topological(body.roots) if v.op.kind != "leaf"] == ["mul"]
    [loop] = loops(Graph({"kept": kept, "other": other}))
    assert (len(loop.attrs["body"].carries), len(loop.attrs["body"].outs)) == (1, 2)


def test_a_loop_inside_keeps_nothing_for_unused_values() -> None:
    x = leaf("input", "x", (4, 3), "float32")
    last, _ = ops.scan(lambda s, _: ops.scan(lambda t, r: (t * r, ops.exp(t)), s, x), x[0], x)
    graph = merged(Graph({"last": last}))
    for _ in range(2):
        [loop] = [v for v in graph.nodes() if v.op.kind == "loop"]
        assert not loop.attrs["body"].outs
        graph = Graph({"new": loop.attrs["body"].news[0]})


def test_equal_loops_become_one() -> None:
    x = leaf("input", "x", (4, 3), "float32")
    results = [ops.scan(lambda s, r: (s + r, None), x[0], x)[0] for _ in range(2)]
    different = ops.scan(lambda s, r: (s - r, None), x[0], x)[0]
    assert len(loops(Graph({"y": results[0] * results[1]}))) == 1
    assert len(loops(Graph({"y": results[0] * different}))) == 2


def test_merged_loops_keep_the_histories_of_both() -> None:
    """The first result of the second loop is not the first of both."""
    x = leaf("input", "x", (4, 3), "float32")
    _, whole = ops.scan(lambda s, r: (s + r, (ops.exp(r), ops.sin(r))), x[0], x)
    loop, kept = whole[0].args[0], []
    body = loop.attrs["body"]
    for result, out in zip(whole, body.outs, strict=True):
        alone = Value(loop.op, loop.args, {"body": body.with_roots((*body.news, out))}, loop.shape,
                      loop.dtype)
        kept.append(Value(result.op, (alone,), {"index": len(body.carries)}, result.shape, result.dtype))
    graph = merged(Graph({"exp": kept[0], "sin": kept[1]}))
    assert len(loops(graph)) == 1
    numbers = np.arange(12, dtype=np.float32).reshape(4, 3) / 5
    for got, want in zip(evaluate(graph.roots, {x: numbers}), (np.exp(numbers), np.sin(numbers)),
                         strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@every_loop
@pytest.mark.parametrize("differ", ["all", "first", "last"])
def test_a_loop_for_many_examples(case: LoopCase, differ: str) -> None:
    """Values and gradients are those of each example by itself, whichever arguments differ."""
    one = case.leaves(f64)
    y = case.function(*one)
    roots = [y, *gradients(ops.sum(y * y), one)]
    many = {v: leaf("input", "many", (3, *v.shape), v.dtype)
            for v in {"all": one, "first": one[:1], "last": one[-1:]}[differ]}
    known = vectorized(roots, many, 3, shared=frozenset(v for v in one if v not in many))
    rng = np.random.default_rng(0)
    feeds = {v: rng.uniform(-1, 1, v.shape) for v in (*one, *many.values())}
    of_all = [v for v in roots if v in known]
    got = evaluate([known[v] for v in of_all], feeds)
    for k in range(3):
        want = evaluate(of_all, {v: feeds[many[v]][k] if v in many else feeds[v] for v in one})
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a[k], b, rtol=1e-9, atol=1e-12)
