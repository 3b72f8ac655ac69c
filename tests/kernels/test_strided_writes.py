"""Writes to every second, third or fourth element: the new array is put together from parts, without masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import COMPUTING
from tests.cases.device_programs import all_agree
from tests.cases.grouping import together
from tests.parity import HERE, NARROW, WIDE, C, Job, Module, agree, interpreted, plan_of
from ztorch import ops
from ztorch.dtypes import DType, boolean, dtype, f32, f64
from ztorch.graph.autodiff import gradients, pullback
from ztorch.graph.op import constant, leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.text import show


@zt.kernel
def pairs(x):
    out = np.zeros(x.shape, x.dtype)
    for i, d in zt.grid(x.shape[0], x.shape[1] // 2):
        a, b = x[i, 2 * d], x[i, 2 * d + 1]
        out[i, 2 * d] = a * 2.0 - b
        out[i, 2 * d + 1] = a + b
    return out


@zt.kernel
def one_slot(x):
    """The others stay, and the last period is cut off."""
    out = x * 1.0
    for i, d in zt.grid(x.shape[0], (x.shape[1] + 2) // 3):
        out[i, 3 * d] = x[i, 3 * d] * 3.0
    return out


@zt.kernel
def backwards(x):
    """Four places of a period, in another order."""
    out = np.zeros(x.shape, x.dtype)
    last = x.shape[1] // 4 - 1
    for i, d in zt.grid(x.shape[0], last + 1):
        out[i, 4 * (last - d) + 3] = x[i, d]
        out[i, 4 * d + 1] = x[i, d] + 1.0
        out[i, 4 * d] = x[i, d] * x[i, 0]
        out[i, 4 * d + 2] = 5.0
    return out


@zt.kernel
def part_of_a_row(x):
    """Periods that start at element 3, so that the places of one are in two multiples of three."""
    out = np.full(x.shape, 7.0, x.dtype)
    for i, d in zt.grid(x.shape[0], x.shape[1] // 3 - 2):
        out[i, 3 * d + 5] = x[i, d]
        out[i, 3 * d + 3] = x[i, d] * 2.0
        out[i, 3 * d + 4] = x[i, d] * 4.0
    return out


@zt.kernel
def corners(x):
    """Two axes: the four places of a square."""
    rows, columns = x.shape
    out = np.empty((2 * rows, 2 * columns), x.dtype)
    for i, j in zt.grid(rows, columns):
        out[2 * i, 2 * j] = x[i, j]
        out[2 * i + 1, 2 * j] = -x[i, j]
        out[2 * i + 1, 2 * j + 1] = x[i, j] * x[i, j]
        out[2 * i, 2 * j + 1] = x[i, j] * 0.5
    return out


@zt.kernel
def halves_of_heads(x):
    """Runs of four neighbors in periods of eight."""
    out = np.empty_like(x)
    for i, h, d in zt.grid(x.shape[0], x.shape[1] // 8, 4):
        a, b = x[i, 8 * h + d], x[i, 8 * h + 4 + d]
        out[i, 8 * h + d] = a * 2.0 - b
        out[i, 8 * h + 4 + d] = a + b
    return out


@zt.kernel
def conditional(x):
    out = x * 1.0
    for i, d in zt.grid(x.shape[0], x.shape[1] // 2):
        if x[i, 2 * d] > 0.0:
            out[i, 2 * d + 1] = x[i, 2 * d]
    return out


@zt.kernel
def sums(x):
    out = np.ones(x.shape, x.dtype)
    for i, d in zt.grid(x.shape[0], x.shape[1] // 2):
        for k in range(3):
            out[i, 2 * d] += x[i, d] * k
        out[i, 2 * d + 1] = max(out[i, 2 * d + 1], x[i, d])
    return out


@zt.kernel
def in_order(x):
    """In a loop in order, in the array that it carries."""
    out, level = np.zeros(x.shape, x.dtype), 1.0
    for i in range(x.shape[0]):
        level = level * 0.5 + x[i, 0]
        for d in range(x.shape[1] // 2):
            out[i, 2 * d + 1] = level * x[i, d]
    return out


KERNELS = [(pairs, (3, 38)), (pairs, (2, 7)), (one_slot, (3, 49)), (one_slot, (2, 36)), (one_slot, (5, 2)),
           (backwards, (3, 72)), (part_of_a_row, (2, 61)), (corners, (3, 19)), (halves_of_heads, (2, 48)),
           (conditional, (3, 37)), (sums, (2, 35)), (in_order, (3, 20))]


def _job(kernel: Any, shape: tuple[int, ...], d: DType, slope: bool) -> Job:
    x = leaf("input", "x", shape, d)
    y = kernel(x)
    if slope:
        weights = np.cos(np.arange(y.size)).reshape(y.shape)
        [y] = gradients(ops.sum(y * y * constant(weights, d)), [x])
    values = np.random.default_rng(1).normal(size=shape).astype(d.numpy)
    return Job(Graph({"y": y}), {x: values}, f"{kernel.source.name} {shape}{' gradient' * slope}")


def jobs(d: DType) -> list[Job]:
    return [_job(k, shape, d, slope) for k, shape in KERNELS for slope in (False, True)]


@together()
@pytest.mark.parametrize(("kernel", "shape"), KERNELS, ids=lambda p: getattr(getattr(p, "source", 0), "name", ""))
def test_values_and_slopes(kernel: Any, shape: tuple[int, ...]) -> None:
    """Beside plain Python, and its finite differences."""
    job = _job(kernel, shape, f64, slope=False)
    [x] = job.feeds.values()
    np.testing.assert_allclose(job.oracle()[0], kernel.debug(x), rtol=1e-12)
    way, h = np.random.default_rng(2).normal(size=shape), 1e-6
    weights = np.cos(np.arange(kernel.debug(x).size)).reshape(kernel.debug(x).shape)
    high, low = ((kernel.debug(x + s * h * way) ** 2 * weights).sum() for s in (1, -1))
    [slopes] = _job(kernel, shape, f64, slope=True).oracle()
    np.testing.assert_allclose((slopes * way).sum(), (high - low) / (2 * h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("level", [HERE[-1], *(pytest.param(n, marks=pytest.mark.slow) for n in (*HERE[:-1], *C))])
def test_compiled(level: str) -> None:
    module = Module(jobs(f64), level)
    for k, job in enumerate(jobs(f64)):
        agree(job, module.run(k), terms=20)


def test_interpreted() -> None:
    """With checks of bounds, races and reads of uninitialized elements."""
    for job in jobs(f64)[::3]:
        agree(job, interpreted(job, NARROW, workers=2), terms=20)


@pytest.mark.slow
@pytest.mark.parametrize("backend", COMPUTING)
def test_on_devices(backend: str) -> None:
    all_agree(backend, jobs(f32))


def _steps(y: Value) -> list[str]:
    return [show(step.kernel) for step in plan_of(Graph({"y": y}), WIDE)[0].steps]


@pytest.mark.parametrize(("kernel", "shape", "stores"), [
    (pairs, (4, 128), 2), (backwards, (2, 256), 4), (one_slot, (4, 192), 3)], ids=["2", "4", "3"])
def test_one_kernel_of_whole_vectors(kernel: Any, shape: tuple[int, ...], stores: int) -> None:
    """It gathers and scatters nothing."""
    [text] = _steps(kernel(leaf("input", "x", shape, f32)))
    lines = [line for line in text.splitlines() if "store" in line]
    assert len(lines) == stores and "select" not in text and "iota" not in text, text


def test_the_gradient_is_one_kernel() -> None:
    x = leaf("input", "x", (4, 128), f32)
    slopes = pullback({pairs(x): leaf("input", "g", x.shape, f32)}, [x])[0]
    [text] = _steps(slopes)
    assert "select" not in text and "iota" not in text, text


@pytest.mark.parametrize("d", [f32, dtype("float16"), dtype("uint8"), boolean], ids=str)
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_stacks_of_arrays(count: int, d: DType) -> None:
    """Of inputs, of computed values and of numbers, in programs without kernels of users."""
    random = np.random.default_rng(count)
    feeds = {leaf("input", f"x{k}", (3, 11), d): random.integers(0, 2, (3, 11)).astype(d.numpy) for k in range(count)}
    first, *others = feeds
    changed = ops.logical_not(first) if d is boolean else first + first
    flat = ops.reshape(ops.stack(changed, *others, axis=-1), (3, 11 * count))
    job = Job(Graph({"flat": flat, "stack": ops.stack(*feeds, axis=-1)}), feeds)
    for got in (Module([job], HERE[-1]).run(0), interpreted(job, NARROW)):
        agree(job, got)


def test_vectors_shorter_than_the_stride() -> None:
    """They read nothing behind the last element."""
    x = leaf("input", "x", (4, 4), f64)
    job = Job(Graph({"y": ops.exp(ops.matmul(x, x)[:, 0])}), {x: np.arange(16.0).reshape(4, 4) / 8})
    agree(job, interpreted(job, NARROW))
