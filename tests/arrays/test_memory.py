"""Memory of tensors: reused, freed, safe among threads, after a fork and in the middle of a collection."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import locks
from ztorch.arrays import applying, memory, programs
from ztorch.codegen import llvm, object_cache, render
from ztorch.compile import kernels
from ztorch.host import settings
from ztorch.lower import index, positions


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_threads(count: int, work: Callable[[int], None]) -> None:
    """Runs work(0), work(1), ... at once; raises an error of one of them."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def guarded(k: int) -> None:
        start.wait()
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(count)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
            assert not t.is_alive()
    finally:
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the process cannot be measured")
def test_ten_thousand_realizations_leak_nothing() -> None:
    x = zt.tensor(np.ones(5000, np.float32))
    total = 0.0
    for turn in range(10_000):
        y = x * 2.0 + float(turn % 7)
        total += float((y * y).sum().item()) * 0
        if turn == 1000:
            gc.collect()
            before, objects = resident(), len(gc.get_objects())
    assert y.numpy()[0] == 2.0 + 9999 % 7
    assert resident() - before < 4 << 20 and len(gc.get_objects()) - objects < 500


class Blocks(ctypes.Structure):
    """The result of glibc's mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in
                ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="this C library does not count")
def test_dropped_programs_leak_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of programs, calls, kernels, texts and objects a process keeps the last ones: here, few."""
    count = ctypes.CDLL(None).mallinfo2
    count.restype = Blocks
    monkeypatch.setattr(programs, "CAPACITY", 8)
    monkeypatch.setattr(applying.recorded, "_half", 16)
    monkeypatch.setattr(render, "MAX_CACHED_TEXTS", 100)
    for table, most in ((kernels._lowered, 500), (kernels._rendered, 50_000), (object_cache._memory, 50_000)):
        monkeypatch.setattr(table, "most", most)
    functions = (index._quotient, index._remainder, index._name, positions._flatten, positions._unflatten)
    taken: list[tuple[int, int]] = []
    for turn in range(200):
        with settings.using(cache=str(tmp_path)):  # nothing is found there
            y = (zt.tensor(np.ones((2, 3 + turn), np.float32)) * 2.5 + turn).sum()
            assert y.item() == 2 * (3 + turn) * (2.5 + turn)
        if turn in (99, 199):
            for f in functions:
                f.cache_clear()  # of their own limit, which is no smaller here
            gc.collect()
            taken.append((count().uordblks, len(gc.get_objects())))
    (bytes_before, objects_before), (bytes_after, objects_after) = taken
    assert bytes_after - bytes_before < 100 * 4096  # 1.5 KB a program are of llvmlite's pass builders
    assert objects_after - objects_before < 500


def test_gradients_and_updates_leak_nothing() -> None:
    optimizer = zt.optimizers.Adam(0.01)
    x = zt.tensor(np.ones(1000, np.float32))
    slope = zt.grad(lambda w: (w * w).sum())
    for turn in range(600):
        x = optimizer.update(x, slope(x))
        x.realize()
        if turn == 100:
            gc.collect()
            before, objects = resident(), len(gc.get_objects())
    assert len(gc.get_objects()) - objects < 300 and resident() - before < 4 << 20


def test_memory_of_dead_tensors_is_reused() -> None:
    x = zt.tensor(np.zeros(50_001, np.float32))
    places = set()
    for turn in range(20):
        y = x + float(turn)
        places.add(y.realize().node.block.place)
    assert len(places) <= 2 and y[0].item() == 19.0


def test_another_shape_is_the_same_memory() -> None:
    x, lent = zt.tensor(np.arange(6000.0)), zt.asarray(array := np.arange(6000.0))
    place = x.numpy().ctypes.data
    for turn in range(2):  # recorded the first time, then known
        y = x.reshape(2, -1)
        assert y.numpy().ctypes.data == place and y.reshape((3, 2000))[2, 1999].item() == 5999.0, turn
        own = lent.reshape(60, 100).realize()
        assert own.numpy().ctypes.data != array.ctypes.data  # which may change
    np.testing.assert_array_equal(zt.grad(lambda t: (t.reshape(2, 3)[1] ** 2).sum())(x[:6]), [0, 0, 0, 6, 8, 10])
    with zt.lazy(False):
        np.testing.assert_array_equal(y.reshape(2, 3000)[1, :2], [3000.0, 3001.0])
    del x
    gc.collect()
    others = [zt.tensor(np.full(6000, -1.0)) for _ in range(3)]
    assert y[1, 2999].item() == 5999.0 and len(others) == 3


def test_kept_memory_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = memory.memory("cpu")
    pool.release()
    assert all(zt.tensor(np.full(n, 2.0)).shape == (n,) for n in range(3000, 3400))
    assert pool._free_bytes < 200_000  # of 1.3 MB: blocks have few sizes
    monkeypatch.setattr(memory, "KEPT_BYTES", 100_000)
    tensors = [zt.tensor(np.full(5000, k, np.float32)) for k in range(20)]
    assert [t[0].item() for t in tensors] == [*range(20)]
    large = zt.tensor(np.zeros(50_000, np.float32))
    del tensors, large
    assert 0 <= pool._free_bytes <= 100_000 and pool._free_bytes == sum(
        size * len(handles) for size, handles in pool._free.items())


