"""Repeated rows are read along themselves: the axis that they are repeated along is divided."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.proposals import AVX2, proposed, x
from tests.parity import HERE, Job, agree, compiled, plan_of
from ztorch import ops
from ztorch.graph.value import Graph
from ztorch.ir.text import show

CASES = [((10, 65), (2, 4)), ((3, 17), (2, 3)), ((5, 33), (1, 7)), ((16,), (5,)), ((7, 4), (3, 9)),
         ((2, 3, 19), (2, 1, 3))]


@pytest.mark.parametrize(("shape", "times"), CASES)
def test_tiles(shape: tuple[int, ...], times: tuple[int, ...]) -> None:
    value = x(*shape)
    job = Job(Graph({"y": ops.tile(value, times), "z": ops.tile(value, times) * 2.0 + 1.0}),
              {value: np.random.default_rng(0).normal(size=shape).astype(np.float32)})
    for machine in ("scalar", HERE[-1]):
        agree(job, compiled(job, machine))


def test_rows_of_a_line_or_more() -> None:
    """Shorter ones fill vectors together."""
    assert "order(0, 1)" in proposed(ops.tile(x(10, 65), (1, 4)))
    plan, _ = plan_of(Graph({"y": ops.tile(x(10, 5), (1, 4))}), AVX2)
    text = show(plan.steps[-1].kernel)
    assert text.count("store") == 3 and "gather" not in text, text
