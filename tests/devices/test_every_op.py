"""Every op of the registry and its gradient on every device that is here, beside float64."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from tests.devices.available import COMPUTING, device
from tests.devices.programs import Module, target_of
from tests.lower.test_every_op import jobs, value_job
from tests.ops.samples import cases
from tests.parity import Job, agree
from ztorch.compile.device_code import within_limits
from ztorch.compile.kernels import Kernels
from ztorch.dtypes import DType, bf16, f16, i8, i16, i64, u8, u16, u64
from ztorch.errors import Unsupported
from ztorch.lower.plan import Params, lower

# The inner loop tries what between them use every kind of kernel.
QUICK = ("matmul", "softmax'", "sum", "where", "cumsum", "take", "cast")
OPS = [pytest.param(op, marks=() if op in QUICK else pytest.mark.slow) for op in jobs()]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("backend", COMPUTING)
def test_op(backend: str, op: str) -> None:
    all_agree(backend, jobs()[op])


# What the samples above are not in, by kind: each op's first sample is.
OTHERS: dict[str, tuple[DType, ...]] = {"f": (f16, bf16), "s": (i8, i16, i64),
                                       "u": (u8, u16, u64)}


@functools.cache
def narrow_jobs() -> dict[DType, list[Job]]:
    """By dtype: an op's first sample that is in its kind."""
    found: dict[DType, list[Job]] = {d: [] for some in OTHERS.values() for d in some}
    seen = set()
    for case in cases("fsu"):
        key = case.public.name, case.result, case.dtype
        if key not in seen:
            for d in OTHERS[case.dtype.kind]:
                found[d].append(value_job(case if d.is_float else replace(case, dtype=d), d))
        seen.add(key)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("d", [d for some in OTHERS.values() for d in some], ids=repr)
@pytest.mark.parametrize("backend", COMPUTING)
def test_other_dtypes(backend: str, d: DType) -> None:
    all_agree(backend, narrow_jobs()[d])


def all_agree(backend: str, some: list[Job], **limits: int) -> None:
    """Compiles what the device is able to do as one module, runs each and compares. `limits` replace
    what the device says of itself."""
    device(backend)
    able = some
    try:
        module = Module(able, backend, **limits)
    except Unsupported:  # something of it, so each is asked for alone
        able = [job for job in some if _able(job, backend)]
        module = Module(able, backend, **limits) if able else None
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
