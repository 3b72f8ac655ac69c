"""Workers: the same bits whatever their number, and nothing of Python or of memory in a call."""

from __future__ import annotations

import os
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

from tests.parity import HERE, Job, Module
from ztorch import ops
from ztorch.dtypes import f32, i32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.host.settings import using

BEST = HERE[-1]
THREADS = (1, 2, 3, 5)


def training_step(rows: int = 37, width: int = 29) -> Job:
    """Products, softmax, sums along both axes and updates in place, none of a round size."""
    rng = np.random.default_rng(0)
    x, label = leaf("input", "x", (rows, 11), f32), leaf("input", "label", (rows,), i32)
    shapes = {"w": (11, width), "b": (width,), "v": (width, 5), "m": (11, width)}
    s = {n: leaf("state", n, shape, f32) for n, shape in shapes.items()}
    hidden = ops.tanh(ops.matmul(x, s["w"]) + s["b"])
    scores = ops.log_softmax(ops.matmul(hidden, s["v"]))
    loss = ops.mean(-ops.sum(scores * ops.one_hot(label, 5), axis=1))
    weights = [s["w"], s["b"], s["v"]]
    dw, db, dv = gradients(loss, weights)
    moved = s["m"] * 0.9 + dw
    graph = Graph({"loss": loss, "scores": scores, "columns": ops.sum(hidden, axis=0)},
                  {"w": s["w"] - moved * 0.1, "b": s["b"] - db * 0.1, "v": s["v"] - dv * 0.1,
                   "m": moved})
    feeds = {v: rng.normal(size=v.shape).astype(np.float32) for v in [x, *s.values()]}
    feeds[label] = rng.integers(0, 5, rows).astype(np.int32)
    return Job(graph, feeds)


def long_sums() -> Job:
    """Reductions that are cut in two so that workers can share them."""
    x = leaf("input", "x", (1 << 17,), f32)
    data = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
    return Job(Graph({"sum": ops.sum(x), "largest": ops.max(x)}), {x: data})


def convolutions() -> Job:
    """Products of windows that are read where they lie, and sums of several columns at once."""
    rng = np.random.default_rng(2)
    x, slope = (leaf("input", n, (3, 8, 8, 67), f32) for n in ("x", "slope"))
    full, each = (leaf("input", n, (3, 3, k, 67), f32) for n, k in (("full", 67), ("each", 1)))
    y = ops.conv(ops.conv(x, full, padding="same"), each, padding="same", groups=67)
    found = gradients(ops.sum(y * slope), [x, full, each])
    graph = Graph({"y": y, **{f"d{k}": g for k, g in enumerate(found)}})
    return Job(graph, {v: rng.normal(size=v.shape).astype(np.float32)
                       for v in (x, slope, full, each)})


@pytest.fixture(scope="module")
def module() -> Module:
    return Module([training_step(), long_sums(), convolutions()], BEST)


def test_the_same_bits_for_any_number_of_threads(module: Module) -> None:
    for number in (0, 1, 2):
        alone = module.run(number, 1)
        for threads in THREADS[1:]:
            for got, want in zip(module.run(number, threads), alone, strict=True):
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("spin", (0, 20_000))
def test_many_dispatches(spin: int) -> None:
    """Awake or asleep in between, workers neither miss a start nor begin one twice."""
    x, n = leaf("input", "x", (300,), f32), leaf("state", "n", (), i32)
    total = leaf("state", "total", (300,), f32)
    feeds = {x: np.arange(300), n: np.array(0), total: np.zeros(300)}
    job = Job(Graph({"n": n}, {"n": n + 1, "total": total + x}), feeds)
    with using(spin=spin):
        module = Module([job], BEST)
        call = module.executable.bind("j0")
        # A pool of its own for each setting: pools are kept by their number of workers.
        call._count = 2 if spin else 4
        times = 500 if spin else 100
        [name] = call.inputs
        call.inputs[name][:] = np.arange(300)
        for _ in range(times):
            call()
    assert module.executable.state("j0/n") == times
    np.testing.assert_array_equal(module.executable.state("j0/total"), np.arange(300.0) * times)
    # Those who kept off each other's cores may use all of them again, once they are asleep.
    started = time.monotonic()
    for thread in threading.enumerate():
        while os.sched_getaffinity(thread.native_id or 0) != os.sched_getaffinity(0):
            assert time.monotonic() - started < 10


def test_programs_on_two_python_threads() -> None:
    """They may share a pool of workers, whose runs are kept apart."""
    modules = [Module([training_step(37)], BEST), Module([training_step(23)], BEST)]
    wants = [m.run(0, 1) for m in modules]
    wrong: list[str] = []

    def work(which: int) -> None:
        for turn in range(60):
            got = modules[which].run(0, 2 + turn % 2)
            if not all(np.array_equal(a, b) for a, b in zip(got, wants[which], strict=True)):
                wrong.append(f"program {which}, turn {turn}")

    threads = [threading.Thread(target=work, args=(k % 2,)) for k in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive(), "a dispatch hangs"
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_makes_its_own_workers(module: Module) -> None:
    want = module.run(0, 3)
    child = os.fork()
    if child == 0:
        same = all(np.array_equal(a, b) for a, b in zip(module.run(0, 3), want, strict=True))
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("threads", (1, 2))
def test_a_call_allocates_nothing(module: Module, threads: int) -> None:
    call = module.executable.bind("j0")
    call._count = threads
    call()
    tracemalloc.start()
    try:
        for _ in range(10):
            call()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(1000):
            call()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1000  # not a byte a call; the interpreter itself may keep a few
    assert peak - before < 2048  # what comes and goes is a lock's worth


def _python_calls(module: Module, number: int) -> int:
    """Function calls that Python sees in one run."""
    call = module.executable.bind(f"j{number}")
    call._count = 1
    call()
    count = 0

    def seen(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def test_python_does_the_same_for_one_kernel_and_for_many() -> None:
    x = leaf("input", "x", (6, 6), f32)
    one, many = ops.exp(x), x
    for _ in range(12):
        many = ops.matmul(ops.softmax(many), x)
    module = Module([Job(Graph({"y": y}), {x: np.ones((6, 6))}) for y in (one, many)], BEST)
    steps = [len(p.steps) for p in module.compiled.plans.values()]
    assert steps[0] == 1 and steps[1] > 12
    assert _python_calls(module, 0) == _python_calls(module, 1) < 12
