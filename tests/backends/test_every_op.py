"""The table of ops on every device that is here, beside float64."""

from __future__ import annotations

import functools
from itertools import islice

import pytest

from tests.cases.available import COMPUTING, PLAYED, device
from tests.cases.covering import among_devices
from tests.cases.device_programs import Module, able, all_agree
from tests.cases.grouping import together
from tests.cases.jobs import NARROW, QUICK, Jobs, Together, jobs, narrow_jobs, parts, sharing
from tests.parity import Job, agree
from ztorch.dtypes import DType

# Ops whose kernels are compiled as one program: PoCL takes 0.6 s of a processor for a program, and 20 ms more for each
# kernel, of which relatives have the same ones.
TOGETHER = 60


@functools.cache
def share_of(backend: str) -> dict[str, Jobs]:
    """Each op, on the sample of this device and day; devices that are rare run them all."""
    if backend not in PLAYED:
        return jobs()
    return sharing(PLAYED.index(backend), len(PLAYED), doubles=backend != "webgpu")


@functools.cache
def taken(backend: str, op: str) -> list[Job]:
    """Those of the day that the device supports; where it lacks their dtypes, another job of the op
    if there is one."""
    chosen = [job for job in share_of(backend)[op] if able(job, backend)]
    return chosen or list(islice((job for job in jobs()[op] if able(job, backend)), 1))


@functools.cache
def compiled(backend: str, part: int) -> Together:
    chosen = [job for op in parts(share_of(backend), TOGETHER)[part] for job in taken(backend, op)]
    return Together(chosen, lambda some: Module(some, backend))


@together(by=lambda backend, part, op: f"{backend}-{part}")
@pytest.mark.parametrize(("backend", "op", "part"), [
    pytest.param(backend, op, part, marks=() if op in QUICK else pytest.mark.slow)
    for backend in COMPUTING for part, some in enumerate(parts(share_of(backend), TOGETHER)) for op in some])
def test_op(backend: str, op: str, part: int) -> None:
    device(backend)
    assert taken(backend, op) or (backend, op.rstrip("'")) == ("webgpu", "cast"), "its sample casts to float64"
    for job in taken(backend, op):
        agree(job, compiled(backend, part).run(job), terms=20)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "d"), among_devices(NARROW), ids=str)
def test_other_dtypes(backend: str, d: DType) -> None:
    all_agree(backend, narrow_jobs()[d])
