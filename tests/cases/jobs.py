"""The table of ops that everything which runs kernels is tried on: each sample of each op as a graph with
data, in the modes value and gradient (of float32 and float64, and of integers), and in all other
dtypes. What of it one machine runs, says `covering.share`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tests.cases.covering import full, share
from tests.cases.loops import loop_jobs
from tests.cases.samples import Case, cases, stored
from tests.parity import Job
from ztorch import ops
from ztorch.dtypes import DType, bf16, f16, f32, f64, i8, i16, i64, u8, u16, u64
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import REGISTRY, leaf
from ztorch.graph.value import Graph


def value_job(case: Case, d: DType) -> Job:
    leaves = case.leaves(d)
    feeds = {v: stored(v, a) for v, a in zip(leaves, case.arrays(), strict=True)}
    return Job(Graph({"y": case.call(*leaves)}), feeds, f"{case} in {d}")


def gradient_job(case: Case, d: DType) -> Job | None:
    """The gradient of a weighted sum of all results."""
    leaves = case.leaves(d)
    feeds = {v: stored(v, a) for v, a in zip(leaves, case.arrays(), strict=True)}
    floats = [v for v in leaves if v.dtype == d]
    y = case.call(*leaves)
    if not floats or not y.dtype.is_float:
        return None
    w = leaf("input", "w", y.shape, d)
    feeds[w] = np.random.default_rng(1).uniform(0.5, 1.5, y.shape).astype(d.numpy)
    found = gradients(ops.sum(ops.cast(y, d) * w), floats)
    return Job(Graph({f"d{k}": g for k, g in enumerate(found)}), feeds, f"{case} gradient in {d}")


def _sampled() -> Iterator[tuple[str, Job]]:
    for case in cases():
        for d in (f32, f64) if case.dtype.is_float else (case.dtype,):
            yield case.public.name, value_job(case, d)
            job = gradient_job(case, d) if d.is_float else None
            if job:
                yield f"{case.public.name}'", job
    yield from loop_jobs()


@functools.cache
def jobs() -> dict[str, list[Job]]:
    """By op; a dash means its gradient."""
    found: dict[str, list[Job]] = {}
    for name, job in _sampled():
        found.setdefault(name, []).append(job)
    return found


def composed(op: str) -> bool:
    """Whether an op is made of others: their kernels are its own."""
    public = REGISTRY.get(op.rstrip("'"))  # None for loops, which are no public ops
    return public is not None and public.primitive is None


def sharing(turn: int, of: int = 4) -> dict[str, list[Job]]:
    """What one of several machines runs of each op: other samples and dtypes than the next. An op
    that is made of others is run by each third machine, beginning elsewhere for each op."""
    return {op: [] if composed(op) and not full() and (turn + k) % 3 else share(some, turn + k, of)
            for k, (op, some) in enumerate(jobs().items())}


# The inner loop tries what between them use every kind of kernel.
QUICK = ("matmul", "softmax'", "sum", "where", "cumsum", "take", "cast")


def parts(shared: dict[str, list[Job]], size: int) -> list[list[str]]:
    """The ops that a machine runs, cut into those that are compiled at once: first the quick ones, then
    `size` each."""
    ops = [op for op, some in shared.items() if some]
    first, rest = ([op for op in ops if (op in QUICK) is quick] for quick in (True, False))
    return [p for p in (first, *(rest[k:k + size] for k in range(0, len(rest), size))) if p]


# What the table above is not in, by kind of dtype; each op's first sample is.
OTHERS: dict[str, tuple[DType, ...]] = {"f": (f16, bf16), "s": (i8, i16, i64),
                                       "u": (u8, u16, u64)}


@functools.cache
def narrow_jobs() -> dict[DType, list[Job]]:
    """By dtype: an op's first sample that is in its kind. An op that is made of others is in each third
    of its dtypes; `ops/test_every_dtype.py` has it in all."""
    found: dict[DType, list[Job]] = {d: [] for some in OTHERS.values() for d in some}
    seen = set()
    for k, case in enumerate(cases("fsu")):
        key = case.public.name, case.result, case.dtype
        if key not in seen:
            for n, d in enumerate(OTHERS[case.dtype.kind]):
                if composed(case.public.name) and not full() and (k + n) % 3:
                    continue
                found[d].append(value_job(case if d.is_float else replace(case, dtype=d), d))
        seen.add(key)
    return found
