"""Random graphs: passes in any order, fusion on or off, every machine, the same numbers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest

from tests.cases.loops import LOOPS, loop_gradient, loop_value
from tests.cases.random_graphs import random_graph
from tests.parity import (
    DEFAULT,
    HERE,
    NARROW,
    SCALAR,
    WIDE,
    Job,
    Module,
    agree,
    interpreted,
)
from ztorch import ops
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.passes import PASSES
from ztorch.graph.value import Graph, Value

MACHINES = (SCALAR, NARROW, WIDE)


def some_passes(rng: random.Random) -> tuple[str, ...]:
    """Any of them, in any order, perhaps more than once."""
    if rng.random() < 0.3:
        return DEFAULT
    return tuple(rng.choices(list(PASSES), k=rng.randint(0, 5)))


def random_job(seed: int) -> Job:
    graph, feeds = random_graph(seed, size=8 + seed % 14, exact=seed % 2 == 0)
    return Job(graph, feeds, f"graph {seed}")


def terms(seed: int) -> int:
    return 1 if seed % 2 == 0 else 200  # exact graphs hold small integers


def check_interpreted(seed: int) -> None:
    rng, job = random.Random(seed), random_job(seed)
    with np.errstate(all="ignore"):
        want = job.oracle()
    for limits in MACHINES:
        got = interpreted(job, limits, fusion=rng.random() < 0.7, passes=some_passes(rng),
                          workers=rng.choice((1, 2, 3)), backwards=rng.random() < 0.5)
        agree(job, got, want, terms(seed))


def check_compiled(seeds: range, target: str) -> None:
    rng = random.Random(seeds.start)
    every = [random_job(seed) for seed in seeds]
    with np.errstate(all="ignore"):
        wants = [job.oracle() for job in every]
    module = Module(every, target, rng.random() < 0.7, some_passes(rng))
    for k, (seed, job, want) in enumerate(zip(seeds, every, wants, strict=True)):
        agree(job, module.run(k, rng.choice((1, 2, 3))), want, terms(seed))


@pytest.mark.parametrize("seed", range(0, 60, 5))
def test_interpreted(seed: int) -> None:
    for s in range(seed, seed + 5):
        check_interpreted(s)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [s if s < 10_025 else pytest.param(s, marks=pytest.mark.full)
                                  for s in range(10_000, 10_300, 25)])
def test_more_interpreted(seed: int) -> None:
    for s in range(seed, seed + 25):
        check_interpreted(s)


@pytest.mark.parametrize(("target", "seed"), [(t, 20 * k) for k, t in enumerate(HERE)])
def test_compiled(target: str, seed: int) -> None:
    check_compiled(range(seed, seed + 20), target)


@pytest.mark.full
@pytest.mark.parametrize("seed", (100, 140, 300))
@pytest.mark.parametrize("target", HERE)
def test_more_compiled(seed: int, target: str) -> None:
    check_compiled(range(seed, seed + 40), target)


@pytest.mark.full
def test_loops_and_their_gradients_give_the_same_bits() -> None:
    jobs = [make(case, f32) for case in LOOPS for make in (loop_value, loop_gradient)]
    results = []
    for order, threads in ((DEFAULT, 1), (DEFAULT[::-1], 2), (DEFAULT[2:] + DEFAULT[:2], 1)):
        module = Module(jobs, HERE[-1], True, order)
        results.append([module.run(k, threads) for k in range(len(jobs))])
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            assert [y.tobytes() for y in mine] == [y.tobytes() for y in theirs]


# -- states ------------------------------------------------------------------------------------------


def _state(name: str, *shape: int) -> Value:
    return leaf("state", name, shape, f32)


def _swapped() -> Graph:
    a, b = _state("a", 5, 7), _state("b", 5, 7)
    return Graph({}, {"a": b, "b": a})


def _in_a_circle() -> Graph:
    a, b, c = _state("a", 6), _state("b", 6), _state("c", 6)
    return Graph({"old": a + b + c}, {"a": b, "b": c * 2.0, "c": a})


def _read_across() -> Graph:
    """The new value and someone else read the old one, across its rows."""
    w = _state("w", 5, 5)
    return Graph({"across": ops.transpose(w) * 2.0}, {"w": w + ops.transpose(w)})


def _read_by_many() -> Graph:
    """Before and after the kernel that makes the new value."""
    w, x = _state("w", 4, 6), leaf("input", "x", (3, 4), f32)
    y = ops.matmul(x, w)
    grad = ops.matmul(ops.transpose(x), y)
    return Graph({"y": y, "rows": ops.softmax(w), "total": ops.sum(w)}, {"w": w - grad * 0.1})


def _output_and_update() -> Graph:
    s = _state("s", 3, 9)
    new = ops.exp(s) - 1.0
    return Graph({"new": new, "again": new, "old": s}, {"s": new})


def _one_value_for_two() -> Graph:
    a, b = _state("a", 17), _state("b", 17)
    new = a + b
    return Graph({}, {"a": new, "b": new})


def _moments() -> Graph:
    """Adam's shape of things: three states, each new value made of the new ones before it."""
    m, v, w, g = (*(_state(n, 7, 3) for n in "mvw"), leaf("input", "g", (7, 3), f32))
    m1, v1 = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
    return Graph({"norm": ops.sum(g * g)},
                 {"m": m1, "v": v1, "w": w - m1 / (ops.sqrt(ops.abs(v1)) + 0.1)})


