"""The table of ops on every device that is here, beside float64."""

from __future__ import annotations

import functools

import pytest

from tests.cases.available import COMPUTING, PLAYED, device
from tests.cases.covering import among_devices, full
from tests.cases.device_programs import Module, able, all_agree
from tests.cases.grouping import together
from tests.cases.jobs import LARGE, NARROW, QUICK, Jobs, jobs, narrow_jobs, parts, sharing
from tests.parity import agree
from ztorch.dtypes import DType

TOGETHER = 12  # ops whose kernels are compiled as one module


@functools.cache
def share_of(backend: str) -> dict[str, Jobs]:
    """Each op. Half of all samples between them, a quarter of those of loops: processors run the others too
    (`lower/test_every_op.py`). PoCL compiles slowest, so ops of very many kernels are for the others."""
    if backend not in PLAYED:
        return jobs()
    shared = sharing(2 * PLAYED.index(backend), 2 * len(PLAYED))
    if full():
        return shared
    of_loops = {op: some[::2] for op, some in shared.items() if op.startswith("loop")}
    left_out = {op: Jobs([]) for op in shared if backend == "opencl" and op.rstrip("'") in LARGE}
    return {**shared, **of_loops, **left_out}


@functools.cache
def compiled(backend: str, part: int) -> tuple[Module | None, list[int]]:
    """The ops of a dozen that the device supports, and their jobs."""
    some = parts(share_of(backend), TOGETHER)[part]
    chosen = [job for op in some for job in share_of(backend)[op] if able(job, backend)]
    return Module(chosen, backend) if chosen else None, [id(job) for job in chosen]


@together(by=lambda backend, part, op: f"{backend}-{part}")
@pytest.mark.parametrize(("backend", "op", "part"), [
    pytest.param(backend, op, part, marks=() if op in QUICK else pytest.mark.slow)
    for backend in COMPUTING for part, some in enumerate(parts(share_of(backend), TOGETHER)) for op in some])
def test_op(backend: str, op: str, part: int) -> None:
    device(backend)
    module, numbers = compiled(backend, part)
    for job in share_of(backend)[op]:
        if id(job) in numbers:
            assert module is not None
            agree(job, module.run(numbers.index(id(job))), terms=20)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "d"), among_devices(NARROW), ids=str)
def test_other_dtypes(backend: str, d: DType) -> None:
    all_agree(backend, narrow_jobs()[d])
