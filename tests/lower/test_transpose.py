"""Transposing copies on a processor, by tiles in registers."""

from __future__ import annotations

import pytest

from tests.cases.grid import job
from tests.parity import HERE, NARROW, Module, agree, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.graph.value import Value


def flipped(x: Value) -> Value:
    """A kernel as the gradient of images reads it: a matrix whose rows are three axes."""
    axes = ops.transpose(ops.flip(x, (0, 1)), (0, 1, 3, 2))
    return ops.reshape(axes, (-1, x.shape[-2])) * 2.0


@pytest.mark.parametrize("shape", [(3, 3, 32, 48), (2, 3, 35, 41)], ids=["whole tiles", "odd"])
def test_flipped_kernels(shape: tuple[int, ...]) -> None:
    one = job(flipped, shape)
    for limits in (TARGETS[HERE[-1]].limits, NARROW):
        [step] = plan_of(one.alone("j"), limits)[0].steps
        assert step.schedule.kind == "transpose"
    agree(one, interpreted(one, NARROW))
    agree(one, Module([one], HERE[-1]).run(0, 2))


def test_axes_that_no_loops_divide() -> None:
    """Rows that begin within an axis of the source are read one by one."""
    one = job(lambda x: ops.reshape(ops.transpose(x), (35, 48))[1:] * 2.0, (40, 42))
    [step] = plan_of(one.alone("j"), TARGETS[HERE[-1]].limits)[0].steps
    assert step.schedule.kind == "elements"
    agree(one, Module([one], HERE[-1]).run(0, 1))
