"""What every backend promises, tried on each that is here."""

from __future__ import annotations

import gc
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import ztorch.ops  # noqa: F401  (registers them)
from tests.cases.available import COMPUTING, NAMES, device, fresh
from ztorch.backends import registry
from ztorch.backends.device import Device
from ztorch.backends.handles import Binding, DeviceModule, KernelEntry, Launch
from ztorch.codegen import targets
from ztorch.compile.device_code import device_code
from ztorch.compile.watch import Watch
from ztorch.dtypes import f32
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.host.memory import aligned
from ztorch.lower.params import Params
from ztorch.lower.plan import lower
from ztorch.runtime.devices import resolve

every = pytest.mark.parametrize("name", NAMES)
computing = pytest.mark.parametrize("name", COMPUTING)
N = 1000


def doubling(d: Device, chained: int = 1) -> tuple[bytes, list[KernelEntry], list]:
    """Code that doubles N numbers, `chained` times one after the other, and its launches."""
    target = targets.target(resolve(d.id).target).on_device(dict(d.info.limits))
    y = leaf("input", "x", (N,), f32)
    for _ in range(chained):
        y = y + y
    params = Params(target.limits)
    plan = lower("double", Graph({"y": y}), target.limits, params, fusion=False)
    made = device_code({"double": plan}, target, Watch())
    return made.code, [KernelEntry(*e) for e in made.entries], list(made.launches["double"])


def loaded(d: Device, chained: int = 1) -> tuple[DeviceModule, list[Launch], dict]:
    code, entries, launches = doubling(d, chained)
    module = d.load(code, entries)
    buffers = {"inputs": d.alloc(4 * N), "outputs": d.alloc(4 * N), "arena": d.alloc(1 << 16)}
    ready = [Launch(x.entry, x.grid, tuple(
        Binding(buffers[space], 0 if space != "arena" else at, n, w)
        for space, at, n, w in x.places), x.barrier) for x in launches]
    return module, ready, buffers


# -- life ------------------------------------------------------------------------------------------


@every
def test_opening_and_closing_twice_is_harmless(name: str) -> None:
    one, other = fresh(name), fresh(name)
    one.close()
    one.close()
    assert one.closed and not other.closed
    buffer = other.alloc(64)  # another's end is not ours
    other.write(buffer, np.arange(16, dtype=np.int32))
    other.close()


