"""Every op of the registry compiled in 16-bit floats and in integers of every width."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.cases.covering import full, share
from tests.cases.grouping import together
from tests.cases.jobs import composed
from tests.cases.samples import Case, cases
from tests.cases.turns import parts_of
from tests.parity import HERE, Job, Module, close
from ztorch.dtypes import ALL, DType, dtype, from_storage, to_storage
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.halves import HALVES

WHOLE = tuple(d for d in ALL if d.is_int and d.bits != 32)
# Ops whose result depends on the rounding of the arguments, or whose bound is not one of roundings.
UNLIKE = {"one_hot", "cast"}  # their results have their own dtype
FLOATS = [c for c in cases("f") if c.sample.shapes and c.public.name not in UNLIKE]
INTEGERS = [c for c in cases("su") if c.sample.shapes and c.public.name not in UNLIKE]


def narrow_job(case: Case, d: DType) -> Job:
    leaves = case.leaves(d)
    feeds = {v: from_storage(v.dtype, to_storage(v.dtype, a)) if v.dtype.is_float else a
             for v, a in zip(leaves, case.arrays(), strict=True)}
    return Job(Graph({"y": case.call(*leaves)}), feeds, str(case))


def whole_job(case: Case, d: DType) -> Job:
    """The sample's numbers where they fit, in another width."""
    leaves, feeds = [], {}
    for k, a in enumerate(case.arrays()):
        keeps_dtype = isinstance(case.sample.shapes[k], np.ndarray) or a.dtype == bool
        v = leaf("input", f"x{k}", a.shape, dtype(a.dtype) if keeps_dtype else d)
        leaves.append(v)
        feeds[v] = a if keeps_dtype else np.clip(a, 0 if d.kind == "u" else -100, 100).astype(d.numpy)
    return Job(Graph({"y": case.call(*leaves)}), feeds, str(case))


TURNS = parts_of("tests/ops/test_every_dtype.py")


@functools.cache
def module(which: str, turn: int) -> tuple[list[Job], Module]:
    """The cases of one turn, which are compiled at once."""
    make, some = (narrow_job, narrow()) if which == "floats" else (whole_job, wide())
    jobs = [make(c, d) for c, d in some[turn::TURNS]]
    return jobs, Module(jobs, HERE[-1])


def job_and_result(which: str, number: int) -> tuple[Job, np.ndarray]:
    at, turn = divmod(number, TURNS)
    jobs, compiled = module(which, turn)
    [result] = compiled.run(at)
    return jobs[at], result


def narrow() -> list[tuple[Case, DType]]:
    """A primitive op's first sample in both dtypes, and of the others each second in one of them."""
    return [(c, d) for k, c in enumerate(FLOATS) if first_of_primitive(c) or k % 2 or full()
            for d in (HALVES if first_of_primitive(c) else share(HALVES, k // 2))]


def wide() -> list[tuple[Case, DType]]:
    """A primitive op's first sample in all widths, and each other in some of them."""
    return [(c, d) for k, c in enumerate(INTEGERS)
            for d in share([d for d in WHOLE if d.kind == c.dtype.kind], k,
                           1 if first_of_primitive(c) else 3)]


def first_of_primitive(case: Case) -> bool:
    """Whether a case is the first of an op that is not made of others."""
    return case.number == 0 and not composed(case.public.name)


@pytest.mark.slow
@together()
@pytest.mark.parametrize(("number", "case", "d"), [
    (k, c, d) for k, (c, d) in enumerate(narrow())], ids=str)
def test_16_bit_floats(number: int, case: Case, d: DType) -> None:
    job, got = job_and_result("floats", number)
    [want], y = job.oracle(), job.graph.outputs["y"]
    close(got, want, d if y.dtype.is_float else y.dtype, terms=20)


@pytest.mark.slow
@together()
@pytest.mark.parametrize(("number", "case", "d"), [
    (k, c, d) for k, (c, d) in enumerate(wide())], ids=str)
def test_whole_numbers(number: int, case: Case, d: DType) -> None:
    job, got = job_and_result("integers", number)
    [want] = job.oracle()
    np.testing.assert_array_equal(got, want)
