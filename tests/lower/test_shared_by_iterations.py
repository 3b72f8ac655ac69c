"""Gradients of what all iterations of a loop share: sums over many iterations."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import HERE, Job, Module
from ztorch import ops
from ztorch.dtypes import DType, bf16, f16, from_storage, to_storage
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph


@pytest.mark.parametrize("steps", [10, 300, 1000])
@pytest.mark.parametrize("d", [f16, bf16])
def test_terms_of_16_bits_are_added_up_in_float32(d: DType, steps: int) -> None:
    """In 16 bits, 300 iterations were a twentieth off and 1,000 half."""
    random = np.random.default_rng(4)
    rows, state, shared = (leaf("input", n, s, d)
                           for n, s in (("x", (steps, 8, 16)), ("h", (8, 16)), ("b", (16,))))
    _, out = ops.scan(lambda s, row: (ops.tanh(s * 0.1 + row * 0.01 + shared * 0.01),) * 2, state, rows)
    [slope] = gradients(ops.sum(out), [shared])
    job = Job(Graph({"slope": slope}), {
        v: from_storage(d, to_storage(d, random.uniform(0, 2, v.shape).astype(np.float32)))
        for v in (rows, state, shared)})
    [want] = job.oracle()
    [got] = Module([job], HERE[-1]).run(0)
    assert np.abs(got / want.astype(np.float64) - 1).max() < 3 * 2.0**-(11 if d is f16 else 8)
