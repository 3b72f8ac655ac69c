"""Transposing copies on machines of workgroups: neighboring threads have neighbors on both sides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.cases.available import PLAYED, device
from tests.cases.device_programs import Module
from tests.cases.grid import job
from tests.machines.ptx.parse import parse
from tests.machines.ptx.running import rendered, run
from tests.parity import GROUPS, Job, agree, buffers_of, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, f16, f32, f64, from_storage, i8
from ztorch.ir.limits import Limits
from ztorch.lower.plan import KernelStep

SM_80 = TARGETS["cuda:sm_80"].on_device({"compute_units": 2}).limits
MANY = replace(GROUPS, grid=replace(GROUPS.grid, max_groups=3, compute_units=2))  # workgroups take several tiles
CASES = {
    "whole tiles": (lambda x: ops.transpose(x), ((96, 64),), f32),
    "odd": (lambda x, y: ops.maximum(ops.transpose(x), 0.5) + y, ((70, 45), (45, 1)), f32),
    "of a batch": (lambda x: ops.transpose(x, (0, 3, 2, 1)), ((2, 40, 3, 33),), f32),
    "halves": (lambda x: ops.transpose(x) * 2.0, ((130, 70),), f16),
    "doubles": (lambda x: ops.transpose(x), ((40, 33),), f64),
    "of a flipped kernel": (lambda x: ops.reshape(ops.transpose(ops.flip(x, (0, 1)), (0, 1, 3, 2)), (396, 33)) * 2.0,
                            ((3, 3, 33, 44),), f32),
    "bytes": (lambda x: ops.transpose(x), ((130, 70),), i8),
}


def case(name: str) -> Job:
    make, shapes, d = CASES[name]
    return job(make, *shapes, d=d)


def turned(one: Job, limits: Limits) -> KernelStep:
    [step] = plan_of(one.alone("j"), limits)[0].steps
    assert step.schedule.kind == "grid_transpose"
    return step


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    one = case(name)
    for limits in (SM_80, MANY):
        turned(one, limits)
        agree(one, interpreted(one, limits))


@pytest.mark.parametrize("name", ["odd", "halves"])
def test_through_ptx(name: str) -> None:
    one = case(name)
    d: DType = one.graph.roots[0].dtype
    step = turned(one, SM_80)
    held, out = buffers_of(step, one)
    run(step.kernel, held, parse(rendered([step.kernel], "sm_80")))
    np.testing.assert_array_equal(from_storage(d, held[out]), interpreted(one, SM_80)[0].reshape(-1))


@pytest.mark.parametrize("backend", PLAYED)
def test_on_devices(backend: str) -> None:
    device(backend)
    one = job(lambda x, y: ops.transpose(x) * 2.0 + y, (300, 190), (190, 300))
    agree(one, Module([one], backend).run(0))


def test_contiguous_reads_of_threads_use_no_tile() -> None:
    for make, shape in ((lambda x: x * 2.0, (96, 64)), (lambda x: ops.transpose(x, (1, 0, 2)), (40, 40, 64)),
                        (lambda x: ops.transpose(x), (4, 8))):
        [step] = plan_of(job(make, shape).alone("j"), SM_80)[0].steps
        assert step.schedule.kind == "grid_elements"