def test_a_view_survives_tensors_and_programs() -> None:
    x = zt.tensor(np.arange(3000.0))
    view = (x * 2.0).numpy()[::2]
    del x
    for turn in range(20):
        assert (zt.tensor(np.full(3000, float(turn))) * 2.0)[0].item() == 2.0 * turn
    np.testing.assert_array_equal(view, np.arange(3000.0)[::2] * 2)


def test_threads_with_their_own_tensors() -> None:
    def work(k: int) -> None:
        x = zt.tensor(np.full(100, float(k)))
        for turn in range(60):
            y = (x + float(turn)) * 2.0
            np.testing.assert_array_equal(y.numpy(), np.full(100, (k + turn) * 2.0))

    run_threads(20, work)


def test_threads_on_the_same_pending_tensors() -> None:
    for turn in range(15):
        base = zt.tensor(np.full(2000, float(turn)))
        shared = base * 2.0 + 1.0
        last = shared * shared

        def work(k: int, shared: Any = shared, last: Any = last, turn: int = turn) -> None:
            tensor, want = ((shared, turn * 2.0 + 1), (last, (turn * 2.0 + 1) ** 2))[k % 2]
            view = tensor.numpy()
            fresh = [zt.tensor(np.full(2000, -1.0)) for _ in range(3)]  # take freed blocks
            np.testing.assert_array_equal(view, np.full(2000, want))
            np.testing.assert_array_equal((tensor - 1.0).numpy(), np.full(2000, want - 1))
            assert len(fresh) == 3

        run_threads(20, work)


def test_threads_compile_once(builds: list[str]) -> None:
    x = zt.tensor(np.arange(77.0))
    triple = zt.compiled(lambda t, k: t * 3.0 + k)

    def work(k: int) -> None:
        np.testing.assert_array_equal((x - 3.0).numpy(), np.arange(77.0) - 3)
        for turn in range(20):
            np.testing.assert_array_equal(triple(x, float(turn)).numpy(), np.arange(77.0) * 3 + turn)

    run_threads(20, work)
    assert len(builds) == 2


def test_laziness_and_devices_are_each_threads_own() -> None:
    def work(k: int) -> None:
        for _ in range(20):
            with zt.lazy(k % 2 == 0), zt.device("cpu:scalar" if k % 4 == 0 else "cpu"):
                y = zt.tensor([1.0]) * 2.0
                assert (y.node.block is None) == (k % 2 == 0) and y.item() == 2.0

    run_threads(8, work)
    assert (zt.tensor([1.0]) * 2.0).node.block is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_tensors_work_in_a_forked_child() -> None:
    x = zt.tensor(np.arange(100.0))
    done, pending = (x + 1.0).realize(), x * 3.0
    child = os.fork()
    if child == 0:
        good = np.array_equal(done.numpy(), np.arange(100.0) + 1) and np.array_equal(
            pending.numpy(), np.arange(100.0) * 3) and (zt.tensor([2.0]) * 8.0).item() == 16.0
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(pending.numpy(), np.arange(100.0) * 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_forked_while_another_thread_holds_every_lock() -> None:
    x = zt.tensor(np.arange(5.0))
    triple = zt.compiled(lambda t: t * 3.0)
    triple(x).realize()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:  # none of which is held in the child
        with contextlib.ExitStack() as others:
            for lock in [lock for lock in locks._locks if lock is not llvm._lock]:
                others.enter_context(lock)
            held.set()
            done.wait()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        good = np.array_equal(triple(x).numpy(), np.arange(5.0) * 3) and (
            zt.tensor([2.0]) * 8.0 - 1.25).item() == 14.75
        os._exit(0 if good else 1)
    done.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_waits_while_another_thread_is_inside_of_llvm() -> None:
    entered, forked = threading.Event(), threading.Event()
    waited: list[bool] = []

    def compile_slowly() -> None:
        with llvm._lock, llvm.binding().ffi.lib._lock:
            entered.set()
            waited.append(not forked.wait(0.2))

    other = threading.Thread(target=compile_slowly)
    other.start()
    entered.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        llvm.binding().create_context()
        os._exit(0)
    forked.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and waited == [True]


class Cycle:
    """Garbage that only a collection frees, with a tensor in it."""

    def __init__(self, tensor: Any):
        self.me, self.tensor = self, tensor


def test_collections_at_any_time() -> None:
    threshold = gc.get_threshold()
    gc.set_threshold(5)
    try:
        for turn in range(200):
            x = Cycle(zt.tensor(np.full(64, float(turn)))).tensor + 1.0
            assert x.numpy()[0] == turn + 1
    finally:
        gc.set_threshold(*threshold)
