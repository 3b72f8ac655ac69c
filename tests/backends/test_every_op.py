"""The table of ops on every device that is here, beside float64."""

from __future__ import annotations

import functools

import pytest

from tests.cases.available import COMPUTING, PLAYED, device
from tests.cases.covering import among_devices
from tests.cases.device_programs import Module, able, all_agree
from tests.cases.jobs import QUICK, jobs, narrow_jobs, sharing
from tests.parity import Job, agree
from ztorch.dtypes import DType

TOGETHER = 12  # ops whose kernels are compiled as one module
OPS = [pytest.param(op, marks=() if op in QUICK else pytest.mark.slow) for op in jobs()]


@functools.cache
def share_of(backend: str) -> dict[str, list[Job]]:
    return sharing(PLAYED.index(backend), len(PLAYED)) if backend in PLAYED else jobs()


@functools.cache
def compiled(backend: str, first: int) -> tuple[Module | None, list[int]]:
    """What the device is able to do of a dozen ops, and which jobs that is."""
    some = list(share_of(backend).values())[first:first + TOGETHER]
    chosen = [job for each in some for job in each if able(job, backend)]
    return Module(chosen, backend) if chosen else None, [id(job) for job in chosen]


@pytest.mark.parametrize(("backend", "op"), [
    pytest.param(backend, *op.values, marks=op.marks)
    for backend in COMPUTING for op in OPS if share_of(backend)[str(op.values[0])]])
def test_op(backend: str, op: str) -> None:
    device(backend)
    module, numbers = compiled(backend, list(jobs()).index(op) // TOGETHER * TOGETHER)
    for job in share_of(backend)[op]:
        if id(job) in numbers:
            assert module is not None
            agree(job, module.run(numbers.index(id(job))), terms=20)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "d"), among_devices(list(narrow_jobs())), ids=str)
def test_other_dtypes(backend: str, d: DType) -> None:
    all_agree(backend, narrow_jobs()[d])
