"""Products in loops: a worker goes on with the rows that it computed in the iteration before, and
prefetches its rows of a sequence."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.parity import Job, agree, plan_of
from tests.workers_apart import run_apart, skipped_inside
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.lower.own_parts import own_parts
from ztorch.lower.schedule import ProductSchedule
from ztorch.machines.processors import processor

ZEN4 = replace(TARGETS["avx512"].limits, processor=processor("zen4"))


def _proposed(rows: int, width: int) -> ProductSchedule:
    """The schedule of a product that each iteration of a loop computes, with the same matrix."""
    h, w = (leaf("input", name, (n, width), f32) for name, n in (("h", rows), ("w", width)))
    last, _ = ops.scan(lambda h, _: (ops.tanh(ops.matmul(h, w)), None), h, length=5)
    [s] = [step.schedule for step in plan_of(Graph({"y": last}), ZEN4)[0].steps
           if isinstance(step.schedule, ProductSchedule)]
    return s


@pytest.mark.parametrize("rows", [8, 16, 30, 32, 64])
def test_workers_get_whole_rows(rows: int) -> None:
    """Two workers get as many tiles each, and tiles follow one another by rows, as elements do."""
    s = _proposed(rows, 256)
    assert s.block_rows == 1 and math.ceil(rows / s.tile_rows) % 2 == 0


@pytest.mark.parametrize("rows", [8, 16, 30, 32, 64, 82])
def test_two_workers_have_a_half_of_the_rows_each(rows: int) -> None:
    """Also where tiles have two heights, such as 11 and 10: so neither waits for the other."""
    h, w = (leaf("input", name, (n, 32), f32) for name, n in (("h", rows), ("w", 32)))
    last, _ = ops.scan(lambda h, _: (ops.tanh(ops.matmul(h, w)), None), h, length=5)
    job = Job(Graph({"y": last}), {v: np.random.default_rng(2).uniform(-0.3, 0.3, v.shape).astype(np.float32)
                                   for v in (h, w)})
    plan = plan_of(job.alone("j"), ZEN4)[0]
    assert plan.apart % 2 == 0 and all(skipped_inside(plan))
    agree(job, run_apart(job, ZEN4), terms=50)


def test_few_rows_and_large_matrices_are_read_once() -> None:
    """A tile for each worker would read 4 MiB twice, which the L2 cache does not hold."""
    assert _proposed(7, 256).tile_rows == 7
    assert _proposed(16, 1000).tile_rows == 16


def test_a_product_prefetches_what_it_adds_in_this_iteration() -> None:
    """Its lines of a sequence, a line for each row of a tile; nothing if it adds the same each time."""
    h, w = leaf("input", "h", (16, 32), f32), leaf("input", "w", (32, 32), f32)
    xs = leaf("input", "xs", (5, 16, 32), f32)
    for sequence, prefetched in ((xs, True), (None, False)):
        last, _ = ops.scan(lambda h, x: (ops.tanh(ops.matmul(h, w) + (xs[0] if x is None else x)), None), h,
                           sequence, length=5)
        [step] = [step for step in plan_of(Graph({"y": last}), ZEN4)[0].steps
                  if isinstance(step.schedule, ProductSchedule)]
        lines = [i for i in step.kernel.body if i.opcode == "prefetch" and i.attrs["cache"] == 2]
        assert len(lines) == (step.schedule.tile_rows * step.schedule.tile_vectors if prefetched else 0)


@pytest.mark.parametrize(("rows", "columns", "shared"), [(16, 128, True), (30, 128, True), (16, 1024, False),
                                                         (15, 128, False)])
def test_few_rows_outside_of_loops_are_shared(rows: int, columns: int, shared: bool) -> None:
    """As kernels around a product share them; not if workers would wait for a large matrix."""
    x, w = leaf("input", "x", (rows, 128), f32), leaf("state", "w", (128, columns), f32)
    steps = plan_of(Graph({"y": ops.relu(ops.matmul(x, w))}), ZEN4)[0].steps
    [kernel] = [step.kernel for step in steps if isinstance(step.schedule, ProductSchedule)]
    assert (len(own_parts(kernel, 2)) >= 2) is shared
