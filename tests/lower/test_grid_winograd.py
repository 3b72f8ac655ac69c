"""Convolutions of 3 x 3 windows that are transformed on grids: values, gradients, and where they are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases.device_programs import Module
from tests.cases.winograd import CASES, convolutions, right
from tests.machines.ptx.running import through_ptx
from tests.parity import GROUPS, SUBGROUPS, Job, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS, Target
from ztorch.dtypes import DType, f16, f32
from ztorch.graph import passes
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Op, Value
from ztorch.lower.grid import winograd_time
from ztorch.lower.grid.split_k import short_parts
from ztorch.lower.rewrites import winograd
from ztorch.lower.rewrites.prepare import prepare
from ztorch.lower.schedule import IllegalSchedule
from ztorch.lower.tuning import PRODUCT_DEPTH

HOPPER = TARGETS["cuda:sm_90a"]


@pytest.fixture
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it does not pay: small shapes."""
    monkeypatch.setattr(winograd_time, "TRANSFORM_GAIN", 1e9)
    monkeypatch.setattr(winograd, "TRANSFORM_CHANNELS", 1)


def images(batch: int, side: int, channels: int, filters: int, *, d: DType = f32) -> tuple[Value, Value]:
    return (leaf("input", "x", (batch, side, side, channels), d),
            leaf("input", "k", (3, 3, channels, filters), d))


def ops_of(graph: Graph, target: Target) -> set[Op]:
    return {v.op for v in prepare(passes.run(graph), target.limits).nodes()}


def forward(target: Target, batch: int, side: int, channels: int, filters: int, d: DType = f32, **how: Any) -> bool:
    x, k = images(batch, side, channels, filters, d=d)
    y = ops.conv(x, k, **{"padding": "same", **how})
    return winograd.TILES in ops_of(Graph({"y": y}), target)


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize(("limits", "training"), [(GROUPS, False), (SUBGROUPS, True)])
def test_odd_sizes(limits: Any, training: bool) -> None:
    """On the interpreter, which finds races and reads outside of a buffer."""
    cases = CASES[2:5] if training else CASES
    one = convolutions(training, cases)
    steps = plan_of(one.alone("j0"), limits)[0].parts
    assert sum("results" in s.key for s in steps) >= len(cases)
    assert sum("kernel_slopes" in s.key for s in steps) == training * len(cases)
    right(one, interpreted(one, limits))


@pytest.mark.usefixtures("_always")
def test_ptx_of_transforms() -> None:
    one = convolutions(training=True, cases=CASES[3:4])
    right(one, interpreted(one, HOPPER.limits, by=lambda k, held: through_ptx(k, held, "sm_90a")))


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("backend", ["opencl", "vulkan", "webgpu"])
def test_devices(backend: str) -> None:
    one = convolutions(training=True, cases=CASES[2:3])
    right(one, Module([one], backend).run(0))


@pytest.mark.usefixtures("_always")
def test_vectors_of_channels() -> None:
    """Threads may have four neighboring channels, if all sizes are multiples of four."""
    for cases, able in ((((((1, 6, 7), (8, 4), "same"),), True), ((((1, 6, 7), (8, 5), "same"),), False))):
        one = convolutions(True, cases)
        steps = [s for s in plan_of(one.alone("j"), HOPPER.limits)[0].parts if repr(s.schedule).startswith("grid_winograd")]
        assert len(steps) == 9
        wide = {s.key: "grid_winograd threads(64) width(4)" for s in steps}
        if able:
            right(one, interpreted(one, HOPPER.limits, schedules=wide))
        else:
            with pytest.raises(IllegalSchedule, match="aligned neighbors"):
                plan_of(one.alone("j"), HOPPER.limits, schedules=wide)


