"""The Metal driver against a fake of PyObjC: each call by its name, in its order, with its errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.cases import available
from tests.cases.doubled import N, loaded
from tests.machines.metal.compiling import COMPILER
from tests.machines.metal.fake import Mac, Problem, Raised, playing
from ztorch.backends import registry
from ztorch.backends.device import Device
from ztorch.backends.drivers import metal
from ztorch.errors import DeviceError, OutOfMemory

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="kernels run as C++, by g++")


@pytest.fixture
def mac() -> Iterator[Mac]:
    with playing(Mac()) as result:
        yield result
    available.device.cache_clear()


def opened() -> Device:
    return registry.backend("metal").open()


def test_elsewhere_it_says_so_and_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metal, "SYSTEM", "linux")
    monkeypatch.setattr(metal, "_metal", lambda: pytest.fail("imports"))
    assert metal.BACKEND.refusal() == "Metal is part of macOS, which this system is not"
    assert metal.BACKEND.devices() == []


def test_on_a_mac_without_the_package_it_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metal, "SYSTEM", "darwin")
    metal._devices.cache_clear()
    assert metal.BACKEND.refusal().endswith("pip install 'ztorch[metal]'")


def test_a_mac_without_a_gpu() -> None:
    with playing(Mac(devices=0)):
        assert metal.BACKEND.refusal() == "macOS finds no device" and not metal.BACKEND.devices()


def test_what_a_device_says_of_itself() -> None:
    with playing(Mac(devices=2)):
        one, two = metal.BACKEND.devices()
        assert (one.name, one.kind, two.ordinal) == ("Apple M0", "integrated", 1)
        assert dict(one.limits) == {"threads": 1024, "shared_bytes": 32768, "subgroup": 32,
                                    "max_buffers": 31, "max_buffer_bytes": (1 << 31) - 1}
    with playing(Mac(families={2002})):  # another maker's, in an older Mac
        actual = metal.BACKEND.devices()[0]
        assert actual.kind == "gpu" and dict(actual.limits)["subgroup"] == 0


@needs_compiler
@pytest.mark.parametrize("modern", [True, False])
def test_a_run_is_these_calls(modern: bool) -> None:
    with playing(Mac(modern=modern)) as mac, opened() as d:
        module, launches, buffers = loaded(d, chained=3)
        x = np.arange(N, dtype=np.float32)
        d.write(buffers["inputs"], x)
        recording = d.record(module, launches)
        mac.calls.clear()
        d.run(recording)
        assert [c[0] for c in mac.calls] == [
            "commandBuffer", "encoder", "dispatch", *["memoryBarrier", "dispatch"] * 2, "commit"]
        out = np.empty(N, np.float32)
        d.read(buffers["outputs"], out)
        np.testing.assert_array_equal(out, 8 * x)
        free = recording.handle[1]
        recording.handle[1] = (*free[:-1], False)  # which depends on nothing
        mac.calls.clear()
        d.run(recording)
        assert [c[0] for c in mac.calls].count("memoryBarrier") == 1
        d.synchronize()
        for _ in range(100):  # a queue has room for so many
            d.run(recording)
            assert len(d._pending) <= metal.PENDING  # type: ignore[attr-defined]


@needs_compiler
@pytest.mark.parametrize(("call", "fault", "what"), [
    ("newLibrary", Raised("no compiler"), "newLibraryWithSource: no compiler"),
    ("newPipeline", "nothing", "newComputePipelineState.*out of registers"),
    ("newPipeline", Raised("broken"), "newComputePipelineState.*broken"),
    ("threads", 16, "has groups of 256 threads; this device runs it with 16 at most"),
])
def test_code_that_does_not_load(mac: Mac, call: str, fault: Any, what: str) -> None:
    with opened() as d:
        mac.fails[call] = fault
        with pytest.raises(DeviceError, match=f"metal:0: .*{what}"):
            loaded(d)
        mac.fails.clear()
        loaded(d)


@needs_compiler
def test_another_number_of_threads_in_lockstep_is_refused(mac: Mac) -> None:
    mac.lockstep = 16
    with opened() as d, pytest.raises(DeviceError, match="runs 16 threads in lockstep, where 32"):
        loaded(d)


@needs_compiler
@pytest.mark.parametrize(("call", "fault"), [
    ("commandBuffer", "nothing"), ("encoder", Raised("encoder")), ("dispatch", Raised("dispatch")),
    ("commit", Raised("commit"))])
def test_a_launch_that_fails_leaves_a_device_that_works(mac: Mac, call: str, fault: Any) -> None:
    with opened() as d:
        module, launches, _ = loaded(d)
        mac.fails[call] = fault
        with pytest.raises(DeviceError, match=call):
            d.launch(module, launches[0])
        mac.fails.clear()
        d.launch(module, launches[0])


@needs_compiler
@pytest.mark.parametrize(("code", "kind"), [(8, OutOfMemory), (2, DeviceError)])
def test_gpu_errors_are_raised_at_the_next_wait(mac: Mac, code: int,
                                                kind: type[Exception]) -> None:
    with opened() as d:
        module, launches, _ = loaded(d)
        recording = d.record(module, launches)
        mac.fails["completed"] = Problem("page fault", code)
        d.run(recording)
        with pytest.raises(kind, match=rf"page fault \(code {code}\)"):
            d.synchronize()
        mac.fails.clear()
        d.run(recording)
        d.synchronize()


def test_memory_beyond_the_limit(mac: Mac) -> None:
    with opened() as d:
        with pytest.raises(OutOfMemory, match="a buffer may have"):
            d.alloc(1 << 40)
        mac.fails["newBuffer"] = "nothing"
        with pytest.raises(OutOfMemory, match=r"newBufferWithLength: 64 bytes are not free"):
            d.alloc(64)
        mac.fails.clear()
        before = d.memory()[0]
        buffer = d.alloc(1 << 20)
        assert d.memory()[0] == before - (1 << 20)
        d.free(buffer)
        assert d.memory()[0] == before


def test_no_queue_is_an_error(mac: Mac) -> None:
    mac.fails["newCommandQueue"] = "nothing"
    with pytest.raises(DeviceError, match="newCommandQueue: returned nil"):
        opened()
