"""Wide values in blocks of rows: the same results, and nothing wide in memory."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from tests.cases.attention import attention, fed
from tests.cases.grouping import together
from tests.parity import HERE, NARROW, SUBGROUPS, Job, Module, agree, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import plan_functions
from ztorch.compile.watch import Watch
from ztorch.dtypes import f64
from ztorch.graph import passes
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.params import Params
from ztorch.lower.rewrites import row_blocks
from ztorch.lower.rewrites.block_loops import segments
from ztorch.lower.rewrites.large_intermediates import LargeShape, groups
from ztorch.lower.rewrites.masked_columns import visible_columns
from ztorch.lower.rewrites.row_blocks import blocked, in_blocks
from ztorch.machines.processors import processor

ZEN3 = Limits(256, 16, True, processor=processor("zen3"))


def is_blocked(graph: Graph, shape: LargeShape) -> bool:
    """Whether no kernel of a graph makes a wide value."""
    return not any(v.op.kind == "contract" and v.shape == shape.sizes for v in graph.nodes())


def test_as_many_rows_as_half_of_the_second_cache_holds() -> None:
    shapes = [LargeShape((), rows, columns) for rows, columns in ((4096, 512), (4096, 1024), (4096, 1365), (4096, 8192),
                                                                  (48, 4096), (20, 512), (20, 8192))]
    assert [row_blocks._block_rows(shape, ZEN3) for shape in shapes] == [64, 64, 48, 32, 24, 0, 0]


MASKS: list[tuple[int, ...]] = [(), (2, 1, 1, 21), (13, 21), (2, 4, 13, 21), (2, 1, 13, 1)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_attention_and_its_gradients(mask: tuple[int, ...], causal: bool) -> None:
    """Cross-attention with shared heads, over sizes that no block divides."""
    graph, shape = attention(4, 2, 13, 21, 3, mask, causal)
    feeds = fed(graph)
    want = evaluate(graph.roots, feeds)
    for rows in (1, 4, 13):
        changed = blocked(graph, shape, rows)
        assert is_blocked(changed, shape) and not is_blocked(graph, shape)
        for a, b in zip(evaluate(changed.roots, feeds), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize("shown", ["before", "long before", "data"])
def test_rows_that_see_nothing(shown: str) -> None:
    """Without a rule for them their weights are NaN, and reach the gradients of all values, also of masked columns."""
    q, k, v = _floats((13, 2), (13, 2), (13, 3))
    ahead = ops.iota((13, 13), 1) - ops.iota((13, 13), 0)
    mask = {"before": ops.less(ahead, 0), "long before": constant(np.tri(13, 13, -3, dtype=bool)),
            "data": ops.bitwise_and(ops.less_equal(ahead, 0), leaf("input", "mask", (13, 13), "bool"))}[shown]
    y = ops.matmul(ops.softmax(ops.where(mask, ops.matmul(q, ops.transpose(k)), -math.inf)), v)
    slopes = gradients(ops.sum(y), [q, k, v])
    graph = passes.run(Graph({"y": y} | dict(zip(("dq", "dk", "dv"), slopes, strict=True))))
    feeds = {v: x & (np.arange(13) != 5)[:, None] if v.dtype.name == "bool" else x for v, x in fed(graph).items()}
    want = evaluate(graph.roots, feeds)
    assert np.isnan(want[3]).all() and np.isfinite(want[2]).all()
    for rows in (1, 4, 13):
        for a, b in zip(evaluate(blocked(graph, LargeShape((), 13, 13), rows).roots, feeds), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


def test_gradients_are_finite_differences() -> None:
    graph, shape = attention(2, 1, 6, 7, 2, (6, 7), causal=True)
    changed = blocked(graph, shape, 4)
    feeds = fed(graph)
    by_name = {v.attrs["name"]: v for v in graph.leaves("input")}
    y = changed.outputs["y"]
    for name in "qkv":
        [slope] = evaluate([changed.outputs[f"d{name}"]], feeds)
        way = np.random.default_rng(4).standard_normal(slope.shape)
        up, down = (evaluate([y], feeds | {by_name[name]: feeds[by_name[name]] + step * way})[0]
                    for step in (1e-6, -1e-6))
        change = np.sum((up - down) * feeds[by_name["dy"]]) / 2e-6
        assert math.isclose(np.sum(slope * way), change, rel_tol=1e-7, abs_tol=1e-8)


def test_as_pytorch() -> None:
    """Compiled by the rules, which take blocks here: results and gradients."""
    torch = pytest.importorskip("torch")
    graph, shape = attention(2, 1, 263, 270, 20, causal=True, dtype="float32", batch=1)
    assert is_blocked(in_blocks(graph, TARGETS[HERE[-1]].limits), shape)
    job = Job(graph, fed(graph))
    module = Module([job], HERE[-1])
    arrays = {v.attrs["name"]: torch.tensor(a) for v, a in job.feeds.items()}
    q, k, v = (arrays[n].requires_grad_() for n in "qkv")
    y = torch.nn.functional.scaled_dot_product_attention(
        q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1), is_causal=True)
    want = [y.detach(), *torch.autograd.grad(y, (q, k, v), arrays["dy"])]
    one = module.run(0, threads=1)
    for a, b in zip(one, want, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=0, atol=2e-5)
    for a, b in zip(one, module.run(0, threads=3), strict=True):
        np.testing.assert_array_equal(a, b)


@functools.cache
def jobs_in_blocks() -> list[Job]:
    jobs = []
    for causal, dtype in ((False, "float32"), (True, "float32"), (True, "float16")):
        graph, shape = attention(2, 1, 5, 9, 2, (2, 1, 1, 9), causal, dtype=dtype)
        jobs.append(Job(blocked(graph, shape, 2), fed(graph)))
    q, k, v = (leaf("input", n, (2, 8, 16), "float32") for n in "qkv")
    graph = passes.run(Graph({"y": ops.attention(q, k, v)}))  # the loop's rows are the output's
    return [*jobs, Job(blocked(graph, LargeShape((2,), 8, 8), 4), fed(graph))]


@together()
@pytest.mark.parametrize("target", ["scalar", HERE[-1]])
def test_on_processors(target: str) -> None:
    """The blocks are loops, in one program."""
    module = Module(jobs_in_blocks(), target)
    for k, job in enumerate(jobs_in_blocks()):
        agree(job, module.run(k), terms=9)


@together()
@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("limits", [NARROW, SUBGROUPS], ids=["processor", "grid"])
def test_on_other_machines(number: int, limits: Limits) -> None:
    job = jobs_in_blocks()[number]
    agree(job, interpreted(job, limits, workers=3), terms=9)


def test_blocks_read_inputs_and_store_outputs_where_the_caller_has_them() -> None:
    """A head of attention: only the two operands of products are copied, a head at a time."""
    q, k, v = (leaf("input", n, (3, 512, 16), "float32") for n in "qkv")
    plan, _ = plan_of(Graph({"y": ops.attention(q, k, v)}), ZEN3)
    accesses = [(p, writes, step.schedule.kind) for step in plan.steps
                for p, writes in zip(step.locations, step.writes, strict=True)]
    head = 512 * 16 * 4
    moves = {(p.space, p.offset): p.strides[0] for p, _, _ in accesses if p.space != "arena"}
    assert moves == {("inputs", 0): head, ("inputs", 1): head, ("inputs", 2): head, ("outputs", 0): head}
    assert [w for p, w, kind in accesses if p.space == "outputs"] == [True]
    assert all(p.size <= head for p, _, kind in accesses if kind in ("elements", "transpose"))


def test_values_with_other_readers_are_not_divided() -> None:
    """Weights of attention that somebody wants to see; a reduction over several rows."""
    q, k = (leaf("input", n, (2, 9, 3), "float64") for n in "qk")
    weights = ops.attention_weights(q, k)
    shape = LargeShape((2,), 9, 9)
    for extra in (weights, ops.sum(weights, 1), ops.flip(weights, 2)):
        graph = passes.run(Graph({"y": ops.matmul(weights, k), "extra": extra}))
        assert not is_blocked(blocked(graph, shape, 3), shape)


def test_rows_that_somebody_reads_are_results() -> None:
    """Two attentions in a row of one shape, and a number for each row besides."""
    q, k = (leaf("input", n, (2, 9, 3), "float64") for n in "qk")
    scores = ops.matmul(q, ops.transpose(k, (0, 2, 1)))
    first = ops.matmul(ops.softmax(scores), k)
    second = ops.attention(first, k, k)
    graph = passes.run(Graph({"y": second, "largest": ops.max(scores, -1),
                              "log": ops.sum(ops.logsumexp(scores, -1, keepdims=True))}))
    shape = LargeShape((2,), 9, 9)
    changed = blocked(graph, shape, 4)
    assert is_blocked(changed, shape)
    assert sum(v.op.kind == "loop" for v in changed.nodes()) == 2  # a group each, in their order
    for a, b in zip(*(evaluate(g.roots, fed(graph)) for g in (changed, graph)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


def _agrees_in_blocks(shape: LargeShape, **outputs: Value) -> None:
    graph, rng = Graph(outputs), np.random.default_rng(8)
    feeds = {v: rng.standard_normal(v.shape) for v in graph.leaves("input")}
    for rows in (1, 2):
        changed = blocked(graph, shape, rows)
        assert is_blocked(changed, shape)
        for a, b in zip(evaluate(changed.roots, feeds), evaluate(graph.roots, feeds), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def _floats(*shapes: tuple[int, ...]) -> list[Value]:
    return [leaf("input", f"x{k}", shape, f64) for k, shape in enumerate(shapes)]


def test_numbers_for_columns_are_none_for_rows_where_there_are_as_many() -> None:
    q, k, bias, v = _floats((9, 2), (2, 9), (9,), (9, 3))
    _agrees_in_blocks(LargeShape((), 9, 9), y=ops.matmul(ops.exp(ops.matmul(q, k) + bias), v))


def test_an_operand_that_is_as_large_as_the_product() -> None:
    """Rows that a matrix mixes, added to themselves; a sum over rows that multiplies them."""
    mixing, x, v, w = _floats((6, 6), (6, 11), (11, 2), (6, 6))
    y = ops.relu(x)
    mixed = ops.matmul(mixing, y) + y
    _agrees_in_blocks(LargeShape((), 6, 11), y=ops.matmul(mixed, v), z=ops.sum(mixed, axis=-1))
    square = ops.matmul(mixing, w) * ops.tanh(w)
    _agrees_in_blocks(LargeShape((), 6, 6), y=ops.matmul(ops.transpose(square), ops.tanh(w)))


def test_rows_in_another_order_are_not_those_of_a_block() -> None:
    q, k, v = _floats((9, 2), (2, 7), (7, 3))
    scores = ops.matmul(q, k)
    turned = ops.flip(ops.max(scores, axis=-1, keepdims=True), axis=0)
    _agrees_in_blocks(LargeShape((), 9, 7), y=ops.matmul(scores, v), z=turned * 2.0)
    _agrees_in_blocks(LargeShape((), 9, 7), y=ops.matmul(scores - turned, v))


def test_hidden_columns_are_not_computed() -> None:
    def seen(graph: Graph, shape: LargeShape) -> list[int]:
        [group] = groups(graph, shape)[0]
        return list(visible_columns(group, segments(shape.rows, 4, 4)).values())

    assert seen(*attention(1, 1, 32, 32, 2, causal=True)) == [8, 16, 24, 32]
    assert seen(*attention(1, 1, 32, 20, 2, (32, 20), causal=True)) == [8, 16, 20]
    assert seen(*attention(1, 1, 32, 32, 2, (32, 32))) == [32]
    q = leaf("input", "q", (16, 2), "float64")
    lower = constant(np.tri(16, 40, 3, dtype=bool))
    ahead = ops.iota((16, 40), 1) - ops.iota((16, 40), 0)  # a window of so many columns
    k, v = (leaf("input", n, (40, 2), "float64") for n in "kv")
    for shown in (lower, ops.less(ahead, 4), ops.where(ops.greater(ahead, 3), False, True)):
        graph = Graph({"y": ops.attention(q, k, v, shown)})
        assert seen(graph, LargeShape((), 16, 40)) == [11, 19]


def test_rules() -> None:
    """Large shapes are cut into rows that the L2 cache holds; weights and small ones are not."""
    def product(m: int, n: int, k: int, role: str = "input") -> tuple[Graph, LargeShape]:
        a, b = leaf("input", "a", (m, k), "float32"), leaf(role, "b", (k, n), "float32")
        y = ops.matmul(ops.softmax(ops.matmul(a, b)), leaf("input", "c", (n, k), "float32"))
        return passes.run(Graph({"y": y})), LargeShape((), m, n)

    grid = Limits(0, 16, False, grid=GridLimits())
    assert not is_blocked(*product(256, 256, 64))  # the graph itself
    for sizes, limits, expected in (
            ((256, 256, 64), ZEN3, True), ((255, 256, 64), ZEN3, False),
            ((256, 256, 65), ZEN3, False), ((256, 256, 64), grid, False),
            ((1 << 16, 1 << 15, 64), grid, True), ((1 << 16, 1 << 14, 64), grid, False), ((64, 1 << 12, 257), ZEN3, False),
            ((1024, 1024, 64, "state"), ZEN3, False)):
        graph, shape = product(*sizes)
        assert is_blocked(in_blocks(graph, limits), shape) == expected, sizes


@pytest.mark.parametrize("backward", [False, True])
def test_memory_grows_with_the_length(backward: bool) -> None:
    """16,384 positions take twice the memory of 8,192; their scores alone would be 2 GiB."""
    arenas = []
    for length in (1 << 13, 1 << 14):
        graph, _ = attention(2, 1, length, length, 64, causal=True, backward=backward,
                             dtype="float32", batch=1)
        [plan] = plan_functions({"f": graph}, TARGETS["avx2"], Params(ZEN3), Watch()).values()
        arenas.append(plan.arena)
    assert arenas[1] < 2.01 * arenas[0]
    assert arenas[1] < (160 if backward else 56) << 20
