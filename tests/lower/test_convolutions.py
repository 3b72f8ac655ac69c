"""Convolutions of odd sizes in one program, against their definition."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.cases.attention import fed
from tests.parity import HERE, NARROW, WIDE, Job, Module, agree, compiled, interpreted, plan_of
from ztorch import ops
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.correlation import CorrelationSchedule
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index
from ztorch.lower.rewrites.prepare import prepare
from ztorch.lower.schedule import SlidingSchedule
from ztorch.machines.processors import processor

# (batch, rows, columns, channels), (window, channels / groups, filters), and the rest
CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 5, 7, 9), (3, 3, 9, 17), {"padding": "same"}),
    ((1, 13, 13, 8), (3, 3, 8, 33), {"padding": ((1, 1), (1, 1)), "stride": 2}),
    ((1, 11, 29, 3), (5, 5, 3, 16), {"padding": "same", "stride": (2, 3)}),
    ((2, 9, 10, 4), (3, 3, 4, 24), {"dilation": (2, 3)}),
    ((1, 7, 7, 64), (3, 3, 64, 16), {"padding": "same"}),
    ((1, 7, 7, 8), (3, 3, 8, 64), {"padding": "same"}),
    ((1, 6, 23, 8), (1, 1, 8, 40), {"stride": 2}),
    ((1, 8, 9, 12), (3, 3, 4, 18), {"groups": 3, "padding": "same"}),
    ((1, 9, 11, 19), (3, 3, 1, 19), {"groups": 19, "padding": "same"}),
    ((2, 12, 10, 40), (5, 5, 1, 40), {"groups": 40, "padding": "same", "stride": 2}),
    ((1, 14, 9, 8), (3, 2, 1, 8), {"groups": 8, "dilation": (2, 3), "padding": ((2, 2), (4, 0))}),
    ((1, 6, 5, 5), (3, 3, 1, 15), {"groups": 5, "padding": "same"}),
    ((1, 4, 71, 8), (3, 5, 1, 8), {"groups": 8, "padding": ((1, 0), (3, 2)), "stride": (1, 2)}),
    ((1, 12, 11, 8), (3, 3, 8, 16), {"dilation": (9, 8), "padding": ((9, 9), (8, 8))}),
    ((3, 17, 16), (5, 16, 8), {"padding": "same"}),
    ((1, 40, 6), (9, 1, 6), {"groups": 6, "padding": ((8, 0),)}),
)


def jobs(training: bool, first: bool) -> Job:
    """All cases in one graph; with channels `first`, images come and go in that order."""
    rng, outputs, feeds = np.random.default_rng(5), {}, dict[Value, np.ndarray]()

    def given(name: str, shape: tuple[int, ...]) -> Value:
        v = leaf("input", name, shape, f32)
        feeds[v] = rng.standard_normal(shape).astype(np.float32)
        return v

    for k, (shape, window, how) in enumerate(CASES):
        rank = len(shape)
        into, out = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
        x = given(f"x{k}", tuple(shape[a] for a in out) if first else shape)
        kernel = given(f"k{k}", window)
        y = ops.conv(ops.transpose(x, into) if first else x, kernel, **how)
        y = ops.relu((ops.transpose(y, out) if first else y) + 0.25)
        outputs[f"y{k}"] = y
        if training:
            slope = given(f"s{k}", y.shape)
            outputs[f"dx{k}"], outputs[f"dk{k}"] = gradients(ops.sum(y * slope), [x, kernel])
    image = given("image", (2, 7, 37, 11))
    outputs["largest"] = ops.max_pool(image, 3, 2, "same")
    outputs["mean"] = ops.average_pool(image, (2, 3), 1, ((1, 0), (1, 1)))
    return Job(Graph(outputs), feeds)


@pytest.mark.parametrize(("training", "first", "target", "threads"), [
    (True, False, HERE[-1], 2), (False, True, HERE[-1], 1), (False, False, HERE[0], 1)])
def test_odd_sizes(training: bool, first: bool, target: str, threads: int) -> None:
    job = jobs(training, first)
    agree(job, Module([job], target).run(0, threads), terms=600)


def test_windows_slide_over_no_border_in_memory() -> None:
    """Neither of images whose windows are summed, nor of those whose largest elements are taken."""
    image, kernel = leaf("input", "x", (2, 6, 40, 16), f32), leaf("state", "k", (3, 3, 1, 16), f32)
    outputs = {"y": ops.relu(ops.conv(image, kernel, 1, "same", groups=16)),
               "far": ops.conv(image, kernel, 1, "same", 2, groups=16),
               "largest": ops.max_pool(image, 3, 2, "same"),
               "mean": ops.average_pool(image, 3, 1, "same")}
    steps = plan_of(Graph(outputs), WIDE)[0].steps
    assert len(steps) <= len(outputs)
    assert {type(s.schedule) for s in steps} == {SlidingSchedule}
    assert max(m.size for s in steps for m in s.kernel.memories) == image.size


def test_kernel_gradients_sum_over_all_positions() -> None:
    """Of images whose borders are in no memory."""
    image, kernel = leaf("input", "x", (2, 20, 23, 32), f32), leaf("state", "k", (3, 5, 1, 32), f32)
    y = ops.conv(image, kernel, 1, "same", groups=32)
    [dk] = gradients(ops.sum(y * leaf("input", "slope", y.shape, f32)), [kernel])
    for limits in (WIDE, NARROW):
        [step] = plan_of(Graph({"dk": dk}), limits)[0].steps
        assert isinstance(step.schedule, CorrelationSchedule)
        assert max(m.size for m in step.kernel.memories) == image.size
    job = Job(Graph({"dk": dk}), fed(Graph({"dk": dk})))
    one, three = (compiled(job, HERE[-1], threads=n) for n in (1, 3))
    agree(job, one, terms=2 * 20 * 23)
    np.testing.assert_array_equal(one, three)


def test_input_gradients_of_strides_are_computed_in_place() -> None:
    """Each place between two windows is a convolution of its own, which writes to the output."""
    image, kernel = leaf("input", "x", (2, 12, 14, 16), f32), leaf("input", "k", (3, 3, 1, 16), f32)
    y = ops.conv(image, kernel, 2, "same", groups=16)
    [dx] = gradients(ops.sum(y * leaf("input", "slope", y.shape, f32)), [image])
    graph = Graph({"dx": dx})
    plan, _ = plan_of(graph, WIDE)
    assert sum("inset" in s.kernel.name for s in plan.steps) == 4
    assert plan.arena < y.size * 4 * 2  # a border around the slopes
    job = Job(graph, fed(graph))
    one, three = (compiled(job, HERE[-1], threads=n) for n in (1, 3))
    agree(job, one, terms=9)
    np.testing.assert_array_equal(one, three)
    agree(job, interpreted(job, NARROW, workers=3), terms=9)


def test_windows_across_cache_lines_are_copied() -> None:
    """A tile of a kernel's gradient reads six elements of a line in each step along positions."""
    x, kernel, slope = (leaf("input", name, shape, f32) for name, shape in (
        ("x", (1, 51, 47, 16)), ("kernel", (3, 3, 16, 264)), ("slope", (1, 26, 24, 264))))
    y = ops.conv(x, kernel, padding="same", stride=2)
    job = Job(Graph({"dk": gradients(ops.sum(y * slope), [kernel])[0]}), {})
    job.feeds.update(fed(job.graph))
    lefts = {}
    for lanes, registers in ((256, 16), (512, 32)):
        limits = Limits(lanes, registers, True, processor=processor("zen4"))
        [product] = (v for v in prepare(job.graph, limits).nodes() if v.op.kind == "contract")
        lefts[lanes] = product.args[0].op.name
    assert lefts[256] == "copy" != lefts[512]
    for target in HERE[-2:]:
        agree(job, compiled(job, target), terms=700)


