"""Bools that are added to vectors of integers become masks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import Job, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value

random = np.random.default_rng(3)


def counted(x: Value, y: Value) -> Value:
    """Three minus one, where the bool is to the right, to the left, and subtracted."""
    up, down = (ops.cast(ops.less(*pair), "int32") for pair in ((x, y), (y, x)))
    return (x + up) + (down + y) - ops.cast(ops.equal(x, y), "int32")


@pytest.mark.parametrize("level, masked", [("avx512", 3), ("avx2", 0)])
def test_bools_are_added_under_masks(level: str, masked: int) -> None:
    x, y = (leaf("input", name, (3, 21), "int32") for name in "xy")
    a, b = (random.integers(-2, 3, x.shape).astype(np.int32) for _ in "xy")
    job = Job(Graph({"z": counted(x, y)}), {x: a, y: b})
    limits = TARGETS[level].limits
    np.testing.assert_array_equal(interpreted(job, limits)[0], (a + (a < b)) + ((b < a) + b) - (a == b))
    [step] = plan_of(job.graph, limits)[0].steps
    opcodes = [i.opcode for i in step.kernel.body if i.dest is not None and i.dest.lanes > 1]
    assert opcodes.count("select") == masked * (opcodes.count("eq"))


def test_floats_keep_their_sums() -> None:
    """A negative zero plus 0.0 is 0.0."""
    x = leaf("input", "x", (20,), "float32")
    job = Job(Graph({"y": x + ops.cast(ops.greater(x, 0.5), "float32")}), {x: np.full(20, -0.0, np.float32)})
    assert not np.signbit(interpreted(job, TARGETS["avx512"].limits)[0]).any()
