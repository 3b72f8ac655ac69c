"""Products of few rows or columns with a transposed matrix, and with heads that several heads share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.parity import HERE, Job, agree, compiled, plan_of
from ztorch.codegen.targets import TARGETS
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value

random = np.random.default_rng(6)


def job_of(function: Callable[..., Value], *shapes: tuple[int, ...]) -> Job:
    args = [leaf("input", f"x{k}", shape, "float32") for k, shape in enumerate(shapes)]
    return Job(Graph({"y": function(*args)}),
               {a: random.normal(size=a.shape).astype(np.float32) for a in args})


def kernels(job: Job) -> list[str]:
    plan, _ = plan_of(job.graph, TARGETS[HERE[-1]].limits)
    return [step.kernel.name for step in plan.steps]


@pytest.mark.parametrize("rows", [1, 2, 4, 5])
@pytest.mark.parametrize("shape", [(3, 7), (2, 33, 65), (5, 431, 129)])  # the last is beyond L2
def test_rows_times_a_transposed_matrix(rows: int, shape: tuple[int, ...]) -> None:
    *batch, _, k = shape
    job = job_of(lambda a, b: OPS.matmul(a, OPS.swapaxes(b, -1, -2)), (*batch, rows, k), shape)
    for machine in ("scalar", HERE[-1]):
        agree(job, compiled(job, machine), terms=k)
    near = job.graph.leaves("input")[1].nbytes <= TARGETS[HERE[-1]].limits.processor.l2_bytes
    copied = rows > (1 if near else 4)
    assert any("copy" in name for name in kernels(job)) == copied, kernels(job)


@pytest.mark.parametrize("shape", [(7, 3), (2, 33, 65), (431, 129), (40000, 3), (1, 70), (3, 70, 1)])
def test_a_transposed_matrix_times_a_vector(shape: tuple[int, ...]) -> None:
    """Rows of the matrix as it lies are added up: its columns are not read along."""
    *batch, k, n = shape
    job = job_of(lambda a, b: OPS.matmul(OPS.swapaxes(a, -1, -2), b), shape, (*batch, k, 1))
    for machine in ("scalar", HERE[-1]):
        agree(job, compiled(job, machine), terms=k)
    if n > 64:
        lanes = TARGETS[HERE[-1]].limits.lanes(job.graph.outputs["y"].dtype)
        assert any(name.endswith(f"x{lanes}") for name in kernels(job)) , kernels(job)


@pytest.mark.parametrize("queries", [1, 3, 9])
@pytest.mark.parametrize("causal", [False, True])
def test_queries_of_heads_that_share_keys(queries: int, causal: bool) -> None:
    job = job_of(lambda q, k, v: OPS.attention(q, k, v, causal=causal),
                 (2, 6, queries, 9), (2, 2, 17, 9), (2, 2, 17, 5))
    for machine in ("scalar", HERE[-1]):
        agree(job, compiled(job, machine), terms=30)
    products = [name for name in kernels(job) if "matmul" in name]
    assert len(products) == 2
    if queries < 9:  # rows of one product for three heads
        assert all(f"_{3 * queries}x" in name for name in products), products
