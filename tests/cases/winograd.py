"""Convolutions of 3 x 3 windows of odd sizes, and how far their transforms may be off."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.parity import Job
from ztorch import ops
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value

BOUND = 1e-5  # of the largest result: the promise of the performance guide

# Sides that tiles of 4 fill and do not, channels and filters that vectors fill and do not, and borders
# of which each side may have another: (images), (channels, filters), padding.
CASES = (((1, 8, 8), (16, 16), "same"), ((2, 7, 9), (5, 19), "same"), ((1, 5, 6), (17, 3), "valid"),
         ((1, 3, 4), (1, 2), "valid"), ((3, 4, 13), (8, 33), ((2, 0), (0, 2))), ((1, 2, 9), (2, 40), "same"))


def convolutions(training: bool = False, cases: Any = CASES) -> Job:
    """All cases in one graph, each with work that follows; kernels of the second half are states."""
    rng, outputs, feeds = np.random.default_rng(7), {}, dict[Value, np.ndarray]()

    def given(role: str, name: str, shape: tuple[int, ...]) -> Value:
        v = leaf(role, name, shape, f32)
        feeds[v] = rng.standard_normal(shape).astype(np.float32)
        return v

    for k, (image, (channels, filters), padding) in enumerate(cases):
        x = given("input", f"x{k}", (*image, channels))
        kernel = given("state" if k % 2 and not training else "input", f"k{k}", (3, 3, channels, filters))
        y = ops.conv(x, kernel, padding=padding)
        after = given("input", f"a{k}", y.shape)
        y = outputs[f"y{k}"] = ops.relu(y + after) + ops.reshape(after, y.shape)
        if training:
            outputs[f"dx{k}"], outputs[f"dk{k}"] = gradients(ops.sum(y * after), [x, kernel])
    return Job(Graph(outputs), feeds)


def right(one: Job, results: list[np.ndarray]) -> None:
    for got, wanted in zip(results, one.oracle(), strict=True):
        assert np.abs(got - wanted).max() <= BOUND * np.abs(wanted).max()
