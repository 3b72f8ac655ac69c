"""The contract of every backend for streams, events and forked processes."""

from __future__ import annotations

import gc
import os
import signal
import time

import numpy as np
import pytest

import ztorch.ops  # noqa: F401  (registers them)
from tests.cases.available import device, fresh
from tests.cases.doubled import N, computing, every, loaded
from ztorch.backends import registry
from ztorch.errors import DeviceError

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
    end.synchronize()
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
        if not first.done():  # a GPU may have passed the event of an idle stream by now
            with pytest.raises(DeviceError, match="is known when both are reached"):
                second.seconds_since(first)


# -- processes -------------------------------------------------------------------------------------


@every
def test_a_forked_child_gets_an_error(name: str) -> None:
    d = device(name)
    buffer = d.alloc(64)
    child = os.fork()
    if not child:  # whatever happens, nothing of pytest may run here
        told = 0
        for use in (lambda: d.alloc(64), lambda: d.write(buffer, np.zeros(4)),
                    lambda: registry.open_device(name)):
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
    """A process's exit code; None, after it is killed, where it does not end."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
