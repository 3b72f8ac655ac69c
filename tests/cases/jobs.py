"""The table of ops that everything which runs kernels is tried on: each sample of each op as a graph with
data, in the modes value and gradient (of float32 and float64, and of integers), and in all other
dtypes. `covering.share` picks the part that one machine runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, overload

import numpy as np

from tests.cases.covering import COMPOSED_DAYS, DAYS, full, share, today
from tests.cases.loops import loop_makers
from tests.cases.samples import Case, cases, stored
from tests.parity import Arrays, Job
from ztorch import ops
from ztorch.dtypes import ALL, DType, f32, f64
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import REGISTRY, leaf
from ztorch.graph.value import Graph
from ztorch.ir.halves import HALVES


def value_job(case: Case, d: DType) -> Job:
    leaves = case.leaves(d)
    feeds = {v: stored(v, a) for v, a in zip(leaves, case.arrays(), strict=True)}
    return Job(Graph({"y": case.call(*leaves)}), feeds, f"{case} in {d}")


def gradient_job(case: Case, d: DType) -> Job:
    """The gradient of a weighted sum of all results."""
    leaves = case.leaves(d)
    feeds = {v: stored(v, a) for v, a in zip(leaves, case.arrays(), strict=True)}
    floats = [v for v in leaves if v.dtype == d]
    y = case.call(*leaves)
    assert floats and y.dtype.is_float, case
    w = leaf("input", "w", y.shape, d)
    feeds[w] = np.random.default_rng(1).uniform(0.5, 1.5, y.shape).astype(d.numpy)
    result = gradients(ops.sum(ops.cast(y, d) * w), floats)
    return Job(Graph({f"d{k}": g for k, g in enumerate(result)}), feeds, f"{case} gradient in {d}")


class Maker:
    """Makes a job when it is first asked for, and gives the same one again."""

    def __init__(self, make: Callable[..., Job], case: object, d: DType):
        self.make, self.case, self.dtype = make, case, d

    @functools.cached_property
    def job(self) -> Job:
        return self.make(self.case, self.dtype)


class Together:
    """Jobs that are compiled as one module. If that fails, each is compiled by itself when it is run, so that only the
    culprit fails."""

    def __init__(self, jobs: Sequence[Job], module: Callable[[Sequence[Job]], Any]):
        self.compile = module
        self.numbers = {id(job): k for k, job in enumerate(jobs)}
        try:
            self.module = module(jobs)
        except Exception:
            self.module = None

    def run(self, job: Job) -> Arrays:
        """Outputs and new states."""
        if self.module is None:
            return self.compile([job]).run(0)
        return self.module.run(self.numbers[id(job)])


class Jobs(Sequence[Job]):
    """Jobs of an op, each made when it is first asked for: collecting tests takes their number alone."""

    def __init__(self, makers: Sequence[Maker]):
        self.makers = makers

    def __len__(self) -> int:
        return len(self.makers)

    @overload
    def __getitem__(self, at: int) -> Job: ...
    @overload
    def __getitem__(self, at: slice) -> Jobs: ...
    def __getitem__(self, at: int | slice) -> Job | Jobs:
        return Jobs(self.makers[at]) if isinstance(at, slice) else self.makers[at].job


@functools.cache
def _of_floats() -> dict[tuple[str, str, str], Case]:
    """The first case of floats of each op, result and dtype that it casts to."""
    of_floats: dict[tuple[str, str, str], Case] = {}
    for case in chain(cases("f"), cases("f", composed=True)):
        of_floats.setdefault((case.public.name, case.result, str(case.sample.attrs.get("dtype"))), case)
    return of_floats


@functools.cache
def _gives_floats(op: str, result: str, to: str) -> bool:
    """Whether an op of floats gives floats: it does for every sample, where it casts to no other dtype."""
    case = _of_floats()[op, result, to]
    return case.call(*case.leaves(f32)).dtype.is_float


def has_gradient(case: Case) -> bool:
    """Whether an op's result is a float, and one of its arguments."""
    drawn = any(not isinstance(shape, np.ndarray) or shape.dtype.kind == "f"
                for shape in case.sample.shapes[case.public.name == "where":])
    return drawn and _gives_floats(case.public.name, case.result, str(case.sample.attrs.get("dtype")))


