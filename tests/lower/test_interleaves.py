"""Stacks: one kernel computes all parts and stores them in turns, or in runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.parity import HERE, NARROW, WIDE, Job, Module, agree, interpreted, plan_of
from ztorch import ops
from ztorch.dtypes import f32
from ztorch.graph.op import constant, leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import GridLimits, Limits
from ztorch.ir.text import show
from ztorch.lower.insets import INTERLEAVED
from ztorch.lower.rewrites.frozen import Derived

GRID = Limits(0, 16, True, grid=GridLimits(load_width=4, compute_units=1))  # a unit: few elements are enough
RANDOM = np.random.default_rng(4)


def given(name: str, *shape: int) -> tuple[Value, np.ndarray]:
    return leaf("input", name, shape, f32), RANDOM.normal(size=shape).astype(np.float32)


def rotated(x: Value, c: Value, s: Value) -> Value:
    """Neighbors turned, as models of other frameworks write it."""
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = ops.reshape(ops.stack(-odd, even, axis=-1), x.shape)
    return x * ops.repeat(c, 2, axis=-1) + turned * ops.repeat(s, 2, axis=-1)


def thirds(x: Value, c: Value, s: Value) -> Value:
    """Three parts; work on two stacks, on numbers and on another computed value."""
    one = ops.reshape(ops.stack(ops.exp(x), x, x * x, axis=-1), (*x.shape[:-1], 3 * x.shape[-1]))
    two = ops.reshape(ops.stack(x, x, ops.tanh(x), axis=-1), one.shape)
    return ops.maximum(one * 0.5 + two, ops.sin(ops.concat(x, x, x, axis=-1)))


def repeated(x: Value, c: Value, s: Value) -> Value:
    return ops.repeat(x, 4, axis=-1)


def dilated(x: Value, c: Value, s: Value) -> Value:
    """Zeros between computed elements."""
    wide = ops.pad(ops.expand_dims(ops.exp(x), -1), (0,) * 4, (0, 0, 0, 1))
    return ops.reshape(wide, (*x.shape[:-1], 2 * x.shape[-1]))


def parts_of_two(x: Value, c: Value, s: Value) -> Value:
    """A part of two elements, and one of none: a concatenation along a short axis that is no stack of ones."""
    rows = ops.reshape(ops.exp(x), (-1, 2))
    return ops.concat(ops.concat(rows, rows[:, :0], axis=1), rows[:, :1] * 2.0, axis=1)


def read_twice(x: Value, c: Value, s: Value) -> Value:
    """A stack that something else reads whole."""
    y = ops.reshape(ops.stack(ops.exp(x), x, axis=-1), (*x.shape[:-1], 2 * x.shape[-1]))
    return ops.reshape(y * 2.0, (-1,)) + ops.sum(y)


def of_products(x: Value, c: Value, s: Value) -> Value:
    """Work on a product stays with the product."""
    y = ops.matmul(ops.transpose(c), c)
    return y + ops.reshape(ops.stack(*[ops.tanh(s[:y.shape[0], ::2])] * 2, axis=-1), y.shape)


def of_four_and_two(x: Value, c: Value, s: Value) -> Value:
    """Work on a stack of four parts and on one of two that is broadcast."""
    four = ops.reshape(ops.stack(ops.exp(x), x, -x, x * x, axis=-1), (*x.shape[:-1], 4 * x.shape[-1]))
    two = ops.stack(*[ops.concat(*[f(c)] * 4, axis=-1) for f in (ops.tanh, ops.sin)], axis=-1)
    return four * ops.reshape(two, (c.shape[0], 8 * c.shape[1]))


def butterflies(x: Value, c: Value, s: Value) -> Value:
    """Sums and differences of the same rows, in runs, and again from these runs."""
    for _turn in range(2):
        rows = [ops.reshape(x, (2, -1, c.shape[1]))[k] for k in range(2)]
        x = ops.stack(rows[0] + rows[1], (rows[0] - rows[1]) * 0.5, axis=1)
    return x


BODIES = [rotated, thirds, repeated, dilated, parts_of_two, read_twice, of_products, of_four_and_two,
          butterflies]


def job(body: Callable[..., Value], positions: int, features: int) -> Job:
    (x, a), (c, b), (s, d) = (given("x", 2, positions, features), given("c", positions, features // 2),
                              given("s", positions, features // 2))
    return Job(Graph({"y": body(x, c, s)}), {x: a, c: b, s: d}, body.__name__)


@together()
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_values(body: Callable[..., Value]) -> None:
    for shape in ((5, 4), (9, 12), (17, 36)) if body is not of_products else ((12, 16),):
        j = job(body, *shape)
        for level in {HERE[0], HERE[-1]}:
            agree(j, Module([j], level).run(0), terms=20)
        agree(j, interpreted(j, NARROW, workers=2), terms=20)


@pytest.mark.parametrize(("body", "stores"), [(rotated, 2), (thirds, 3), (repeated, 4), (dilated, 2)],
                         ids=lambda p: getattr(p, "__name__", ""))
def test_one_kernel_stores_whole_vectors(body: Callable[..., Value], stores: int) -> None:
    plan = plan_of(job(body, 16, 64).graph, WIDE)[0]
    text = show(plan.steps[-1].kernel)
    assert len(plan.steps) == 1 + (body is thirds) and "gather" not in text and "scatter" not in text, text
    assert sum(" store " in f" {line}" for line in text.splitlines()) == stores


def test_runs_do_not_overwrite_what_later_ones_read() -> None:
    """The second run reads the place of the first one in a value that nothing else reads."""
    (x, a), (w, b) = given("x", 2, 64), given("w", 64)
    y = ops.reshape(ops.cumsum(ops.exp(x), axis=1), (2, 64))
    runs = ops.stack(w * 2.0, y[0] + w, axis=0)
    j = Job(Graph({"y": runs}), {x: a, w: b}, "runs")
    for level in {HERE[0], HERE[-1]}:
        agree(j, Module([j], level).run(0), terms=64)


def test_one_kernel_computes_runs_from_the_same_numbers() -> None:
    """Unrelated parts are kernels of their own, as are those of several shapes."""
    plan = plan_of(job(butterflies, 16, 64).graph, WIDE)[0]
    assert len(plan.steps) == 2
    for step in plan.steps:
        text = show(step.kernel)
        assert "gather" not in text and "scatter" not in text and "mask" not in text
        assert sum(" store " in f" {line}" for line in text.splitlines()) == 2
    (x, _), (c, _) = given("x", 32, 64), given("c", 32, 64)
    apart = Graph({"y": ops.exp(ops.reshape(ops.concat(ops.sin(x), ops.tanh(c), axis=0), (64, 64)))})
    assert len(plan_of(apart, WIDE)[0].steps) > 1


def every_third(x: Value, c: Value, s: Value) -> Value:
    """The second of each three, whose last vector ends at the end of x."""
    rows = ops.reshape(x, (-1, 12))
    return ops.exp(rows[:, 1::3]) + rows[:, 2::3]


def odd_start(x: Value, c: Value, s: Value) -> Value:
    """Places from the third on, of which no vector begins at a multiple of four."""
    return x[..., 2::2] * 2.0


def five_apart(x: Value, c: Value, s: Value) -> Value:
    return ops.reshape(x, (-1, 5))[:, 0] + 1.0


@together()
@pytest.mark.parametrize("body", [*BODIES, every_third, odd_start, five_apart], ids=lambda f: f.__name__)
def test_values_on_a_grid(body: Callable[..., Value]) -> None:
    """Threads with four neighbors, and where rows have no multiple of four, with one."""
    for shape in ((30, 144), (60, 90)) if body is not of_products else ((48, 64),):
        j = job(body, *shape)
        agree(j, interpreted(j, GRID), terms=20)


@together()
@pytest.mark.parametrize(("body", "loads", "stores"), [
    (rotated, 4, 2), (repeated, 1, 4), (dilated, 1, 2), (every_third, 3, 1), (odd_start, 0, 0)],
    ids=lambda p: getattr(p, "__name__", ""))
def test_threads_of_a_grid_store_whole_vectors(body: Callable[..., Value], loads: int, stores: int) -> None:
    """Loads and stores of four elements at once, from places where 16 bytes begin; no other access."""
    kernel = plan_of(job(body, 32, 192).graph, GRID)[0].steps[-1].kernel
    vectors = [i.opcode for i in kernel.body if i.opcode in ("load", "store") and i.attrs["align"] == 16]
    assert (vectors.count("load"), vectors.count("store")) == (loads, stores)
    assert not vectors or len(vectors) == sum(i.opcode in ("load", "store") for i in kernel.body)


def test_stacks_of_constants_run_once_when_the_program_is_loaded() -> None:
    """NumPy computes constants while a program is compiled, but no op that lowering makes."""
    turns = constant(RANDOM.normal(size=(3, 40)).astype(np.float32))
    x = leaf("input", "x", (3, 40, 2), f32)
    y = x * INTERLEAVED(turns * 2, turns + 1, shape=(3, 40, 2), run=1)
    derived = Derived()
    derived.take(Graph({"y": y}))
    assert [v.op for v in derived.updates.values()] == [INTERLEAVED]
