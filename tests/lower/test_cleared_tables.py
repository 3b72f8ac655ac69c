"""Sums at places start from tables of zeros, which full vectors clear, whatever an update is."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.proposals import AVX2
from tests.parity import HERE, Job, Module, agree, plan_of
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.ir.text import show

random = np.random.default_rng(2)


def job_of(rows: int, updates: int, width: tuple[int, ...]) -> Job:
    at, values = (leaf("input", "at", (updates,), "int32"),
                  leaf("input", "values", (updates, *width), "float32"))
    y = OPS.scatter_add(OPS.zeros((rows, *width), "float32"), at, values)
    return Job(Graph({"y": y}), {at: random.integers(-2, rows + 2, updates).astype(np.int32),
                                 values: random.normal(size=values.shape).astype(np.float32)})


@pytest.mark.parametrize(("rows", "updates", "width"), [
    (1003, 90, ()), (77, 30, (5,)), (301, 40, (17,)), (50, 33, (70,)), (9, 200, (128,))])
def test_tables_of_odd_sizes(rows: int, updates: int, width: tuple[int, ...]) -> None:
    job = job_of(rows, updates, width)
    for level in HERE:
        module = Module([job], level)
        one, three = (module.run(0, threads)[0] for threads in (1, 3))
        agree(job, [one], terms=updates)
        np.testing.assert_array_equal(one, three)


def test_full_vectors_clear() -> None:
    plan, _ = plan_of(job_of(1003, 90, ()).graph, AVX2)
    [text] = [show(step.kernel) for step in plan.steps if "sums_at" in step.kernel.name]
    assert "0.0:f32x8" in text