@pytest.mark.usefixtures("_always")
def test_gradients_are_finite_differences() -> None:
    """Of a sum of squares, along a random direction, in float64."""
    rng = np.random.default_rng(3)
    x, k = images(2, 7, 3, 5)
    y = ops.conv(x, k, padding="same")
    slopes = gradients(ops.sum(ops.square(y)) * 0.5, [x, k])
    graph = Graph(dict(zip(("dx", "dk"), slopes, strict=True)))
    feeds = {v: rng.standard_normal(v.shape).astype(np.float32) for v in (x, k)}
    along = {v: rng.standard_normal(v.shape) for v in feeds}

    def loss(step: float) -> float:
        image, kernel = (feeds[v].astype(np.float64) + step * along[v] for v in (x, k))
        wide = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
        result = sum(wide[:, i:i + 7, j:j + 7] @ kernel[i, j] for i in range(3) for j in range(3))
        return float((result ** 2).sum() / 2)

    got = interpreted(Job(graph, feeds), SUBGROUPS)
    slope = sum(float((g * along[v]).sum()) for g, v in zip(got, (x, k), strict=True))
    step = 1e-4
    assert slope == pytest.approx((loss(step) - loss(-step)) / (2 * step), rel=1e-4)


@pytest.mark.parametrize("target", ["cuda:sm_75", "cuda:sm_90a", "metal", "rocm:gfx1100", "vulkan", "webgpu"])
def test_where_it_pays(target: str) -> None:
    there = TARGETS[target]
    assert forward(there, 64, 28, 128, 128) and forward(there, 64, 14, 256, 256)
    assert not forward(there, 1, 14, 256, 256)  # the kernel at all points costs more than it saves
    assert not forward(there, 64, 56, 3, 64) and not forward(there, 1, 28, 32, 32)


def test_little_bandwidth_is_no_place_for_transforms() -> None:
    """An L4 has five times as many multiply-adds for each byte as an A100."""
    assert forward(TARGETS["cuda:sm_80"], 64, 56, 64, 64) and not forward(TARGETS["cuda:sm_89"], 64, 56, 64, 64)


def test_what_is_not_transformed() -> None:
    usual = 8, 28, 128, 128
    assert forward(HOPPER, *usual)
    assert not forward(HOPPER, *usual, d=f16) and not forward(HOPPER, *usual, stride=2)
    for precision in ("exact", "high", "tf32"):
        assert not forward(HOPPER.with_precision(precision), *usual)
    assert not forward(TARGETS["rocm:gfx942"], *usual)  # its matrix instructions multiply float32
    points = winograd.POINTS * 8 * 7 * 7 * 128
    for limit, unit in (("max_buffer_elements", 1), ("max_buffer_bytes", 4)):
        assert forward(HOPPER.on_device({limit: points * unit}), *usual)
        assert not forward(HOPPER.on_device({limit: points * unit - 1}), *usual)


def test_gradients_of_kernels() -> None:
    def chosen(batch: int, down: int, across: int, channels: int, target: Target = HOPPER) -> bool:
        x, k = leaf("input", "x", (batch, down, across, channels), f32), leaf("input", "k", (3, 3, channels, channels), f32)
        [slope] = gradients(ops.sum(ops.square(ops.conv(x, k, padding="same"))), [k])
        return winograd.KERNEL_SLOPES in ops_of(Graph({"y": slope}), target)

    assert chosen(64, 56, 56, 64) and chosen(64, 14, 14, 256) and chosen(1, 4, 4 * 16_384, 64)
    assert not chosen(1, 14, 14, 256)
    assert not chosen(1, 4, 4 * 16_411, 64)  # so many tiles have no equal parts
    parts = 2 * winograd.POINTS * 2048 * 2048  # more elements than those of 2,304 tiles
    for limit in (parts, parts - 1):
        assert chosen(2304, 4, 4, 2048, HOPPER.on_device({"max_buffer_elements": limit})) == (limit == parts)


def test_sums_over_many_tiles_are_short() -> None:
    """Inverse transforms magnify errors: sums of 3,136 products would be off by 1e-5 of the largest."""
    a, b = (leaf("input", n, shape, f32) for n, shape in (("a", (36, 64, 12544)), ("b", (36, 12544, 64))))
    product = ops.matmul(a, b)
    for target in ("cuda:sm_75", "cuda:sm_90a", "vulkan"):
        grid = TARGETS[target].limits.grid
        assert grid is not None
        parts = short_parts(product, grid)
        assert 12544 % parts == 0 and 12544 // parts <= PRODUCT_DEPTH
