"""Values that kernels store in place in larger ones: no kernel pads or joins them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.parity import HERE, NARROW, WIDE, Job, Module, agree, compiled, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32, f64
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.rewrites.prepare import prepare


class Case:
    """A graph that takes an image, with kernels of convolutions as they are needed."""

    def __init__(self, *shape: int):
        self.rng, self.feeds = np.random.default_rng(3), dict[Value, Any]()
        self.x = self.given("x", shape)

    def given(self, name: str, shape: tuple[int, ...]) -> Value:
        v = leaf("input", name, shape, f32)
        self.feeds[v] = self.rng.normal(size=shape).astype(np.float32)
        return v

    def conv(self, x: Value, filters: int, size: int = 1, **how: Any) -> Value:
        groups = how.get("groups", 1)
        kernel = self.given(f"k{len(self.feeds)}", (size, size, x.shape[-1] // groups, filters))
        return ops.relu(ops.conv(x, kernel, padding="same", **how))

    def job(self, **outputs: Value) -> Job:
        return Job(Graph(outputs), self.feeds)


def strided() -> Job:
    """A border around the result of a product, read in steps."""
    c = Case(2, 9, 7, 16)
    return c.job(y=c.conv(c.conv(c.x, 16), 24, 3, stride=2))


def grouped() -> Job:
    """A border around sums over windows, and around a residual sum that others read as well."""
    c = Case(1, 6, 10, 32)
    y = c.conv(c.x, 32, 3, groups=32) + c.conv(c.x, 32)
    return c.job(y=c.conv(y, 32, 3, groups=2) + y)


def joined() -> Job:
    """Branches, of which one gives the largest elements of windows, joined in a border."""
    c = Case(1, 8, 6, 16)
    a, b = c.conv(c.x, 16), c.conv(c.x, 20)
    largest = ops.max_pool(c.conv(c.x, 16), 3, 1, "same")
    return c.job(y=c.conv(ops.concat(a, b, largest, axis=3), 8, 3, stride=2))


def nested() -> Job:
    """Joined arrays are joined once more, and each is read by itself."""
    c = Case(1, 5, 8, 16)
    y = c.conv(c.x, 16)
    for _ in range(3):
        y = ops.concat(y, c.conv(c.conv(y, 16), 16, 3), axis=3)
    return c.job(y=c.conv(y, 8))


def twice() -> Job:
    """A part that lies in two larger ones, one that comes twice, and one that is an input."""
    c = Case(1, 4, 6, 16)
    a, b = c.conv(c.x, 16), c.conv(c.x, 32)
    first, second = ops.concat(a, b, a, axis=3), ops.concat(b, c.x, a, axis=3)
    return c.job(y=c.conv(first, 8), z=c.conv(second, 8), a=a)


def rows() -> Job:
    """Rows of matrices joined, and filled up with something else than zeros."""
    c = Case(6, 16)
    w = c.given("w", (16, 16))
    both = ops.concat(ops.tanh(ops.matmul(c.x, w)), ops.exp(ops.matmul(c.x, w)), axis=0)
    wide = ops.pad(ops.matmul(both, w), (1, 0), (2, 0), value=-2.0)
    return c.job(y=ops.matmul(wide, w))


def trained() -> Job:
    """Gradients of a join in a border: cut from that of the whole."""
    c = Case(1, 6, 7, 16)
    a, b = c.conv(c.x, 16), c.conv(c.x, 16, 3)
    loss = ops.sum(c.conv(ops.concat(a, b, axis=3), 16, 3, stride=2) ** 2)
    kernels = [v for v in c.feeds if v is not c.x]
    slopes = gradients(loss, [c.x, *kernels])
    return c.job(**{f"d{k}": s for k, s in enumerate(slopes)})


JOBS = {make.__name__: make() for make in (strided, grouped, joined, nested, twice, rows, trained)}


def kernels_of(job: Job) -> list[str]:
    return [step.kernel.name for step in plan_of(job.graph, WIDE)[0].steps]


@pytest.mark.parametrize("name", JOBS)
def test_values_are_those_of_the_graph(name: str) -> None:
    """Also where workers drift apart as far as meetings let them."""
    for limits in (NARROW, WIDE):
        agree(JOBS[name], interpreted(JOBS[name], limits, workers=2, backwards=True), terms=300)


def test_compiled_code_agrees() -> None:
    module = Module([*JOBS.values()], HERE[-1])
    for number, job in enumerate(JOBS.values()):
        one, two = (module.run(number, threads) for threads in (1, 2))
        agree(job, one, terms=300)
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(("name", "borders"), [
    ("strided", 1), ("grouped", 1), ("joined", 1), ("nested", 3), ("rows", 1)])
def test_no_kernel_pads_or_joins(name: str, borders: int) -> None:
    names = kernels_of(JOBS[name])
    assert not [n for n in names if "_pad_" in n or "_concat_" in n or n.split("_")[1] == "inset"]
    assert sum("border" in n for n in names) == borders


def test_gradients_of_concatenated_values_are_read_in_place() -> None:
    """Only the border of the image and values with other readers are stored."""
    names = kernels_of(JOBS["trained"])
    assert not [n for n in names if "_concat_" in n or "_slice_" in n]


def test_concatenated_values_are_stored_once() -> None:
    """The arena of a dense block: all joined values, and temporaries."""
    plan = plan_of(JOBS["nested"].graph, WIDE)[0]
    whole = 5 * 8 * 64 * f32.bytes
    assert max(size for _, buffer, _ in plan.buffers for size in [buffer.size]) == whole
    assert plan.arena <= whole + 2 * 5 * 8 * 16 * f32.bytes


def test_few_elements_side_by_side_are_joined_by_a_kernel() -> None:
    """Parts of rows that are shorter than a vector."""
    c = Case(1, 4, 6, 16)
    whole = ops.concat(c.conv(c.x, 3), c.conv(c.x, 5), axis=3)
    assert any("concat" in n for n in kernels_of(c.job(y=c.conv(whole, 16))))


def test_reduced_product_rows_avoid_page_strides() -> None:
    """Tiles store scores in longer rows, unless the scores are a result themselves, or depend on a
    reduction, after which no tile stores them."""
    def insets(graph: Graph) -> list[tuple[int, ...]]:
        return [v.shape for v in prepare(graph, TARGETS[HERE[-1]].limits).nodes() if v.op.name == "inset"]

    c = Case(9, 3)
    scores = ops.where(c.given("m", (9, 1024)) > 0.0, ops.matmul(c.x, c.given("b", (3, 1024))) * 0.5, -9.0)
    weights = ops.exp(scores - ops.max(scores, axis=1, keepdims=True))
    rows = ops.sum(weights * c.given("d", (9, 1024)), axis=1) / ops.sum(weights, axis=1)
    job = c.job(y=rows)
    assert insets(job.graph) == [(9, 1040)] and not insets(c.job(y=rows, s=scores).graph)
    got = compiled(job, HERE[-1])
    agree(job, got, terms=2000)
    agree(job, compiled(c.job(y=rows, s=scores), HERE[-1])[:1], got, terms=2000)


@pytest.mark.parametrize("step", [3, 4])
def test_elements_far_apart_are_read_up_to_the_last(step: int) -> None:
    """Vectors of two lanes, whose distance is larger, end at the last element that is read."""
    a, x = leaf("input", "a", (8,), f64), leaf("input", "x", (7 * step + 1,), f64)
    numbers = np.random.default_rng(step)
    y = ops.stack(a * 2.0, ops.slice_by(x, slice(None, None, step)), axis=1)
    job = Job(Graph({"y": y}), {v: numbers.normal(size=v.shape) for v in (a, x)})
    agree(job, interpreted(job, NARROW))
