"""ROCm devices that are not there, refuse code, fail or are lost."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backends.pretended_rocm import WAVES, close, fake, install, made  # noqa: F401  # fixtures
from tests.cases import doubled
from tests.cases.device_programs import all_agree
from tests.cases.jobs import jobs
from tests.machines.fake_hip import FakeHip, FakeRtc
from tests.machines.rocm.machine import compiler
from ztorch.backends import hip, registry
from ztorch.backends.drivers import rocm
from ztorch.errors import DeviceError
from ztorch.machines import chips
from ztorch.runtime.devices import resolve

OLD = "gfx1030"  # a chip without a separate row


@functools.cache
def compiled(text: str, chip: str) -> bytes:
    """Clang's binary of HIP's C++; it brings its own linker."""
    done = subprocess.run(
        [compiler("clang"), "-x", "hip", "--cuda-device-only", f"--offload-arch={chip}", "-nogpulib",
         "-nogpuinc", "-std=c++17", "-O3", "--no-gpu-bundle-output", "-c", "-o", "-", "-"],
        input=text.encode(), capture_output=True)
    if done.returncode:
        raise ValueError(done.stderr.decode())
    made[done.stdout] = text, WAVES.get(chip, 32)
    return done.stdout


def test_no_library_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def absent(name: str, *more: Any, **others: Any) -> Any:
        asked.append(name)
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", absent)
    hip.library.cache_clear()
    hip.compiler.cache_clear()
    try:
        backend = rocm.Rocm()
        assert "ROCm is not installed" in backend.refusal() and backend.devices() == []
        assert "ROCm is not installed" in backend.refusal()
        assert asked == list(hip.LIBRARIES)  # each once, and never again
    finally:
        hip.library.cache_clear()
        hip.compiler.cache_clear()


def test_no_device_is_an_answer(install: Callable[..., FakeHip]) -> None:
    fake = install(devices=0)
    assert "hipInit: hipErrorNoDevice" in rocm.BACKEND.refusal() and rocm.BACKEND.devices() == []
    assert "hipMalloc" not in fake.calls


def test_a_broken_driver_warns(fake: FakeHip) -> None:
    fake.fail["hipInit"] = 1
    with pytest.warns(UserWarning, match="backend rocm is broken: .*hipInit: hipErrorInvalidValue"):
        actual, why = registry.usable_devices("rocm")
    assert not actual and "its driver is broken: rocm: hipInit" in why


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("chip", list(WAVES))
def test_what_a_device_says_of_itself(chip: str, older: bool, install: Callable[..., FakeHip]) -> None:
    install(chip, older=older, devices=2)
    first, second = rocm.BACKEND.devices()
    assert (first.ordinal, second.ordinal, first.chip, first.kind) == (0, 1, chip, "gpu")
    assert first.name == "Pretended gfx000" and first.driver == f"HIP 6.4, {chip}"
    assert dict(first.limits) == {"threads": 1024, "shared_bytes": 65536, "subgroup": WAVES[chip], "compute_units": 4}


def test_code_for_another_chip_is_refused(install: Callable[..., FakeHip]) -> None:
    install()
    with rocm.BACKEND.open() as d:
        code, entries, _ = doubled.doubling(d)
    install("gfx942")
    with rocm.BACKEND.open() as d, pytest.raises(DeviceError, match="hipErrorNoBinaryForGpu"):
        d.load(code, entries)


def test_damaged_code_never_reaches_the_driver(fake: FakeHip) -> None:
    with rocm.BACKEND.open() as d:
        code, entries, _ = doubled.doubling(d)
        fake.calls.clear()
        for cut in (0, 3, 40, 63, 64, 500, len(code) - 1):
            part = code[:cut] + b"\0" * (cut == 0)
            with pytest.raises(DeviceError):
                d.load(part, [entries[0]._replace(size=len(part))])
        for at in (18, 32, 40, 54, 56, 58, 60, 62):
            broken = bytearray(code)
            broken[at] ^= 0x7F
            broken[at + 1] ^= 0x7F
            with pytest.raises(DeviceError, match="the code object is damaged"):
                d.load(bytes(broken), entries)
        assert "hipModuleLoadData" not in fake.calls


def test_chips_without_code_objects_compile_text(install: Callable[..., FakeHip],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """HIP's C++, by a real compiler, for the chip that is there."""
    rtc = FakeRtc(compiled)
    monkeypatch.setattr(hip, "compiler", lambda: rtc)
    fake = install(OLD)
    assert resolve("rocm:0").target == "rocm:hip" and OLD in rocm.BACKEND.devices()[0].driver
    for op in ("matmul", "softmax'"):
        all_agree("rocm", jobs()[op])
    assert "hipGraphLaunch" in fake.calls and not rtc.programs
    close()
    assert not fake.handles and not fake.buffers


