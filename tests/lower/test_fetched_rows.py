"""Rows of a large table that are looked up are prefetched some iterations ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.parity import HERE, NARROW, Job, agree, compiled, interpreted, plan_of
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.ir.limits import Limits

SMALL = replace(NARROW, processor=NARROW.processor._replace(l2_bytes=4096))


def lookup(rows: int, wide: int, reads: tuple[int, ...]) -> Job:
    """Indices beyond both ends are clamped; what is looked up is also computed with."""
    random = np.random.default_rng(5)
    table, at = leaf("input", "table", (rows, wide), "float32"), leaf("input", "at", reads, "int32")
    y = OPS.take(table, at, 0) * 2.0
    return Job(Graph({"y": y}), {table: random.standard_normal((rows, wide)).astype(np.float32),
                                 at: random.integers(-2, rows + 2, reads).astype(np.int32)})


def prefetches(job: Job, limits: Limits) -> int:
    [step] = plan_of(job.graph, limits)[0].steps
    return sum(i.opcode == "prefetch" for i in step.kernel.body)


@pytest.mark.parametrize("rows, wide, reads, expected", [
    (40, 64, (30,), 1), (40, 64, (5, 6), 1),
    (40, 60, (30,), 0),  # short rows
    (16, 64, (30,), 0),  # the table is in the cache
    (40, 64, (8,), 0)])  # nothing is that far ahead
def test_results_and_rules(rows: int, wide: int, reads: tuple[int, ...], expected: int) -> None:
    job = lookup(rows, wide, reads)
    assert prefetches(job, SMALL) == expected
    agree(job, interpreted(job, SMALL, workers=3), terms=2)


def test_results_here() -> None:
    job = lookup(5000, 128, (40,))  # 2.5 MB
    agree(job, compiled(job, HERE[-1], threads=2), terms=2)
