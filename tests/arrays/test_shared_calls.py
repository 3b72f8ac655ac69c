"""Short runs that workers share where they are awake, in native functions of Python's kind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import ztorch as zt
from ztorch.abi import BUSY, SHARING
from ztorch.arrays import programs
from ztorch.backends import python_calls, workers
from ztorch.backends.library import LoadedLibrary
from ztorch.host.settings import using

N = 60_000
RANDOM = np.random.default_rng(0)
pytestmark = pytest.mark.skipif(not python_calls.has_python_functions(), reason="no native functions")


KEPT: list[workers.Workers] = []  # their threads refer to them as long as the process lives


class Addition:
    """An addition that a native function computes, and the workers that may share it."""

    def __init__(self, records: list[np.ndarray]):
        a, b = (RANDOM.uniform(1, 2, N).astype(np.float32) for _ in "ab")
        self.result = a + b
        self._x, self._y = zt.tensor(a, device="cpu"), zt.tensor(b, device="cpu")
        for _ in range(3):
            self.run()
        self.pool, self._record = workers._pools[2], records[-1]
        # Its thread needs Python's lock until it sleeps; woken, it stays awake.
        end = time.monotonic() + 20
        while self.pool.block["sleepers"] != 1 and time.monotonic() < end:
            time.sleep(0.001)
        self.pool.block["spin"] = 1 << 40
        for _ in range(9):  # one of them sees that it sleeps, and the next one wakes it
            if not self.pool.block["generation"]:
                self.set(seconds=10**9, runs=0)
                self.run()
        self._woken = int(self.pool.block["generation"][0])

    def run(self) -> None:
        np.testing.assert_array_equal((self._x + self._y).numpy(), self.result)

    def set(self, **fields: int) -> None:
        for name, value in fields.items():
            self._record[list(SHARING).index(name)] = value

    def known(self, name: str) -> int:
        return int(self._record[list(SHARING).index(name)])

    @property
    def shared(self) -> int:
        """How many runs were shared."""
        return int(self.pool.block["generation"][0]) - self._woken


@pytest.fixture
def addition(monkeypatch: pytest.MonkeyPatch) -> Iterator[Addition]:
    """With two threads, of which the second stays awake as long as the test runs."""
    made: list[np.ndarray] = []
    whole = workers.Workers.sharing

    def sharing(pool: workers.Workers, library: LoadedLibrary) -> np.ndarray:
        made.append(whole(pool, library))
        assert pool in library.pools  # it stays mapped until they have left it
        return made[-1]

    monkeypatch.setattr(workers.Workers, "sharing", sharing)
    monkeypatch.setattr(workers, "_pools", {})
    programs.forget()
    with using(threads=2, spin=0):
        addition = Addition(made)
        KEPT.append(addition.pool)
        yield addition
    addition.pool.block["spin"] = 0
    addition.pool._busy.value = BUSY["no"]
    addition.set(seconds=10**9, runs=0, rest=0, missed=0)
    addition.run()  # then it falls asleep
    programs.forget()


def test_workers_that_are_awake_share_a_run(addition: Addition) -> None:
    addition.set(seconds=10**9, runs=0)
    for k in range(1, 6):
        addition.run()
        assert addition.shared == k and addition.pool.block["arrived"] == 0
    assert addition.known("gained") > 4 * 10**9 - 10**8 and addition.known("rest") == 0


def test_they_do_not_while_python_has_them_run_or_started_them_just_now(addition: Addition) -> None:
    for busy in ("yes", "starting"):
        addition.set(seconds=10**9, runs=0)
        addition.pool._busy.value = BUSY[busy]
        addition.run()
        assert addition.shared == 0 and addition.pool._busy.value == BUSY[busy]
    assert 0 < addition.known("seconds") < 10**9, "a run by one thread is timed"


def test_slower_sharing_is_retried_ever_less_often(addition: Addition) -> None:
    for k, rest in enumerate((64, 128, 256)):
        addition.set(seconds=1, runs=0, rest=0)  # one thread takes a nanosecond
        addition.run()
        assert addition.known("rest") == rest and addition.shared == k + 1
        addition.run()
        assert addition.known("rest") == rest - 1 and addition.shared == k + 1


def test_a_few_runs_of_each_thousand_are_by_one_thread(addition: Addition) -> None:
    addition.set(seconds=10**9, runs=1016)  # far more than what it takes
    for _ in range(8):
        addition.run()
    assert addition.shared == 4 and addition.known("seconds") < 10**9


def test_sleeping_workers_are_woken_once_in_a_while(addition: Addition) -> None:
    addition.set(seconds=10**9, runs=0)
    addition.pool.block["spin"] = 0
    addition.run()
    end = time.monotonic() + 20
    while addition.pool.block["sleepers"] != 1 and time.monotonic() < end:
        time.sleep(0.001)
    begun = addition.shared
    for k in range(5):
        addition.set(seconds=24_000, runs=0)
        addition.run()
        assert addition.shared == begun + (k == 4)


def test_threads_of_python_and_runs_of_programs_do_not_disturb_one_another(addition: Addition) -> None:
    wrong: list[int] = []
    addition.set(seconds=10**9, runs=0)
    model = zt.Sequential([zt.layers.Input((64,)), zt.layers.Dense(64)], seed=1)
    with using(threads=2):
        program = model.compile("cpu", batch_size=64)
    rows = RANDOM.normal(size=(64, 64)).astype(np.float32)
    true = program.predict(rows)

    def compute(k: int) -> None:
        bound = program.executable.bind("predict")
        bound.workers = 2
        bound.inputs[next(iter(bound.inputs))][...] = rows
        for _ in range(40):
            if k % 2:
                bound()
                if not np.array_equal(next(iter(bound.outputs.values())), true):
                    wrong.append(k)
            else:
                addition.run()

    threads = [threading.Thread(target=compute, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong and not any(t.is_alive() for t in threads) and addition.shared >= 80


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_has_none_and_computes_itself(addition: Addition) -> None:
    x = RANDOM.uniform(1, 2, N).astype(np.float32)
    a, twice = zt.tensor(x, device="cpu"), zt.compiled(lambda x: x + x)
    for _ in range(3):
        twice(a)
    addition.set(seconds=10**9, runs=0)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(twice(a).numpy(), x + x) else 1)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the child waits for workers of its parent")
