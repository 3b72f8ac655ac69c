"""Fusion: expected numbers and kinds of kernels for the shapes of work we care about."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from tests.parity import SCALAR, WIDE, Job, agree, interpreted, plan_of
from ztorch import layers as L
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32, i32
from ztorch.graph import passes
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.fuse import fuse
from ztorch.lower.plan import Plan
from ztorch.lower.region import Region
from ztorch.lower.rewrites.prepare import prepare
from ztorch.model.sequential import Sequential
from ztorch.model.trace import trace
from ztorch.optimizers import Adam


def _input(name: str, *shape: int) -> Value:
    return leaf("input", name, shape, f32)


def regions(roots: dict[str, Value], enabled: bool = True) -> list[Region]:
    return fuse(prepare(passes.run(Graph(roots)), WIDE), enabled)


def kinds(roots: dict[str, Value]) -> list[str]:
    return [r.kind for r in regions(roots)]


def traced(function: str) -> tuple[Graph, Plan]:
    model = Sequential([L.Input((20,)), L.Dense(32, activation="relu", name="first"),
                        L.Dense(16, activation="relu", name="second"),
                        L.Dense(5, activation="softmax", name="third")], name="mlp", seed=1)
    graph = trace(model, 8, Adam(), "sparse_categorical_crossentropy").functions[function]
    return graph, plan_of(graph, WIDE)[0]


def test_an_mlp_predicts_in_a_kernel_a_layer_and_a_softmax() -> None:
    _, plan = traced("predict")
    names = [s.kernel.name for s in plan.steps]
    assert len(names) == 4, names
    for name, layer in zip(names, ("first", "second", "third", "third"), strict=True):
        assert layer in name
    assert [s.kernel.origin[-1] for s in plan.steps] == ["first", "second", "third", "third"]


def test_softmax_is_one_kernel() -> None:
    x = _input("x", 7, 33)
    assert kinds({"y": ops.softmax(x)}) == ["reduce"]
    assert kinds({"y": ops.log_softmax(ops.exp(x * 2.0))}) == ["reduce"]
    assert kinds({"y": ops.softmax(_input("x", 2, 3, 4, 9))}) == ["reduce"]


def test_layer_normalization_is_one_kernel() -> None:
    x, gain, shift = _input("x", 7, 33), _input("gain", 33), _input("shift", 33)
    assert kinds({"y": ops.standardize(x) * gain + shift}) == ["reduce"]


def test_a_loss_is_one_kernel_for_rows_and_one_for_their_sum() -> None:
    x, y = _input("x", 64, 10), _input("y", 64, 10)
    loss = ops.mean(-ops.sum(y * ops.log_softmax(x), axis=1))
    assert kinds({"loss": loss}) == ["reduce", "reduce"]


@pytest.mark.parametrize("shape", [(9,), (3, 5), (2, 3, 4), (2, 3, 4, 5)], ids=str)
def test_elementwise_work_of_any_rank_is_one_kernel(shape: tuple[int, ...]) -> None:
    x, y = _input("x", *shape), _input("y", *shape)
    z = ops.tanh(x * y + 1.0)
    assert kinds({"a": z, "b": z - ops.reshape(ops.reshape(x, (-1,)), shape)}) == ["map"]


def test_ops_after_a_product_are_its_epilogue() -> None:
    a, b, bias = _input("a", 6, 7), _input("b", 7, 8), _input("bias", 8)
    assert kinds({"y": ops.gelu(ops.matmul(a, b) + bias)}) == ["contract"]


def test_a_product_never_shares_a_kernel_with_its_operands() -> None:
    """It reads them everywhere, so they must be complete."""
    s, x, b = (_input(n, 3, 3) for n in "sxb")
    m = ops.maximum(s, x)
    y = ops.where(s > x, ops.matmul(m, b), s)
    result = regions({"y": y})
    for r in result:
        product = [v for v in r.members if v.op.kind == "contract"]
        assert not product or not set(product[0].args) & set(r.members)


def test_regions_that_cannot_share_a_kernel_stay_separate() -> None:
    def members(root: Value) -> list[list[str]]:
        return [[v.op.name for v in r.members] for r in regions({"y": root})]

    x, w = _input("x", 6, 6), _input("w", 6, 6)
    early = ops.exp(x)
    assert members(early * ops.matmul(early, x)) == [["exp"], ["matmul", "mul"]]  # the product's own operand
    later = ops.matmul(ops.matmul(early, w), w)
    assert members(early + later) == [["exp"], ["matmul"], ["matmul", "add"]]  # another product is between
    turned = ops.tanh(x) + ops.transpose(ops.tanh(x)) * 2.0
    assert members(turned) == [["tanh"], ["mul", "add"]]  # read at two positions


def test_adam_is_the_epilogue_of_the_gradient() -> None:
    """No kernel of the step only updates weights: those of a product live in its epilogue."""
    graph, plan = traced("train")
    kernels = {s.kernel.name: s for s in plan.steps}
    writers = [s for s in plan.steps if any(
        w and p.space == "params" for p, w in zip(s.locations, s.writes, strict=True))]
    assert len([n for n in graph.updates if "/kernel" in n]) == 9  # with both moments
    products = [n for n, s in kernels.items() if s in writers and "matmul" in n]
    assert len(products) == 3, list(kernels)
    assert len(plan.steps) <= 20, list(kernels)


def test_without_fusion_every_value_has_its_own_kernel() -> None:
    x = _input("x", 4, 4)
    y = ops.exp(x) * 2.0 + ops.sum(x)
    whole = regions({"y": y}, enabled=False)
    assert all(len(r.members) == 1 for r in whole)
    assert len(whole) > len(regions({"y": y}))


def test_kernels_run_after_their_inputs() -> None:
    x = _input("x", 5, 5)
    y = ops.softmax(ops.matmul(ops.softmax(x), x)) + ops.sum(ops.matmul(x, x), axis=0)
    result = regions({"y": y})
    home = {v: k for k, r in enumerate(result) for v in r.members}
    for k, r in enumerate(result):
        for v in r.members:
            assert all(home[a] <= k for a in v.args if a in home)


@pytest.mark.parametrize("limits", (SCALAR, WIDE), ids=("scalar", "wide"))
def test_a_diamond_through_another_kernel_is_not_closed(limits: object) -> None:
    """b depends on a through a product, so a and b cannot run as one."""
    x = _input("x", 6, 6)
    a = ops.exp(x)
    b = a * ops.matmul(a, x)
    job = Job(Graph({"b": b, "c": b + ops.sum(a)}),
              {x: np.random.default_rng(0).normal(size=(6, 6))})
    agree(job, interpreted(job, limits), terms=36)  # type: ignore[arg-type]


@pytest.mark.parametrize("most", (6, 8, 16))
def test_a_kernel_names_no_more_memories_than_the_machine_allows(most: int) -> None:
    """A gradient's common norm asks for every gradient; so does a flag that all of them are finite."""
    grid = TARGETS["vulkan"].limits.grid
    limits = replace(TARGETS["vulkan"].limits, grid=replace(grid, max_buffers=most))  # type: ignore[type-var]
    parts = [_input(f"x{k}", 3) for k in range(21)]
    total = functools.reduce(ops.add, (ops.sum(x * x) for x in parts))
    shrunk = {f"y{k}": x / total for k, x in enumerate(parts)}
    job = Job(Graph({"total": total, **shrunk}),
              {x: np.random.default_rng(k).normal(size=3) for k, x in enumerate(parts)})
    plan = plan_of(job.alone("j"), limits)[0]
    assert all(len(step.locations) <= most for step in plan.steps)
    agree(job, interpreted(job, limits), terms=63)


@pytest.mark.parametrize(("channels", "kernels"), [(4, 2), (5, 3)])  # one makes positions good
@pytest.mark.parametrize("last", [(), (1,)])
def test_rows_that_are_looked_up_often_are_copied_where_they_are_strided(
        channels: int, kernels: int, last: tuple[int, ...]) -> None:
    """Up to four numbers of a row are read where they lie."""
    x, at = leaf("input", "x", (channels, 6), f32), leaf("input", "at", (9,), i32)
    table = ops.reshape(ops.transpose(x), (6, channels, *last))
    graph = Graph({"y": ops.take(table, at, 0)})
    random = np.random.default_rng(0)
    job = Job(graph, {x: random.normal(size=x.shape).astype(np.float32), at: random.integers(0, 6, 9).astype(np.int32)})
    assert len(plan_of(graph, WIDE)[0].steps) == kernels
    agree(job, interpreted(job, WIDE))
