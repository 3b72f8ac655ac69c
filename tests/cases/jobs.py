"""Every op of the registry and its gradient as graphs with data, for the tests of whatever runs them."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from tests.cases.samples import Case, cases, stored
from tests.parity import Job
from ztorch import ops
from ztorch.dtypes import DType, f32, f64
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph


def value_job(case: Case, d: DType) -> Job:
    leaves = case.leaves(d)
    feeds = {v: stored(v, a) for v, a in zip(leaves, case.arrays(), strict=True)}
    return Job(Graph({"y": case.call(*leaves)}), feeds, f"{case} in {d}")


def gradient_job(case: Case, d: DType) -> Job | None:
    """The gradient of a weighted sum of all results."""
    leaves = case.leaves(d)
    feeds = {v: stored(v, a) for v, a in zip(leaves, case.arrays(), strict=True)}
    floats = [v for v in leaves if v.dtype == d]
    y = case.call(*leaves)
    if not floats or not y.dtype.is_float:
        return None
    w = leaf("input", "w", y.shape, d)
    feeds[w] = np.random.default_rng(1).uniform(0.5, 1.5, y.shape).astype(d.numpy)
    found = gradients(ops.sum(ops.cast(y, d) * w), floats)
    return Job(Graph({f"d{k}": g for k, g in enumerate(found)}), feeds, f"{case} gradient in {d}")


def _sampled() -> Iterator[tuple[str, Job]]:
    for case in cases():
        for d in (f32, f64) if case.dtype.is_float else (case.dtype,):
            yield case.public.name, value_job(case, d)
            job = gradient_job(case, d) if d.is_float else None
            if job:
                yield f"{case.public.name}'", job


@functools.cache
def jobs() -> dict[str, list[Job]]:
    """By op; a dash means its gradient."""
    found: dict[str, list[Job]] = {}
    for name, job in _sampled():
        found.setdefault(name, []).append(job)
    return found


# The inner loop tries what between them use every kind of kernel.
QUICK = ("matmul", "softmax'", "sum", "where", "cumsum", "take", "cast")
