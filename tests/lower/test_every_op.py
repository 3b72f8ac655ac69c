"""Every op of the registry and its gradient, lowered and run on every machine this host can play."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.cases.covering import full, pairs
from tests.cases.grouping import together
from tests.cases.interpreted_machines import INTERPRETED
from tests.cases.jobs import NARROW as NARROW_DTYPES
from tests.cases.jobs import Jobs, Together, narrow_jobs, parts, sharing
from tests.parity import HERE, NARROW, WIDE, Job, Module, agree, interpreted
from ztorch import ops
from ztorch.dtypes import DType, boolean, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value

BEST = HERE[-1]
# The best level and the interpreter with remainders everywhere are the inner loop.
MACHINES = [pytest.param(m, marks=() if m in ("few lanes", BEST) else pytest.mark.slow)
            for m in (*INTERPRETED, *HERE)]


TOGETHER = 24  # ops that are compiled at once


class Machine:
    """Runs jobs; on a CPU level they are compiled together when the first is asked for."""

    def __init__(self, name: str, every: list[Job]):
        self.limits = INTERPRETED.get(name)
        self.together = Together(every, lambda some: Module(some, name)) if self.limits is None else None

    def __call__(self, job: Job) -> list[np.ndarray]:
        if self.together is not None:
            return self.together.run(job)
        assert self.limits is not None
        return interpreted(job, self.limits, workers=2)


@functools.cache
def share_of(name: str) -> dict[str, Jobs]:
    every = [*INTERPRETED, *HERE]
    return sharing(every.index(name), len(every))


@functools.cache
def machine(name: str, part: int) -> Machine:
    some = parts(share_of(name), TOGETHER)[part]
    return Machine(name, [job for op in some for job in share_of(name)[op]])


@together(by=lambda name, part, op: f"{name}-{part}")
@pytest.mark.parametrize(("op", "name", "part"), [
    pytest.param(op, *m.values, part, marks=m.marks)
    for m in MACHINES for part, some in enumerate(parts(share_of(str(m.values[0])), TOGETHER)) for op in some])
def test_op(op: str, name: str, part: int) -> None:
    its = machine(name, part)
    for job in share_of(name)[op]:
        agree(job, its(job), terms=20)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "name"), pairs(NARROW_DTYPES, [*INTERPRETED, *HERE]), ids=str)
def test_other_dtypes(d: DType, name: str) -> None:
    runs = Machine(name, narrow_jobs()[d])
    for job in narrow_jobs()[d]:
        agree(job, runs(job), terms=20)


# -- all remainders -----------------------------------------------------------------------------------


def _input(name: str, shape: tuple[int, ...], d: DType = f32) -> Value:
    return leaf("input", name, shape, d)


def _filled(roots: dict[str, Value], label: str) -> Job:
    graph = Graph(roots)
    rng = np.random.default_rng(7)
    feeds = {}
    for v in graph.leaves("input"):
        if v.dtype.is_float:
            feeds[v] = rng.normal(size=v.shape).astype(v.dtype.numpy)
        elif v.dtype is boolean:
            feeds[v] = rng.random(v.shape) < 0.5
        else:
            feeds[v] = rng.integers(0, 100, v.shape).astype(v.dtype.numpy)
    return Job(graph, feeds, label)


def sized(n: int) -> Iterator[Job]:
    """Graphs whose every kernel meets n elements, rows or columns."""
    x, y, c = _input("x", (n,)), _input("y", (n,)), _input("c", (n,), boolean)
    a, b = _input("a", (3, n)), _input("b", (n, 3))
    wide, at = _input("wide", (2, n, 3)), _input("at", (n,), i32)
    yield _filled({
        "arithmetic": (x + y) * ops.exp(x), "choice": ops.where(x > y, x, y),
        "bools": ops.bitwise_xor(c, ops.bitwise_not(x > 0.0)), "kept": ops.where(c, x, 0.0)},
        f"elementwise {n}")
    yield _filled({
        "softmax": ops.softmax(a), "rows": ops.sum(a, axis=1), "columns": ops.sum(b, axis=0),
        "largest": ops.max(a, axis=1), "where": ops.argmax(a, axis=1), "all": ops.sum(b),
        "norm": ops.standardize(a), "middle": ops.mean(wide, axis=1),
        "ends": ops.min(wide, axis=(0, 2))}, f"reductions {n}")
    yield _filled({
        "transposed": ops.transpose(a) * 2.0, "moved": ops.transpose(wide, (2, 0, 1)),
        "flipped": ops.flip(a) + a, "padded": ops.pad(a, (1, 2), (0, 1), 3.0),
        "joined": ops.concat(a, ops.transpose(b), a, axis=1), "stacked": ops.concat(b, b, axis=0),
        "even": ops.slice_by(a, (slice(None), slice(None, None, 2))),
        "taken": ops.take(b, at, 0), "columns": ops.take(a, at, 1),
        "flags": ops.concat(c, x > 0.0, axis=0), "reshaped": ops.reshape(b, (3, n)) + a},
        f"movement {n}")
    yield _filled({
        "inner": ops.matmul(a, b), "outer": ops.matmul(b, a),
        "batched": ops.matmul(wide, _input("right", (2, 3, n))),
        "left": ops.matmul(ops.transpose(b), b), "vector": ops.matmul(a, x),
        "layer": ops.relu(ops.matmul(_input("z", (2, 5)), _input("w", (5, n))) + x)},
        f"products {n}")


def whole(n: int) -> Iterator[Job]:
    """Integers of every width; division also by zero, where lanes beyond the end divide too."""
    for d in (i8, i16, i32, i64, u8, u16, u32, u64):
        x, y = _input("x", (n,), d), _input("y", (n,), d)
        roots = {"sum": x + y, "product": x * y, "less": x < y, "quotient": ops.div(x, y - y),
                 "some": ops.div(x, ops.maximum(y, ops.ones_like(y))), "rest": ops.rem(x, y),
                 "total": ops.sum(x), "float": ops.cast(x, f32), "wide": ops.cast(x, i64),
                 "narrow": ops.cast(x, u8), "flag": ops.cast(x, boolean),
                 "bits": ops.bitwise_or(ops.shift_left(x, ops.ones_like(x)), y)}
        yield _filled(roots, f"{d} {n}")
    x = _input("x", (n,)) * 1e3
    yield _filled({str(d): ops.cast(x, d) for d in (i8, u8, i16, u16, i32, u32, i64, f64)},
                  f"casts {n}")


# Every remainder of 16 lanes, twice; each run tries those of 4 and of 8, and some of 16.
SIZES = range(1, 34) if full() else (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 33)
# Of four lanes and of sixteen; a run that is not full leaves out what is one remainder more of both.
INTERPRETED_SIZES = {NARROW: range(1, 18), WIDE: range(1, 34)} if full() else {
    NARROW: (1, 2, 3, 4, 5, 7, 9, 17), WIDE: (1, 6, 8, 13, 15, 16, 17, 33)}
ALL_LEVELS = range(1, 34, 4) if full() else (5, 17)  # the others are for the best level alone


def _slow_sizes(few: tuple[int, ...]) -> list:
    return [pytest.param(n, marks=() if n in few else pytest.mark.slow) for n in SIZES]


@pytest.mark.parametrize("n", _slow_sizes((1, 5, 16, 17)))
def test_every_remainder(n: int) -> None:
    every = list(sized(n))
    for target in HERE if n in ALL_LEVELS else HERE[-1:]:
        module = Module(every, target)
        for k, job in enumerate(every):
            agree(job, module.run(k), terms=n)
    interpreters = [limits for limits, sizes in INTERPRETED_SIZES.items() if n in sizes]
    for job in every:
        for limits in interpreters:
            agree(job, interpreted(job, limits, workers=3), terms=n)


@pytest.mark.parametrize(("n", "target"), [
    pytest.param(*p.values, marks=(*p.marks, pytest.mark.slow)) for p in pairs((5, 33), HERE)])
def test_whole_numbers(n: int, target: str) -> None:
    every = list(whole(n))
    module = Module(every, target)
    for k, job in enumerate(every):
        got = module.run(k)
        agree(job, got)
        for a, b in zip(got, interpreted(job, WIDE), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("target", HERE)
def test_random_bits_are_equal_on_every_target(target: str) -> None:
    seed, step = leaf("state", "seed", (2,), u32), leaf("state", "step", (), u32)
    feeds = {seed: np.array([123, 2**32 - 1], np.uint32), step: np.array(7, np.uint32)}
    job = Job(Graph({f"bits{n}": ops.random_bits((n,), seed, step, n) for n in (1, 7, 64, 65)}
                    | {"uniform": ops.random_uniform((3, 11), seed, step, 5),
                       "dropped": ops.dropout(OPS.full((5, 7), 1.0), 0.5, seed, step, 9)}), feeds)
    for got, want in zip(Module([job], target).run(0), job.oracle(), strict=True):
        np.testing.assert_array_equal(got, want)  # the oracle's float64 holds these exactly


@pytest.mark.parametrize("target", HERE)
def test_no_elements(target: str) -> None:
    """Tensors of size zero have no kernel, and values computed from them start from nothing."""
    x, y, s = _input("x", (3, 0)), _input("y", (3, 2)), leaf("state", "s", (0,), f32)
    job = Job(Graph({
        "joined": ops.concat(x, y, axis=1), "sum": ops.sum(x, axis=1), "prod": ops.prod(x),
        "product": ops.matmul(x, ops.transpose(x)), "padded": ops.pad(x, (0, 1), (0, 1), 2.0),
        "itself": x * 2.0, "none": ops.slice_by(y, slice(0, 0))}, {"s": s * 2.0}),
        {x: np.zeros((3, 0)), y: np.ones((3, 2)), s: np.zeros(0)})
    agree(job, Module([job], target).run(0))
    agree(job, interpreted(job, WIDE, fusion=False, passes=()))
