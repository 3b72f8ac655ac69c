"""States are written in place, but not before everybody in a workgroup has read them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.available import COMPUTING, device
from tests.cases.device_programs import Module
from tests.parity import Job, agree
from ztorch import ops
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("backend", COMPUTING)
def test_a_sum_that_overwrites_its_operands(backend: str, axis: int) -> None:
    """As in the gradient of a normalization: one kernel sums over many elements, scales each by a
    weight of its row or column, and takes a step with that weight."""
    device(backend)
    shape = (128, 4) if axis == 0 else (4, 128)  # fewer than are summed by several groups
    x = leaf("input", "x", shape, f32)
    s = leaf("state", "s", (4,), f32, np.zeros(4))
    total = ops.mean(x, axis=axis)
    wide = (1, 4) if axis == 0 else (4, 1)
    y = (x - ops.reshape(total, wide)) * ops.reshape(s, wide)
    graph = Graph({"y": y}, {"s": s - 0.5 * total})
    job = Job(graph, {x: np.random.default_rng(0).normal(size=shape) + 1.0,
                      s: np.array([1.0, 2.0, 3.0, 4.0])})
    module = Module([job], backend)
    [step] = module.compiled.plans["j0"].steps  # one kernel, or this tests nothing
    assert step.kernel.workgroup[0] > 4
    for _ in range(3):
        agree(job, module.run(0), terms=40)
