"""Every op of the registry and its gradient on every device that is here, beside float64."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from tests.cases.available import COMPUTING
from tests.cases.device_programs import all_agree
from tests.cases.jobs import QUICK, jobs, value_job
from tests.cases.samples import cases
from tests.parity import Job
from ztorch.dtypes import DType, bf16, f16, i8, i16, i64, u8, u16, u64

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


