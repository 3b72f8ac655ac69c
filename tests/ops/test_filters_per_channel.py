"""Depthwise convolutions with several filters for each channel: values, gradients, schedules."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from tests.parity import HERE, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph

random = np.random.default_rng(4)
CASES = {  # the shape of inputs, the window, filters per channel, and attributes
    "same": ((2, 7, 9, 3), (3, 3), 2, {"padding": "same"}),
    "strides": ((1, 9, 8, 16), (3, 2), 3, {"stride": 2}),
    "dilation": ((2, 31, 5), (5,), 4, {"dilation": 2}),
    "one position": ((2, 3, 3, 4), (1, 1), 2, {"padding": "same"}),
    "volumes": ((1, 4, 5, 6, 2), (2, 3, 2), 2, {"padding": "same"}),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    """As of a convolution of each channel by itself."""
    shape, size, each, attributes = CASES[name]
    channels = shape[-1]
    x = random.normal(size=shape)
    kernel = random.normal(size=(*size, 1, channels * each))

    def together(x: zt.Tensor, kernel: zt.Tensor) -> zt.Tensor:
        return ops.conv(x, kernel, groups=channels, **attributes)

    def apart(x: zt.Tensor, kernel: zt.Tensor) -> zt.Tensor:
        parts = [ops.conv(x[..., c:c + 1], kernel[..., c * each:(c + 1) * each], **attributes)
                 for c in range(channels)]
        return ops.concat(parts, axis=-1)

    tensors = zt.tensor(x), zt.tensor(kernel)
    slope = random.normal(size=together(*tensors).shape)
    for a, b in zip(*([f(*tensors), *zt.grad(lambda *t, f=f: ops.sum(f(*t) * slope), (0, 1))(*tensors)]
                      for f in (together, apart)), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-12 * np.abs(b.numpy()).max() * 9)


def test_vectors_of_neighbors() -> None:
    """The kernel is that of a channel for each filter."""
    x, wide = (leaf("input", "x", (1, 28, 28, n), "float32") for n in (16, 32))
    kernel = leaf("input", "kernel", (3, 3, 1, 32), "float32")
    plans = [plan_of(Graph({"y": ops.conv(value, kernel, padding="same", groups=groups)}),
                     TARGETS[HERE[-1]].limits)[0] for value, groups in ((x, 16), (wide, 32))]
    assert len({plan.steps[-1].kernel.name.split("_", 1)[1] for plan in plans}) == 1