def _sampled() -> Iterator[tuple[str, Callable[..., Job], object, DType]]:
    for case in cases():
        for d in (f32, f64) if case.dtype.is_float else (case.dtype,):
            yield case.public.name, value_job, case, d
            if d.is_float and has_gradient(case):
                yield f"{case.public.name}'", gradient_job, case, d
    yield from loop_makers()


@functools.cache
def jobs() -> dict[str, Jobs]:
    """By op; a dash means its gradient."""
    makers: dict[str, list[Maker]] = {}
    for name, make, case, d in _sampled():
        makers.setdefault(name, []).append(Maker(make, case, d))
    return {name: Jobs(of_op) for name, of_op in makers.items()}


def composed(op: str) -> bool:
    """Whether an op is made of others: their kernels are its own."""
    public = REGISTRY.get(op.rstrip("'"))  # None for loops, which are not public ops
    return public is not None and public.primitive is None


def composed_turns(of: int) -> dict[tuple[int, int], tuple[int, int, int]]:
    """The turn of each (day, machine) for an op that is made of others: whether it has the value (0), nothing, or
    the gradient (2), which share of it, and of how many. Its kernels are of the same primitives everywhere, so a
    machine has it every second day."""
    seats: dict[int, list[tuple[int, int]]] = {}
    for day in range(COMPOSED_DAYS):
        for machine in range(of):
            seats.setdefault((machine + day) % 4, []).append((day, machine))
    return {seat: (turn, at, len(some)) for turn, some in seats.items() for at, seat in enumerate(some)}


def sharing(machine: int, of: int, doubles: bool = True) -> dict[str, Jobs]:
    """The jobs of one of several machines on this day: each primitive op, on another sample or dtype than the next
    machine and the next day, and half of the ops that are made of others, which have many kernels: the value or the
    gradient, the other half the next day. After `DAYS` days, of composed ops `COMPOSED_DAYS`, the machines together
    have run every job. A full run has all jobs. `doubles` tells whether the machine has float64.

    >>> {op for op in sharing(0, 3) if not composed(op)} == {op for op in jobs() if not composed(op)}
    True
    """
    day = today()
    turn, names = machine + of * (day % DAYS), list(dict.fromkeys(op.rstrip("'") for op in jobs()))
    # The seats are counted from another day for each op: else one day would have the values of all.
    seats, numbers = composed_turns(of), {op: k for k, op in enumerate(names)}
    result = {}
    for k, (op, some) in enumerate(jobs().items()):
        makers = [m for m in some.makers if doubles or m.dtype is not f64]
        name = op.rstrip("'")
        if full() or not composed(name):
            result[op] = Jobs(share(makers, turn + k, DAYS * of))
            continue
        kind, at, of_all = seats[(day + numbers[name]) % COMPOSED_DAYS, machine]
        has = kind % 2 == 0 if f"{name}'" not in jobs() else kind == 2 * op.endswith("'")
        result[op] = Jobs(share(makers, at, of_all) if has else [])
    return result


# The inner loop tries a set that together uses every kind of kernel.
QUICK = ("matmul", "softmax'", "sum", "where", "cumsum", "take", "cast")


def parts(shared: dict[str, Jobs], size: int) -> list[list[str]]:
    """The ops that a machine runs, cut into those that are compiled at once: first the quick ones, then
    `size` each."""
    ops = [op for op, some in shared.items() if some]
    first, rest = ([op for op in ops if (op in QUICK) is quick] for quick in (True, False))
    return [p for p in (first, *(rest[k:k + size] for k in range(0, len(rest), size))) if p]


# Samples that the table above leaves out, by kind of dtype; each op's first sample is in it.
OTHERS: dict[str, tuple[DType, ...]] = {
    "f": HALVES, **{k: tuple(d for d in ALL if d.kind == k and d.bits != 32) for k in "su"}}
NARROW = [d for some in OTHERS.values() for d in some]


@functools.cache
def narrow_jobs() -> dict[DType, list[Job]]:
    """By dtype: an op's first sample that is in its kind. An op that is made of others is in each third
    of its dtypes; `ops/test_every_dtype.py` has it in all."""
    result: dict[DType, list[Job]] = {d: [] for d in NARROW}
    seen = set()
    for k, case in enumerate(cases("fsu")):
        key = case.public.name, case.result, case.dtype
        if key not in seen:
            for n, d in enumerate(OTHERS[case.dtype.kind]):
                if composed(case.public.name) and not full() and (k + n) % 3:
                    continue
                result[d].append(value_job(case if d.is_float else replace(case, dtype=d), d))
        seen.add(key)
    return result
