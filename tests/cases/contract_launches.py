"""The contract of every backend for code and its launches."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import ztorch.ops  # noqa: F401  (registers them)
from tests.cases.available import device, fresh
from tests.cases.doubled import N, computing, doubling, every, loaded
from ztorch.backends.handles import Binding, KernelEntry, Launch
from ztorch.errors import DeviceError

# -- code ------------------------------------------------------------------------------------------


@computing
def test_launches_run_in_order(name: str) -> None:
    d = device(name)
    module, launches, buffers = loaded(d, chained=5)
    assert len(launches) == 5
    x = np.arange(N, dtype=np.float32)
    d.write(buffers["inputs"], x)
    recording = d.record(module, launches)
    out = np.empty(N, np.float32)
    for _ in range(3):
        d.run(recording)
        d.read(buffers["outputs"], out)
        np.testing.assert_array_equal(out, x * 32)
        x = x[::-1].copy()
        d.write(buffers["inputs"], x)
    d.drop(recording)
    d.drop(recording)
    with pytest.raises(DeviceError, match="was dropped"):
        d.run(recording)
    d.unload(module)
    d.unload(module)
    with pytest.raises(DeviceError, match="not loaded"):
        d.record(module, launches)
    for b in buffers.values():
        d.free(b)


@computing
def test_nothing_leaks_in_the_driver(name: str) -> None:
    """Where a driver imitates a GPU its memory is ours, so a buffer that it keeps, or that something
    else keeps for it, shows."""
    with fresh(name) as d:
        module, launches, _ = loaded(d)
        data, sizes = np.ones(8 << 20, np.uint8), []
        for _ in range(4):
            for _ in range(20):
                large = d.alloc(data.nbytes)
                d.write(large, data)
                recording = d.record(module, [x._replace(bindings=tuple(
                    b if b.written else b._replace(buffer=large) for b in x.bindings))
                    for x in launches])
                d.run(recording)
                d.drop(recording)
                d.free(large)
            d.synchronize()
            sizes.append(resident())
        assert min(b - a for a, b in pairwise(sizes)) < 20 * data.nbytes // 2, sizes


def resident() -> int:
    """Bytes of this process in memory; always the same where the system does not say."""
    file = Path("/proc/self/statm")
    return int(file.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if file.exists() else 0


@computing
def test_one_launch_by_itself(name: str) -> None:
    d = device(name)
    module, launches, buffers = loaded(d)
    x = np.linspace(-1, 1, N, dtype=np.float32)
    d.write(buffers["inputs"], x)
    d.launch(module, launches[0])
    out = np.empty(N, np.float32)
    d.read(buffers["outputs"], out)
    np.testing.assert_array_equal(out, 2 * x)
    d.unload(module)
    for b in buffers.values():
        d.free(b)


@every
def test_a_freed_buffer_ends_its_recordings(name: str) -> None:
    d = device(name)
    module, launches, buffers = loaded(d)
    recording = d.record(module, launches)
    d.free(buffers["inputs"])
    with pytest.raises(DeviceError, match="freed"):
        d.run(recording)
    d.unload(module)


@every
def test_code_outside_its_bytes_is_refused(name: str) -> None:
    for at, size in ((2, 5), (2, 2), (-1, 1), (0, 0)):
        with pytest.raises(DeviceError, match="outside its code"):
            device(name).load(b"abc", [KernelEntry("k", at, size, (1, 1, 1))])


@computing
def test_deferred_calls_run_later(name: str) -> None:
    """A write does not reach launches that came before it, however long they take."""
    with fresh(name) as d:
        module, launches, buffers = loaded(d, chained=100)
        recording = d.record(module, launches)
        x, out = np.arange(N, dtype=np.float32), np.empty(N, np.float32)
        for k in range(3):
            d.write(buffers["inputs"], x + k)
            d.run(recording)
            d.write(buffers["inputs"], np.zeros(N, np.float32))
            d.read(buffers["outputs"], out)
            np.testing.assert_array_equal(out, (x + k) * np.float32(2) ** 100)


@computing
def test_submitted_work_runs_in_order(name: str) -> None:
    """Two runs take turns, as the steps of fit do; each finds its own inputs, and the results of the one before
    it on the device."""
    with fresh(name) as d:
        module, launches, buffers = loaded(d)
        [first] = launches

        def adding(source: str, target: str) -> Launch:
            return first._replace(bindings=tuple(
                b._replace(buffer=buffers[target if b.written else source]) for b in first.bindings))

        turns = []
        for k in range(2):
            buffers |= {f"in {k}": d.alloc(4 * N), f"out {k}": d.alloc(4 * N)}
            # 4 * its own input, and twice the results of the other one
            recording = d.record(module, [adding(f"in {k}", "arena"), adding("arena", f"out {k}")._replace(
                barrier=True), adding("outputs", "inputs"), adding("inputs", "outputs")._replace(barrier=True)])
            turns.append((recording, buffers[f"in {k}"], np.empty(4 * N, np.uint8), buffers[f"out {k}"],
                          np.empty(4 * N, np.uint8)))
        x, left = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
        d.write(buffers["outputs"], left)
        begun: list = []
        for step in range(7):
            _, _, data, *_ = turn = turns[step % 2]
            data.view(np.float32)[...] = x + step
            begun.append((step, d.submit(*turn), turn))
            if len(begun) == 2 or step == 6:
                for done, ticket, (*_, out) in begun[:2 if step == 6 else 1]:
                    d.finish(ticket)
                    np.testing.assert_array_equal(out.view(np.float32), 4 * (x + done))
                del begun[0]
        d.read(buffers["outputs"], left)
        np.testing.assert_array_equal(left, 4.0**7)
        waiting = d.submit(*turns[0])
        d.run(turns[0][0])  # which is under way
        d.drop(turns[1][0])
        d.finish(waiting)
        np.testing.assert_array_equal(turns[0][4].view(np.float32), 4 * (x + 6))
        d.submit(*turns[0])  # and nothing waits for it


@computing
@pytest.mark.parametrize("rubbish", [b"this is not a kernel\n" * 4, bytes(range(256))],
                         ids=["text", "bytes"])
def test_invalid_code_is_an_error(name: str, rubbish: bytes) -> None:
    d = device(name)
    with pytest.raises(DeviceError, match=name):
        d.load(rubbish, [KernelEntry("k", 0, len(rubbish), (1, 1, 1))])
    module, launches, _ = loaded(d)  # and the device is none the worse for it
    d.launch(module, launches[0])


@computing
def test_several_threads_use_one_device(name: str) -> None:
    d = device(name)
    module, *_ = loaded(d)
    code_launches = doubling(d)[2]

    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).normal(size=N).astype(np.float32)
        source, result = d.alloc(4 * N), d.alloc(4 * N)
        spaces = {"inputs": source, "outputs": result}
        ready = [Launch(s.entry, s.grid, tuple(Binding(spaces[w], 0, n, t)
                                               for w, _, n, t in s.places)) for s in code_launches]
        recording = d.record(module, ready)
        out = np.empty(N, np.float32)
        for _ in range(5):
            d.write(source, x)
            d.run(recording)
            d.read(result, out)
            if not np.array_equal(out, 2 * x):
                return False
        d.drop(recording)
        d.free(source)
        d.free(result)
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
