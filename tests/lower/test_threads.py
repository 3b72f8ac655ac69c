"""Workers: the same bits whatever their number, and nothing of Python or of memory in a call."""

from __future__ import annotations

import os
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

from tests.cases.steps import convolutions, long_sums, training_step
from tests.parity import HERE, Job, Module
from ztorch import ops
from ztorch.dtypes import f32, i32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.host.settings import using

BEST = HERE[-1]
THREADS = (1, 2, 3, 5)


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
    """Whether workers spin or sleep between runs, each start is seen exactly once."""
    x, n = leaf("input", "x", (300,), f32), leaf("state", "n", (), i32)
    total = leaf("state", "total", (300,), f32)
    feeds = {x: np.arange(300), n: np.array(0), total: np.zeros(300)}
    job = Job(Graph({"n": n}, {"n": n + 1, "total": total + x}), feeds)
    with using(spin=spin):
        module = Module([job], BEST)
        call = module.executable.bind("j0")
        # A pool of its own for each setting: pools are kept by their number of workers.
        call.workers = 2 if spin else 4
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


@pytest.mark.slow
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
    call.workers = threads
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
    assert peak - before < 2048  # temporary objects have the size of a lock


def _python_calls(module: Module, number: int) -> int:
    """Function calls that Python sees in one run."""
    call = module.executable.bind(f"j{number}")
    call.workers = 1
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
