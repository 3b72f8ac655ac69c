"""Several programs, threads and devices at a time on a pretended CUDA device."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.cases import small_model
from tests.cases.pretended_cuda import close, install
from tests.machines.fake_cuda import FakeCuda
from ztorch.backends import registry
from ztorch.errors import DeviceError


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = install(monkeypatch)
    yield made
    close(made)


def test_a_program_runs_while_another_is_waited_for(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for its results holds no lock of the device."""
    one, other = (small_model.compiled(device="cuda", batch_size=4) for _ in range(2))
    x = np.random.default_rng(1).random((4, 4), np.float32)
    want = one.predict(x), other.predict(x)
    waits, goes_on, results = threading.Event(), threading.Event(), {}
    wait = FakeCuda.do_cuEventSynchronize

    def slow(self: FakeCuda, event: object) -> object:
        if threading.current_thread() is thread:
            waits.set()
            self.lock.release()  # the real driver lets others call, too
            try:
                assert goes_on.wait(60)
            finally:
                self.lock.acquire()
        return wait(self, event)

    monkeypatch.setattr(FakeCuda, "do_cuEventSynchronize", slow)
    thread = threading.Thread(target=lambda: results.update(one=one.predict(x)))
    thread.start()
    try:
        assert waits.wait(60)
        np.testing.assert_array_equal(other.predict(x), want[1])
        assert thread.is_alive() and not results
    finally:
        goes_on.set()
        thread.join(60)
    np.testing.assert_array_equal(results["one"], want[0])


def test_a_device_that_cannot_be_closed_keeps_no_other_open(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.devices = 2
    lost, other = (registry.open_device("cuda", k) for k in range(2))

    def fails() -> None:
        raise DeviceError("cuda:0: cuDevicePrimaryCtxRelease: CUDA_ERROR_INVALID_CONTEXT")

    monkeypatch.setattr(lost, "_close", fails)
    registry._close_all()
    assert other.closed and fake.retained == 1