def test_text_runs_on_chips_with_code_objects_too(install: Callable[..., FakeHip],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hip, "compiler", lambda: FakeRtc(compiled))
    install(OLD)
    with rocm.BACKEND.open() as d:
        code, entries, _ = doubled.doubling(d)
    install("gfx90a")
    with rocm.BACKEND.open() as d:
        d.load(code, entries)


def test_the_error_has_the_compilers_message(install: Callable[..., FakeHip],
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    rtc = FakeRtc(compiled)
    monkeypatch.setattr(hip, "compiler", lambda: rtc)
    install(OLD)
    with rocm.BACKEND.open() as d:
        code, entries, _ = doubled.doubling(d)
        wrong = code.replace(b"+", b"?", 1)
        with pytest.raises(DeviceError, match=r"(?s)hiprtcCompileProgram: HIPRTC_ERROR_6: .*error: "):
            d.load(wrong, entries)
        for call in ("hiprtcCreateProgram", "hiprtcCompileProgram", "hiprtcGetCodeSize", "hiprtcGetCode"):
            rtc.fail = {call: 4}
            with pytest.raises(DeviceError, match=f"rocm:0: {call}: HIPRTC_ERROR_4"):
                d.load(code, entries)
        rtc.fail = {}
        assert not rtc.programs
        d.load(code, entries)
        monkeypatch.setattr(hip, "compiler", lambda: None)
        with pytest.raises(DeviceError, match="hiprtc, which is not installed"):
            d.load(code, entries)


def test_a_new_row_of_chips_is_used(install: Callable[..., FakeHip],
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    install(chip="gfx777")
    assert rocm.BACKEND.devices()[0].chip == rocm.TEXT
    monkeypatch.setattr(chips, "CHIPS", (*chips.CHIPS, chips.Chip("rocm", "gfx777", "rdna4")))
    assert rocm.BACKEND.devices()[0].chip == "gfx777"


def test_a_lost_device_says_so(fake: FakeHip) -> None:
    d = rocm.BACKEND.open()
    buffer = d.alloc(64)
    fake.sick = 700
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"hipErrorIllegalAddress.*start a new process"):
            d.read(buffer, np.zeros(16, np.float32))
    d.close()


def test_a_failed_recording_leaves_nothing(fake: FakeHip) -> None:
    with rocm.BACKEND.open() as d:
        module, launches, _ = doubled.loaded(d)
        wrong = launches[0]._replace(grid=(0, 1, 1))
        with pytest.raises(DeviceError, match="hipGraphAddKernelNode"):
            d.record(module, [launches[0], wrong])
        d.launch(module, launches[0])
        d.record(module, [])
    close()
    assert not fake.handles


def test_a_forked_child_gets_an_error(fake: FakeHip) -> None:
    d = rocm.BACKEND.open()
    child = os.fork()
    if not child:
        good = "forked" in rocm.BACKEND.refusal()
        try:
            d.alloc(64)
            good = False
        except DeviceError as error:
            good = good and "forked" in str(error)
        d.close()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    d.close()
