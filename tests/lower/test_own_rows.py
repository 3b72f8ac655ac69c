"""Products in loops: a worker goes on with the rows that it computed in the iteration before."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.parity import plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
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


def test_few_rows_and_large_matrices_are_read_once() -> None:
    """A tile for each worker would read 4 MiB twice, which the L2 cache does not hold."""
    assert _proposed(7, 256).tile_rows == 7
    assert _proposed(16, 1024).tile_rows == 16
