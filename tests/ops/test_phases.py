"""Transposed convolutions of few filters whose windows are whole strides: one convolution. So are
gradients of convolutions of few channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.parity import HERE, Job, Module
from ztorch import ops
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, topological

random = np.random.default_rng(9)
SHAPES = {"image": ((2, 5, 4, 3), (4, 4, 3, 3), 2), "two strides": ((1, 3, 5, 5), (6, 4, 1, 5), (3, 4)),
          "one axis": ((2, 7, 3), (16, 2, 3), 8), "volume": ((1, 2, 3, 2, 3), (4, 2, 4, 1, 3), 2)}
CUTS: list[dict[str, Any]] = [{}, {"padding": "same"}, {"output_padding": 1}]


def added(x: np.ndarray, kernel: np.ndarray, y: np.ndarray, low: int, stride: Any) -> None:
    """Adds the multiple of the kernel of each element of x to y, of which the first are cut."""
    steps = (stride,) * (kernel.ndim - 2) if isinstance(stride, int) else stride
    for at in np.ndindex(*x.shape[:-1]):
        for place in np.ndindex(*kernel.shape[:-2]):
            to = tuple(i * s + k - low for i, s, k in zip(at[1:], steps, place, strict=True))
            if all(0 <= i < n for i, n in zip(to, y.shape[1:-1], strict=True)):
                target = (at[0], *to)
                y[target] += kernel[place] @ x[at]


@together()
@pytest.mark.parametrize("level", HERE)
@pytest.mark.parametrize("name", SHAPES)
def test_all_phases_are_one_convolution(name: str, level: str) -> None:
    shape, window, stride = SHAPES[name]
    data, weights = random.normal(size=shape), random.normal(size=window)
    x, kernel = leaf("input", "x", shape, "float32"), leaf("input", "kernel", window, "float32")
    y = ops.conv_transpose(x, kernel, stride)
    assert "overlap_add" not in {v.op.name for v in topological([y])}
    assert not any(v.op.kind == "reduce" for v in topological([y])), "no windows are added up"
    slope = random.normal(size=y.shape)
    s = leaf("input", "slope", y.shape, "float32")
    graph = Graph(dict(zip(("y", "dx", "dk"), (y, *gradients(ops.sum(y * s), [x, kernel])), strict=True)))
    module = Module([Job(graph, {x: data.astype(np.float32), kernel: weights.astype(np.float32),
                                 s: slope.astype(np.float32)})], level)
    want = np.zeros(y.shape)
    added(data, weights, want, 0, stride)
    one, three = module.run(0, 1), module.run(0, 3)
    np.testing.assert_allclose(one[0], want, atol=1e-4)
    for k, (source, gradient) in enumerate(((data, one[1]), (weights, one[2]))):
        step = random.normal(size=source.shape)  # the result is linear in each
        moved = np.zeros(y.shape)
        added(*((step, weights) if k == 0 else (data, step)), moved, 0, stride)
        np.testing.assert_allclose((gradient * step).sum(), (moved * slope).sum(), rtol=1e-4, atol=1e-3)
    for number, other in zip(one, three, strict=True):
        np.testing.assert_array_equal(number, other)


@together()
@pytest.mark.parametrize("cut", CUTS)
def test_cuts_and_padding_at_the_end(cut: dict[str, Any]) -> None:
    data, weights = random.normal(size=(2, 3, 4, 2)), random.normal(size=(4, 4, 3, 2))
    x, kernel = (leaf("input", n, a.shape, "float32") for n, a in (("x", data), ("k", weights)))
    y = ops.conv_transpose(x, kernel, 2, **cut)
    [number] = Module([Job(Graph({"y": y}), {x: data.astype(np.float32), kernel: weights.astype(np.float32)})],
                      HERE[-1]).run(0, 1)
    want = np.zeros(y.shape)
    added(data, weights, want, 1 if "padding" in cut else 0, 2)
    np.testing.assert_allclose(number, want, atol=1e-4)


@together()
@pytest.mark.parametrize("level", HERE)
@pytest.mark.parametrize(("shape", "window"), [
    ((1, 37, 1), (9, 1, 1)), ((2, 9, 8, 3), (3, 2, 3, 5)), ((1, 6, 7, 2), (3, 3, 2, 1)), ((1, 9, 1), (4, 1, 3))])
def test_gradients_of_few_channels(shape: tuple[int, ...], window: tuple[int, ...], level: str) -> None:
    weights = random.normal(size=window)
    x, kernel = leaf("input", "x", shape, "float32"), leaf("input", "kernel", window, "float32")
    y = ops.conv(x, kernel)
    slope = random.normal(size=y.shape)
    s = leaf("input", "slope", y.shape, "float32")
    [dx] = gradients(ops.sum(y * s), [x])
    several = shape[-1] == 1 < window[-1]  # filters that add up to one channel: windows, added up
    assert several == ("place" in {v.op.name for v in topological([dx])})
    graph = Graph({"dx": dx})
    arrays = {kernel: weights.astype(np.float32), s: slope.astype(np.float32)}
    [number] = Module([Job(graph, arrays)], level).run(0, 1)
    want = np.zeros(shape)
    added(slope, weights, want, 0, 1)
    np.testing.assert_allclose(number, want, atol=1e-4)


def test_few_channels_take_few_products() -> None:
    """In parts that meet no padding, the gradient of 5 x 5 windows would be 81."""
    x, k = leaf("input", "x", (1, 14, 14, 6), "float32"), leaf("state", "k", (5, 5, 6, 16), "float32")
    [slope] = gradients(ops.sum(ops.conv(x, k)), [x])
    assert sum(v.op.kind == "contract" for v in Graph({"y": slope}).nodes()) == 1
