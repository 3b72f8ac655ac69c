"""Passes change the form of a graph, never its results."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases.random_graphs import random_graph
from ztorch import ops
from ztorch.errors import UnknownName
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.fold import LIMIT
from ztorch.graph.op import OPS, constant, leaf
from ztorch.graph.passes import DEFAULT, PASSES, cse, fold, prune, run, simplify_movement
from ztorch.graph.value import Graph, Value, layer_scope

Build = Callable[..., Value]
X = leaf("input", "x", (2, 3), "float32")
SPECIAL = np.array([[0.0, -0.0, np.inf], [-np.inf, np.nan, 1.5]], np.float32)


def names(graph: Graph | Value) -> list[str]:
    """The ops of a graph, without its leaves."""
    result = graph.nodes() if isinstance(graph, Graph) else Graph({"y": graph}).nodes()
    return [v.op.name for v in result if v.op.kind != "leaf"]


def applied(y: Value, *passes: str) -> Value:
    return run(Graph({"y": y}), passes or DEFAULT).outputs["y"]


def bits(x: np.ndarray) -> bytes:
    """The bytes of x, with every NaN alike."""
    x = np.array(x, order="C")
    if x.dtype.kind == "f":
        x[np.isnan(x)] = np.nan
    return x.tobytes()


def results(graph: Graph, like: Graph, feeds: dict[Value, np.ndarray]) -> list[bytes]:
    """Everything `like` computes, from `graph`; a state without an update keeps its value."""
    states = {v.attrs["name"]: v for v in feeds if v.attrs["role"] == "state"}
    roots = [*graph.outputs.values(), *(graph.updates.get(n, states.get(n)) for n in like.updates)]
    return [bits(x) for x in evaluate([r for r in roots if r is not None], feeds)]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), exact=st.booleans(),
       order=st.lists(st.sampled_from(sorted(PASSES)), max_size=8))
def test_any_passes_in_any_order_give_the_same_bits(seed: int, exact: bool, order: list[str]) -> None:
    graph, feeds = random_graph(seed, 20, exact)
    assert results(run(graph, order), graph, feeds) == results(graph, graph, feeds)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_default_passes_keep_a_training_step(seed: int) -> None:
    graph, feeds = random_graph(seed, 10, exact=False)
    smooth = [v for v in graph.outputs.values() if v.dtype.name == "f32"]
    weights = [v for v in feeds if v.dtype.name == "f32"]
    if not smooth or not weights:
        return
    result = gradients(ops.sum(smooth[0] * smooth[0]), weights)
    step = Graph(graph.outputs | {f"d{k}": g for k, g in enumerate(result)}, graph.updates)
    shorter = run(step)
    assert results(shorter, step, feeds) == results(step, step, feeds)
    assert len(shorter.nodes()) <= len(step.nodes())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_passes_are_done_after_one_round_or_get_shorter(seed: int) -> None:
    graph, _ = random_graph(seed, 20)
    once = run(graph)
    assert len(run(once).nodes()) <= len(once.nodes()) <= len(graph.nodes()) + 4


# -- folding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [
    lambda x: x * 1.0, lambda x: 1.0 * x, lambda x: x / 1.0, lambda x: x - 0.0,
    lambda x: x + OPS.full(x.shape, -0.0), lambda x: ops.neg(-x), lambda x: x ** 1.0,
    lambda x: ops.where(OPS.full(x.shape, True, "bool"), x, -x),
    lambda x: ops.where(OPS.full(x.shape, False, "bool"), -x, x),
    lambda x: ops.where(x > 0.0, x, x), lambda x: ops.maximum(x, x),
    lambda x: ops.cast(ops.cast(x, "float64"), "float32"),
])
def test_identities_leave_only_x(build: Build) -> None:
    y = build(X)
    assert applied(y, "fold") is X
    before, after = evaluate([y, X], {X: SPECIAL})
    assert bits(before) == bits(after)


@pytest.mark.parametrize("build", [
    lambda x: x + 0.0, lambda x: 0.0 - x, lambda x: x * 0.0, lambda x: x - x,
    lambda x: x - OPS.full(x.shape, -0.0), lambda x: (x + 1.0) - 1.0,
    lambda x: ops.cast(ops.cast(x, "float16"), "float32"),
    lambda x: ops.cast(ops.cast(x, "int32"), "float32"),
])
def test_inexact_simplifications_are_not_made(build: Build) -> None:
    y = build(X)
    kept = applied(y, "fold")
    assert names(kept) == names(y)


@pytest.mark.parametrize("build", [
    lambda x, y: x + (-y), lambda x, y: (-x) + y, lambda x, y: x - (-y), lambda x, y: (-x) * (-y),
    lambda x, y: (-x) / (-y), lambda x, y: ops.abs(-x) * y, lambda x, y: ops.abs(ops.abs(x)) * y,
    lambda x, y: ops.floor(ops.round(x)) * y,
    lambda x, y: ops.where(ops.bitwise_not(x < y), x, y)])
def test_simplified_forms_give_the_same_bits(build: Build) -> None:
    other = leaf("input", "y", (2, 3), "float32")
    y = build(X, other)
    short = applied(y, "fold")
    assert len(names(short)) < len(names(y))
    for turn in range(6):
        feeds = {X: SPECIAL, other: np.roll(SPECIAL.ravel(), turn).reshape(2, 3)}
        before, after = evaluate([y, short], feeds)
        assert bits(before) == bits(after)


INT32 = np.array([-2**31, 300, -300], np.int32)


@pytest.mark.parametrize(("build", "want"), [
    (lambda a: ops.cast(ops.cast(a, "float64"), "int8"), [-128, 127, -128]),  # clipped, not wrapped
    (lambda a: ops.cast(ops.cast(a, "int64"), "int8"), [0, 44, -44]),
    (lambda a: OPS.div(-a, ops.neg(ops.abs(a * 0 + 2))), [2**30, 150, -150]),
])
def test_integers_keep_what_their_casts_and_signs_do(build: Build, want: list[int]) -> None:
    y = build(a := leaf("input", "a", (3,), "int32"))
    for form in (y, applied(y, "fold")):
        np.testing.assert_array_equal(evaluate([form], {a: INT32})[0], want)


def test_constants_are_computed() -> None:
    y = ops.exp(constant(np.arange(4.0), "float32")) + 1.0
    folded = applied(y)
    assert folded.attrs["role"] == "constant"
    np.testing.assert_array_equal(folded.attrs["data"], evaluate([y], {})[0])


def test_equal_elements_become_a_number() -> None:
    huge = ops.exp(OPS.full((10**6, 1000), 0.0)) * 3.0  # four gigabytes, were it ever made
    folded = applied(ops.reshape(huge, (1000, 10**6)))
    assert folded.op.name == "full" and folded.attrs["value"] == 3.0
    assert applied(constant(np.ones((2, 2)), "float32") * 2.0).op.name == "full"


def test_large_results_are_not_stored() -> None:
    row = OPS.iota((LIMIT,), dtype="float32")
    assert names(applied(row * 2.0)) == ["iota", "full", "mul"]
    spread = ops.broadcast_to(constant(np.arange(3.0), "float32"), (5, 3))
    assert names(applied(spread)) == ["broadcast_to"]


def test_bfloat16_constants_round_as_they_would_at_run_time() -> None:
    y = OPS.full((), 1.0, "bfloat16") / 3.0
    assert applied(y).attrs["value"] == evaluate([y], {})[0].item()


def test_negative_zero_and_nan_survive_folding() -> None:
    assert np.signbit(evaluate([applied(OPS.full((3,), 0.0) * -1.0)], {})[0]).all()
    assert np.isnan(applied(OPS.full((3,), np.inf) - np.inf).attrs["value"])


# -- common subexpressions -------------------------------------------------------------------------


def test_equal_nodes_become_one() -> None:
    y = ops.exp(X * 2.0) + ops.exp(X * 2.0)
    assert names(cse(Graph({"y": y}))) == ["full", "mul", "exp", "add"]


def test_operands_of_commutative_ops_may_swap() -> None:
    other = leaf("input", "y", (2, 3), "float32")
    shared = cse(Graph({"a": X * other, "b": other * X, "c": X - other, "d": other - X}))
    assert shared.outputs["a"] is shared.outputs["b"]
    assert shared.outputs["c"] is not shared.outputs["d"]


def test_equal_constants_are_merged_and_other_leaves_are_not() -> None:
    one, large = np.ones(1, np.float32), np.ones((1 << 14) + 1, np.float32)  # 64 KiB are compared
    unlike = [constant(x) for x in (one, -one, np.ones(1, np.int32), np.ones((1, 1), np.float32), large, large)]
    unlike += [leaf("state", "c", (1,), "float32", one) for _ in "ab"]
    unlike += [OPS.full((1,), v, d) for v, d in ((0.0, "float32"), (-0.0, "float32"), (0, "int32"))]
    for values, count in (([constant(x) for x in (one, +one, large[1:], large[:-1])], 2), (unlike, 11)):
        assert len({*cse(Graph({str(k): v for k, v in enumerate(values)})).outputs.values()}) == count


def test_random_ops_are_shared_only_within_a_stream() -> None:
    seed, step = leaf("state", "seed", (2,), "uint32"), leaf("state", "step", (), "uint32")
    a, b, c = (ops.random_bits((4,), seed, step, stream) for stream in (1, 1, 2))
    shared = cse(Graph({"a": a, "b": b, "c": c})).outputs
    assert shared["a"] is shared["b"] and shared["a"] is not shared["c"]


# -- movement --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("build", "left"), [
    (lambda x: ops.reshape(ops.reshape(x, (6,)), (2, 3)), []),
    (lambda x: ops.reshape(ops.reshape(x, (6,)), (3, 2)), ["reshape"]),
    (lambda x: ops.transpose(ops.transpose(x)), []),
    (lambda x: ops.transpose(ops.reshape(x, (2, 1, 3)), (1, 0, 2)), ["reshape"]),
    (lambda x: ops.broadcast_to(ops.broadcast_to(x, (4, 2, 3)), (5, 4, 2, 3)), ["broadcast_to"]),
    (lambda x: ops.broadcast_to(ops.reshape(x, (1, 2, 3)), (5, 2, 3)), ["broadcast_to"]),
    (lambda x: ops.flip(ops.flip(x)), []),
    (lambda x: x[:, 1:][:, ::-1][:, 0:1], ["slice"]),
    (lambda x: ops.stop_gradient(x), []),
    (lambda x: ops.pad(ops.zeros_like(x), (1, 1), (0, 2)), ["full"]),
    (lambda x: ops.concat(ops.zeros_like(x), ops.zeros_like(x)), ["full"]),
])
def test_chains_of_movement_collapse(build: Build, left: list[str]) -> None:
    y = build(X)
    short = applied(y, "movement")
    assert names(short) == left
    before, after = evaluate([y, short], {X: SPECIAL})
    assert bits(before) == bits(after)


def test_work_is_done_before_a_broadcast() -> None:
    rate = leaf("state", "rate", (), "float32")
    spread = ops.broadcast_to(rate, (100, 100))
    y = ops.exp(spread * 2.0) + spread
    short = applied(y)
    assert names(short) == ["full", "mul", "exp", "add", "broadcast_to"]
    assert {v.shape for v in Graph({"y": short}).nodes()[:-1]} == {()}
    assert applied(ops.reshape(spread, (10, 1000))).args[0] is rate


# -- the rest --------------------------------------------------------------------------------------


def test_unchanged_states_are_pruned() -> None:
    a, b = leaf("state", "a", (1,), "float32"), leaf("state", "b", (1,), "float32")
    graph = Graph({"y": a + b}, {"a": a, "b": a})
    assert list(prune(graph).updates) == ["b"]
    assert list(run(Graph({}, {"a": a * 1.0})).updates) == []


def test_nodes_remember_their_layer() -> None:
    with layer_scope("dense"):
        y = ops.exp(ops.reshape(ops.reshape(X, (6,)), (3, 2)) * 1.0) + OPS.full((3, 2), 2.0)
    short = Graph({"y": applied(ops.tanh(y))})
    assert {v.layer for v in short.nodes() if v.op.name in ("exp", "reshape", "add")} == {"dense"}


def test_an_unknown_pass_is_named() -> None:
    with pytest.raises(UnknownName, match="did you mean 'fold'"):
        run(Graph({"y": X}), ["fold_"])


def test_passes_are_quick() -> None:
    h = leaf("input", "x", (8, 16), "float32")
    weights = [leaf("state", f"w{k}", (16, 16), "float32") for k in range(12)]
    for w in weights:
        h = ops.softmax(ops.gelu(ops.standardize(h @ w)))
    result = gradients(ops.mean(h), weights)
    graph = Graph({"y": h}, {w.attrs["name"]: w - g * 0.1 for w, g in zip(weights, result, strict=True)})
    assert len(graph.nodes()) > 1000
    assert min(_seconds(graph) for _ in range(3)) < 0.15  # 15 ms of one core here; room for a slow one


def _seconds(graph: Graph) -> float:
    start = time.process_time()
    run(graph)
    return time.process_time() - start


def test_each_pass_can_run_alone() -> None:
    graph = Graph({"y": ops.softmax(X)})
    for alone in (fold, cse, simplify_movement, prune):
        assert results(alone(graph), graph, {X: SPECIAL}) == results(graph, graph, {X: SPECIAL})


def test_a_slice_of_a_slice_is_one_slice() -> None:
    """By hand: steps multiply, and the second start counts in steps of the first."""
    x = leaf("input", "x", (24, 5), "float32")
    y = ops.slice_by(ops.slice_by(x, (slice(1, None, 2), slice(0, 4))), (slice(2, None, 3), slice(1, 4, 2)))
    one = run(Graph({"y": y}), ("movement",)).outputs["y"]
    assert [v.op.name for v in Graph({"y": one}).nodes()] == ["leaf", "slice"]
    numbers = np.arange(120, dtype=np.float32).reshape(24, 5)
    [got] = evaluate([one], {x: numbers})
    np.testing.assert_array_equal(got, numbers[[5, 11, 17, 23]][:, [1, 3]])


def test_a_slice_with_one_complete_axis_is_a_slice() -> None:
    x = leaf("input", "x", (6, 6), "float32")
    y = ops.flip(x, 0)
    [got] = evaluate([run(Graph({"y": y})).outputs["y"]], {x: np.arange(36, dtype=np.float32).reshape(6, 6)})
    np.testing.assert_array_equal(got, np.arange(36, dtype=np.float32).reshape(6, 6)[::-1])