def _rows_over_themselves() -> Graph:
    """A state overwritten by its own softmax, and one by its own row sums, spread."""
    a, b = _state("a", 4, 33), _state("b", 4, 33)
    spread = ops.broadcast_to(ops.sum(b, axis=1, keepdims=True), (4, 33))
    return Graph({}, {"a": ops.softmax(a), "b": spread - b})


def _moved_over_itself() -> Graph:
    a, b, c = _state("a", 10), _state("b", 6, 6), _state("c", 12)
    shifted = ops.concat(ops.slice_by(a, slice(1, None)), ops.slice_by(a, slice(0, 1)), axis=0)
    return Graph({}, {"a": shifted, "b": ops.transpose(b), "c": ops.flip(c) + c})


def _product_over_its_operand() -> Graph:
    a, b = _state("a", 9, 9), _state("b", 9, 9)
    return Graph({}, {"a": ops.matmul(a, b), "b": ops.matmul(ops.transpose(b), b) + b})


def _counted() -> Graph:
    n, x = leaf("state", "n", (), "int32"), leaf("input", "x", (5,), f32)
    return Graph({"y": x * ops.cast(n, f32)}, {"n": n + 1})


STATEFUL = [_swapped, _in_a_circle, _read_across, _read_by_many, _output_and_update,
            _one_value_for_two, _moments, _rows_over_themselves, _moved_over_itself,
            _product_over_its_operand, _counted]


def stateful() -> list[Job]:
    result = []
    for make in STATEFUL:
        graph = make()
        rng = np.random.default_rng(5)
        leaves = graph.leaves("state") + graph.leaves("input")
        result.append(Job(graph, {v: rng.uniform(-1, 1, v.shape).astype(f32.numpy) if
                                  v.dtype.is_float else np.array(3) for v in leaves}, make.__name__))
    return result


@pytest.mark.parametrize("fusion", (True, pytest.param(False, marks=pytest.mark.slow)))
@pytest.mark.parametrize("target", HERE)
def test_states_in_place(target: str, fusion: bool) -> None:
    every = stateful()
    module = Module(every, target, fusion)
    for k, job in enumerate(every):
        for threads in (1, 3):
            agree(job, module.run(k, threads), terms=30)


@pytest.mark.parametrize("make", STATEFUL)
def test_states_in_place_on_the_interpreter(make: Callable[[], Graph]) -> None:
    job = stateful()[STATEFUL.index(make)]
    for limits, fusion, backwards in itertools.product(MACHINES, (True, False), (True, False)):
        agree(job, interpreted(job, limits, fusion, DEFAULT if fusion else (), 3, backwards),
              terms=30)


# -- found by random graphs ----------------------------------------------------------------------------


def _of_weights_alone() -> Graph:
    """The work may be done once, when weights are set, but each call has outputs to write."""
    w = _state("w", 4, 4)
    return Graph({"least": ops.min(w, axis=1), "same": w, "turned": ops.transpose(w) * 2.0})


def _backwards_through_a_reshape() -> Graph:
    """Positions that fall are divided: indices round down, machines towards zero."""
    x = leaf("input", "x", (6, 4), f32)
    y = ops.reshape(ops.exp(x), (2, 3, 4))
    return Graph({"y": ops.concat(y, ops.flip(y), axis=0)})


def _rows_of_one() -> Graph:
    x = leaf("input", "x", (5, 1), f32)
    return Graph({"y": ops.softmax(x), "z": ops.standardize(x) + 1.0,
                  "p": ops.matmul(x, leaf("input", "v", (1, 1), f32))})


@pytest.mark.parametrize("make", (_of_weights_alone, _backwards_through_a_reshape, _rows_of_one))
def test_found_before(make: Callable[[], Graph]) -> None:
    graph = make()
    rng = np.random.default_rng(2)
    job = Job(graph, {v: rng.normal(size=v.shape).astype(np.float32)
                      for v in (*graph.leaves("state"), *graph.leaves("input"))})
    for limits in MACHINES:
        agree(job, interpreted(job, limits), terms=9)
    for target in HERE:
        agree(job, Module([job], target).run(0), terms=9)
