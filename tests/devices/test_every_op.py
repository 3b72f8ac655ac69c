"""Every op of the registry and its gradient on every device that is here, beside float64."""

from __future__ import annotations

import pytest

from tests.devices.available import COMPUTING, device
from tests.devices.programs import Module, target_of
from tests.lower.test_every_op import jobs
from tests.ops.test_every_dtype import FLOATS, NARROW, narrow_job, whole_job, wide
from tests.parity import Job, agree
from ztorch.device_code import Kernels, within_limits
from ztorch.errors import Unsupported
from ztorch.lower.plan import Params, lower

# The inner loop tries what between them use every kind of kernel.
QUICK = ("matmul", "softmax'", "sum", "where", "cumsum", "take", "cast")
OPS = [pytest.param(op, marks=() if op in QUICK else pytest.mark.slow) for op in jobs()]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("backend", COMPUTING)
def test_op(backend: str, op: str) -> None:
    all_agree(backend, jobs()[op])


HERE = ("opencl", "vulkan", "webgpu")  # what runs where there is no GPU


def in_other_dtypes() -> list[Job]:
    """Every op in both 16-bit floats, and where it takes whole numbers in some width of them."""
    return [*(narrow_job(c, d) for c in FLOATS for d in NARROW),
            *(whole_job(c, d) for c, d in wide()[::4])]  # of three each: all widths in turn


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("backend", HERE)
def test_other_dtypes(backend: str, part: int) -> None:
    """Each op in each dtype on one of them, in turn."""
    all_agree(backend, in_other_dtypes()[3 * part + HERE.index(backend)::6])


def all_agree(backend: str, some: list[Job]) -> None:
    """Compiles what the device is able to do as one module, runs each and compares."""
    device(backend)
    able = some
    try:
        module = Module(able, backend)
    except Unsupported:  # something of it, so each is asked for alone
        able = [job for job in some if _able(job, backend)]
        module = Module(able, backend) if able else None
    for k, job in enumerate(able):
        assert module is not None
        agree(job, module.run(k), terms=20)


def _able(job: Job, backend: str) -> bool:
    """A device may lack a dtype beyond the four that all have, and says so before its driver sees
    anything."""
    if all(v.dtype.name in ("f32", "i32", "u32", "bool") for v in job.graph.nodes()):
        return True
    target = target_of(device(backend))
    kernels = Kernels(target)
    try:
        for step in lower("op", job.graph, target.limits, Params(target.limits)).steps:
            within_limits(step, target)
            kernels.number(step.kernel)
    except Unsupported as error:
        assert backend in str(error)
        return False
    return True
