"""Kernels that share a launch on devices: the bits of separate launches."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.device_programs import Module
from tests.cases.winograd import CASES, convolutions, right
from tests.parity import Job, agree
from ztorch import ops
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph

X = leaf("input", "x", (16, 12), f32)
GRAPH = Graph({"rows": ops.sum(X, 1), "columns": ops.sum(X, 0), "all": ops.sum(X * 2.0)})


@pytest.mark.parametrize("backend", ["vulkan", "opencl", "webgpu"])
def test_a_wave_is_one_launch(backend: str) -> None:
    """Its parts have barriers and memory of their workgroups."""
    job = Job(GRAPH, {X: np.random.default_rng(2).normal(size=X.shape).astype(np.float32)})
    together, separate = (Module([job], backend, skips_branches=skips, compute_units=8)
                          for skips in (1, 0))
    lanes = backend == "opencl"  # a driver on a processor, whose parts have no barriers
    assert [len(m.compiled.plans["j0"].steps) for m in (together, separate)] == [3 if lanes else 1, 3]
    results = together.run(0)
    agree(job, results, terms=200)
    for a, b in zip(results, separate.run(0), strict=True):
        np.testing.assert_array_equal(a, b)


def test_threads_as_lanes_do_not_share_barriers() -> None:
    """The gradient of an image was wrong where its product shared a launch with that of the kernel."""
    one = convolutions(training=True, cases=CASES[2:3])
    right(one, Module([one], "opencl").run(0))