@pytest.mark.parametrize(("stride", "l2_bytes"), [(1, 20_000), (2, 20_000), (1, 60_000), (1, 5_000)])
def test_rows_that_later_windows_read_first_are_prefetched(stride: int, l2_bytes: int,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the cache holds the image and the results, or not even the rows of a window."""
    fetched: list[tuple[Value, Index]] = []
    prefetch = Emitter.prefetch
    monkeypatch.setattr(Emitter, "prefetch", lambda e, v, flat, cache: (
        fetched.append((v, flat)), prefetch(e, v, flat, cache)))
    limits = replace(NARROW, processor=NARROW.processor._replace(l2_bytes=l2_bytes), vector_registers=16)
    image, kernel = (leaf("input", name, shape, f32) for name, shape in (("x", (2, 9, 40, 16)), ("k", (3, 3, 1, 16))))
    job = Job(Graph({"y": ops.conv(image, kernel, stride, ((1, 1), (1, 1)), groups=16)}), {})
    job = Job(job.graph, fed(job.graph))
    agree(job, interpreted(job, limits, workers=3), terms=9)
    if l2_bytes != 20_000:
        assert not fetched
        return
    places: dict[int, set[int]] = {}  # by row of windows: pixels whose lines are prefetched
    for v, flat in fetched:
        loops = [atom for atom, _ in flat.terms]
        for at in product(*(range(loop.extent) for loop in loops)):
            bound = dict(zip(loops, at, strict=True))
            pixel, channel = divmod(flat.replace({a: Index((), n) for a, n in bound.items()}).const, 16)
            places.setdefault(next(n for a, n in bound.items() if a.name == "o1"), set()).add(pixel)
            assert v.shape == image.shape and channel < 16
    for y in range(3):  # of both images
        pixels = {(y * stride + 2 + k) * 40 + column for k in range(stride) for column in range(40)}
        assert places[y] == pixels | {p + 360 for p in pixels}
