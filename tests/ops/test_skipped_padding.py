"""Convolutions whose windows mostly lie over padding, which is not multiplied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.parity import HERE, Job, compiled
from ztorch import ops
from ztorch.dtypes import dtype
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph

random = np.random.default_rng(4)
BEYOND = {"padding": ((5, 5), (4, 4)), "dilation": (5, 4)}  # a window of 11 x 9 on an image of 7 x 6


def job(d: str, image: np.ndarray, kernel: np.ndarray, how: dict[str, Any]) -> Job:
    """A convolution with both gradients."""
    x, k = (leaf("input", n, a.shape, d) for n, a in (("x", image), ("k", kernel)))
    y = ops.conv(x, k, **how)
    slope = leaf("input", "slope", y.shape, d)
    dx, dk = gradients(ops.sum(y * slope), [x, k])
    feeds = {x: image, k: kernel, slope: random.normal(size=y.shape)}
    return Job(Graph({"y": y, "dx": dx, "dk": dk}), {v: a.astype(dtype(d).working) for v, a in feeds.items()})


@pytest.mark.parametrize("d", ["bfloat16", "float16"])
def test_gradients_of_16_bits_round_once(d: str) -> None:
    """Each part of the results adds to them."""
    made = job(d, random.normal(size=(2, 7, 6, 4)), random.normal(size=(3, 3, 4, 8)), BEYOND)
    rounding = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[d]
    for machine in ("scalar", HERE[-1]):
        for got, want in zip(compiled(made, machine), made.oracle(), strict=True):
            np.testing.assert_array_less(np.abs(got - want), rounding * np.abs(want) + 1e-5)


@pytest.mark.parametrize("wrong", [np.inf, np.nan])
@pytest.mark.parametrize("how", [BEYOND, {"padding": "same"}], ids=["beyond", "near"])
def test_weights_that_are_not_finite_reach_what_reads_them(wrong: float, how: dict[str, Any]) -> None:
    """The results for which they meet the image; they may reach others."""
    image, kernel = (np.abs(random.normal(size=s)) for s in ((1, 7, 6, 4), (3, 3, 4, 8)))
    kernel[0, 0, 0] = wrong
    made, low = job("float32", image, kernel, how), (5, 4) if how is BEYOND else (1, 1)
    for y, *_ in (made.oracle(), *(compiled(made, machine) for machine in ("scalar", HERE[-1]))):
        assert not np.isfinite(y[:, low[0]:, low[1]:]).any() and not (y < 0).any()