@every
def test_one_device_is_shared_until_it_is_closed(name: str) -> None:
    device(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_opened", {})
        first = registry.opened(name)
        assert registry.opened(name) is first and registry.opened(name, first.info.ordinal) is first
        first.close()
        with registry.opened(name) as again:
            assert again is not first and registry.opened(name) is again
            again.free(again.alloc(64))


@every
def test_nothing_works_after_closing(name: str) -> None:
    d = fresh(name)
    buffer = d.alloc(64)
    d.close()
    for use in (lambda: d.alloc(64), lambda: d.free(buffer), lambda: d.synchronise(),
                lambda: d.write(buffer, np.zeros(4)), lambda: d.read(buffer, np.zeros(4)),
                lambda: d.load(b"x", [KernelEntry("x", 0, 1, (1, 1, 1))]), lambda: d.memory()):
        with pytest.raises(DeviceError, match=f"{name}:0 is closed"):
            use()


@every
def test_a_freed_buffer_is_gone(name: str) -> None:
    with fresh(name) as d:
        buffer = d.alloc(64)
        d.free(buffer)
        for use in (lambda: d.free(buffer), lambda: d.write(buffer, np.zeros(4)),
                    lambda: d.read(buffer, np.zeros(4))):
            with pytest.raises(DeviceError, match="64 bytes was freed"):
                use()


@every
def test_a_buffer_of_another_device_is_refused(name: str) -> None:
    with fresh(name) as d, fresh(name) as other:
        buffer = d.alloc(64)
        with pytest.raises(DeviceError, match="belongs to"):
            other.read(buffer, np.zeros(4))


# -- memory ----------------------------------------------------------------------------------------


@every
def test_bytes_come_back(name: str) -> None:
    rng = np.random.default_rng(0)
    d = device(name)
    buffer = d.alloc(100_000)
    whole = rng.integers(0, 256, 100_000).astype(np.uint8)
    d.write(buffer, whole)
    for at, size in ((0, 100_000), (0, 4), (4, 64), (65_532, 20), (99_996, 4)):
        part = rng.integers(0, 256, size).astype(np.uint8)
        whole[at:at + size] = part
        d.write(buffer, part, at)
        out = np.empty(100_000, np.uint8)
        d.read(buffer, out)
        np.testing.assert_array_equal(out, whole)
        out = np.empty(size, np.uint8)
        d.read(buffer, out, at)
        np.testing.assert_array_equal(out, part)
    d.free(buffer)


@every
def test_copies_on_the_device(name: str) -> None:
    d = device(name)
    source, target = d.alloc(1024), d.alloc(1024)
    numbers = np.arange(256, dtype=np.int32)
    d.write(source, numbers)
    d.write(target, np.zeros(256, np.int32))
    d.copy(source, target, 256, source_at=512, target_at=256)
    out = np.empty(256, np.int32)
    d.read(target, out)
    want = np.zeros(256, np.int32)
    want[64:128] = numbers[128:192]
    np.testing.assert_array_equal(out, want)
    d.copy(source, source, 256, 0, 512)
    d.read(source, out)
    np.testing.assert_array_equal(out[128:192], numbers[:64])
    d.copy(source, source, 256, 256, 512)  # the two ranges touch
    d.read(source, out)
    np.testing.assert_array_equal(out[128:192], numbers[64:128])
    with pytest.raises(DeviceError, match="onto itself"):
        d.copy(source, source, 256, 0, 128)
    d.free(source)
    d.free(target)


@every
def test_memory_that_is_shared_with_the_host(name: str) -> None:
    """A device that has memory of its own gives None."""
    d, block = device(name), aligned(1 << 16)
    block[:] = np.random.default_rng(0).integers(0, 256, block.size)
    kept, adopted = block.copy(), d.adopt(block)
    assert d.adopt(block[1:]) is None and d.adopt(block[:0]) is None
    buffer = adopted or d.alloc(block.size)
    if adopted is None:
        d.write(buffer, block)
    out = np.empty(1000, np.uint8)
    d.read(buffer, out, 100)
    np.testing.assert_array_equal(out, kept[100:1100])
    seen = d.seen(buffer, 1000)
    assert seen is not None or adopted is None
    if seen is not None:
        np.testing.assert_array_equal(seen, kept[:1000])
        assert np.shares_memory(seen, block) == (adopted is not None)
    d.free(buffer)
    np.testing.assert_array_equal(block, kept)
    if seen is not None:  # it stays
        np.testing.assert_array_equal(seen, kept[:1000])
    with pytest.raises(DeviceError, match="was freed"):
        d.seen(buffer, 10)


@every
def test_bytes_outside_a_buffer_are_refused(name: str) -> None:
    d = device(name)
    buffer = d.alloc(64)
    for at, size in ((-4, 8), (60, 8), (64, 4), (0, 128)):
        for use in (d.write, d.read):
            with pytest.raises(DeviceError, match="of a buffer of 64"):
                use(buffer, np.zeros(size, np.uint8), at)
    d.free(buffer)


@every
def test_a_buffer_has_bytes(name: str) -> None:
    for nbytes in (0, -1):
        with pytest.raises(DeviceError, match="at least one"):
            device(name).alloc(nbytes)


@every
def test_out_of_memory_is_an_error_and_no_more(name: str) -> None:
    d = device(name)
    with pytest.raises(OutOfMemory, match=name):
        d.alloc(1 << 45)
    buffer = d.alloc(64)
    d.write(buffer, np.arange(16, dtype=np.int32))
    d.free(buffer)


@every
def test_nothing_leaks(name: str) -> None:
    d = device(name)
    gc.collect()
    before, free = d.allocated, d.memory()[0]
    for _ in range(50):
        buffers = [d.alloc(1 << 20) for _ in range(4)]
        assert d.allocated == before + (4 << 20)
        for b in buffers:
            d.free(b)
    assert d.allocated == before
    assert d.memory()[0] >= free - (64 << 20)


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
            d.synchronise()
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
def test_what_is_handed_over_later_happens_later(name: str) -> None:
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
def test_what_is_submitted_ahead_is_done_in_order(name: str) -> None:
    """Two runs take turns, as the steps of fit do; each finds its own inputs, and what the one before
    it left on the device."""
    with fresh(name) as d:
        module, launches, buffers = loaded(d)
        [first] = launches

        def adding(source: str, target: str) -> Launch:
            return first._replace(bindings=tuple(
                b._replace(buffer=buffers[target if b.written else source]) for b in first.bindings))

        turns = []
        for k in range(2):
            buffers |= {f"in {k}": d.alloc(4 * N), f"out {k}": d.alloc(4 * N)}
            # 4 * its input for itself, and twice what was left for the other one
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
        d.submit(*turns[0])  # and nobody waits for it


@computing
@pytest.mark.parametrize("rubbish", [b"this is no kernel\n" * 4, bytes(range(256))],
                         ids=["text", "bytes"])
def test_code_that_is_none_is_an_error(name: str, rubbish: bytes) -> None:
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


# -- streams ---------------------------------------------------------------------------------------


@computing
def test_streams_keep_their_order_and_wait_for_events(name: str) -> None:
    d = device(name)
    module, launches, buffers = loaded(d)
    back = [launch._replace(bindings=tuple(
        b._replace(buffer=buffers["inputs" if b.written else "outputs"])
        for b in launch.bindings)) for launch in launches]
    there, here = d.record(module, launches), d.record(module, back)
    x = np.arange(N, dtype=np.float32)
    d.write(buffers["inputs"], x)
    one, other = d.stream(), d.stream()
    for _ in range(3):  # x -> 2x in one stream, 2x -> 4x back in the other, and so on
        one.run(there)
        other.wait(one.event())
        other.run(here)
        one.wait(other.event())
    last = one.event()
    one.run(there)
    end = one.event()
    end.synchronise()
    assert last.done() and end.done() and end.seconds_since(last) >= 0
    out = np.empty(N, np.float32)
    d.read(buffers["outputs"], out)
    np.testing.assert_array_equal(out, x * 128)
    for b in buffers.values():
        d.free(b)
    d.unload(module)


@every
def test_events_of_other_devices_and_times_too_early_are_refused(name: str) -> None:
    with fresh(name) as d, fresh(name) as other:
        with pytest.raises(DeviceError, match="an event of"):
            d.stream().wait(other.stream().event())
        first, second = d.stream().event(), d.stream().event()
        assert not first.done()
        with pytest.raises(DeviceError, match="synchronise first"):
            second.seconds_since(first)


# -- processes -------------------------------------------------------------------------------------


@every
def test_a_forked_child_is_told(name: str) -> None:
    d = device(name)
    buffer = d.alloc(64)
    child = os.fork()
    if not child:  # whatever happens, nothing of pytest may run here
        told = 0
        for use in (lambda: d.alloc(64), lambda: d.write(buffer, np.zeros(4)),
                    lambda: registry.opened(name)):
            try:
                use()
            except DeviceError as error:
                told += "forked" in str(error)
        d.close()
        os._exit(told)
    assert ended(child, seconds=60) == 3
    d.write(buffer, np.arange(16, dtype=np.int32))  # the parent goes on
    d.free(buffer)


@every
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_a_forked_child_collects_garbage(name: str, closed: bool) -> None:
    """Devices among it: drivers that give something back then wait for threads of the parent."""
    gc.disable()
    try:
        d = fresh(name)
        buffer = d.alloc(64)
        if closed:
            d.close()
            del d, buffer
        child = os.fork()
        if not child:
            if not closed:
                del d, buffer
            gc.collect()
            os._exit(0)
    finally:
        gc.enable()
    assert ended(child, seconds=20) == 0


def ended(child: int, seconds: float) -> int | None:
    """What a process ended with; None, and it is killed, where it does not end."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
