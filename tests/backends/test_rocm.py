"""The ROCm driver on a pretended device: the contract that all drivers keep, what is HIP's own, and
whole models whose code objects are made and whose rendered IR runs thread by thread."""

from __future__ import annotations

import ctypes
import functools
import gc
import inspect
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.cases import available, contract
from tests.cases.covering import full, pairs
from tests.cases.device_programs import all_agree
from tests.cases.jobs import QUICK, jobs, sharing
from tests.cases.zoo import STEPS, assert_verified
from tests.machines.fake_hip import FakeHip, FakeRtc
from tests.machines.rocm import halves
from tests.machines.rocm.machine import Hosted, compiler, hosted_cpp, hosted_ir
from tests.parity import plan_of
from ztorch.arrays.placement import default_device
from ztorch.backends import hip, registry
from ztorch.backends.drivers import rocm
from ztorch.codegen import amdgcn
from ztorch.codegen.targets import TARGETS, Target
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.machines import chips
from ztorch.optimizers import SGD
from ztorch.runtime.devices import limits_of, resolve

WAVES = {t.chip: t.limits.grid.subgroup for t in TARGETS.values() if t.assembler == "amdgcn"}
made: dict[bytes, tuple[str, int]] = {}  # code object -> the text it is made of, and its waves
OLD = "gfx1030"  # a chip without a row of its own


@functools.cache
def remembered(text: str, target: Target) -> bytes:
    code = assemble(text, target)
    made[code] = text, target.limits.grid.subgroup
    return code


assemble = amdgcn.assemble


def hosted(code: bytes) -> Hosted:
    text, wave = made[code]
    return hosted_cpp(text, wave) if "__global__" in text else hosted_ir(text, wave)


@functools.cache
def compiled(text: str, chip: str) -> bytes:
    """What clang makes of HIP's C++; it brings its own linker."""
    done = subprocess.run(
        [compiler("clang"), "-x", "hip", "--cuda-device-only", f"--offload-arch={chip}", "-nogpulib",
         "-nogpuinc", "-std=c++17", "-O3", "--no-gpu-bundle-output", "-c", "-o", "-", "-"],
        input=text.encode(), capture_output=True)
    if done.returncode:
        raise ValueError(done.stderr.decode())
    made[done.stdout] = text, WAVES.get(chip, 32)
    return done.stdout


def close() -> None:
    """Everything that tests have opened."""
    gc.collect()  # programs give back what they hold
    for device in registry._opened.values():
        device.close()
    registry._opened.clear()
    available.device.cache_clear()
    gc.freeze()  # what is left stays: the next search need not go through it


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeHip]]:
    """Puts a pretended library in place of HIP's."""
    def install(chip: str = "gfx90a", **more: Any) -> FakeHip:
        close()
        default_device()  # which a process asks for once: what is here, not what is pretended
        fake = FakeHip(hosted, chip, WAVES.get(chip, 32), **more)
        monkeypatch.setattr(hip, "library", lambda: fake)
        monkeypatch.setattr(rocm, "BACKEND", rocm.Rocm())
        return fake

    monkeypatch.setattr(amdgcn, "assemble", remembered)
    monkeypatch.setattr(hip, "compiler", lambda: None)
    monkeypatch.setattr(registry, "_opened", {})
    monkeypatch.setattr(available, "REQUIRED", {"rocm"})  # never skipped: it is here
    yield install
    close()


@pytest.fixture
def fake(install: Callable[..., FakeHip]) -> FakeHip:
    return install()


CONTRACT = [check for name, check in vars(contract).items() if name.startswith("test_")]


def parameters(check: Any) -> list:
    """The cases that a check of the contract has besides the backend's name."""
    if list(inspect.signature(check).parameters) == ["name"]:
        return [pytest.param(check, (), id=check.__name__)]
    found = next(m for m in check.pytestmark if m.args[0] != "name")
    cases = [v if isinstance(v, tuple) else (v,) for v in found.args[1]]
    return [pytest.param(check, v, id=f"{check.__name__} {v}"[:60]) for v in cases]


@pytest.mark.parametrize(("check", "more"), [p for c in CONTRACT for p in parameters(c)])
def test_contract(check: Any, more: tuple, fake: FakeHip) -> None:
    check("rocm", *more)


EVERY = list(jobs())
SHARE = sharing(1, 6)


@pytest.mark.parametrize("ops", [  # as LLVM begins anew for each module, many together
    pytest.param(QUICK, id="some"),
    *(pytest.param(EVERY[k::16], id=f"{k}", marks=pytest.mark.slow) for k in range(16))])
def test_every_op(ops: list[str], fake: FakeHip) -> None:
    """The rendered IR of every op and its gradient, thread by thread."""
    all_agree("rocm", [job for op in ops for job in SHARE[op]])
    assert "hipGraphLaunch" in fake.calls


# -- whole models --------------------------------------------------------------------------------------


MODELS = ("digits_mlp", "digits_cnn", "lstm_classifier", "tiny_gpt")
FAST = ("gfx1100", "digits_mlp")
# Waves of 64 and of 32 threads: chips of one kind get the same kernels but for their products of
# matrices, so the first model is for all chips, and each other for one of each kind, in turn; of the
# two kinds a run that is not full takes one.
KINDS = [[c for c in WAVES if WAVES[c] == wave] for wave in (64, 32)]
PAIRS = [(c, n, bool(k) and at != k % 2) for k, n in enumerate(MODELS) for at, kind in enumerate(KINDS)
         for c in (kind[k % len(kind):][:1] if k else kind)]


@pytest.mark.parametrize(("chip", "name"), [
    pytest.param(c, n, marks=() if (c, n) == FAST else (
        pytest.mark.slow, *([pytest.mark.full] if rare else []))) for c, n, rare in PAIRS])
def test_predicting_and_training(chip: str, name: str, install: Callable[..., FakeHip]) -> None:
    fake = install(chip)
    assert_verified("rocm", name, probed=full() or (chip, name) == FAST)
    assert resolve("rocm:0").target == f"rocm:{chip}" and fake.calls.count("hipGraphLaunch") > STEPS
    close()
    assert not fake.buffers and not fake.handles, "something was not given back"


@pytest.mark.slow
@pytest.mark.parametrize(("chip", "of"), pairs(list(WAVES), ("float16", "bfloat16")))
def test_training_with_16_bits(chip: str, of: str, install: Callable[..., FakeHip]) -> None:
    """Products and those of their gradients by matrices, beside a CPU's by elements: sums of another
    order, by which a few of them round to another number of 16 bits."""
    install(chip)
    model, rng = halves.model(of), np.random.default_rng(0)
    limits = limits_of(resolve("rocm:0"))
    graph = model.trace(40, optimizer=SGD(0.1), loss="mse").functions["train"]
    steps = plan_of(graph, TARGETS[f"rocm:{chip}"].on_device(limits).limits)[0].steps
    assert sum("mma" in s.kernel.opcodes() for s in steps) == 8  # of 9; nobody needs the gradient of x
    x, y = rng.normal(size=(80, 33)).astype(np.float32), rng.normal(size=(80, 18)).astype(np.float32)
    here, there = (model.compile(d, batch_size=40, optimizer=SGD(0.1), loss="mse") for d in ("rocm:0", "cpu"))
    before = here.predict(x)
    losses = [p.fit(x, y, epochs=2, verbose=0, shuffle=False).history["loss"] for p in (here, there)]
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[of]
    assert losses[0] == pytest.approx(losses[1], rel=unit)
    for path, w in there.weight_arrays().items():
        assert np.abs(w - here.weights[path].numpy()).max() <= unit * here.learning_rate * 4, path
    after = here.predict(x)
    allowed = 3 * unit * np.abs(after).max()
    np.testing.assert_allclose(after, there.predict(x), rtol=0, atol=allowed)
    assert np.abs(after - before).max() > 4 * allowed and losses[0][-1] < losses[0][0]


# -- what is HIP's own ---------------------------------------------------------------------------------


def used(d: Any) -> None:
    """Everything that a driver does, once."""
    module, launches, buffers = contract.loaded(d)
    x = np.arange(contract.N, dtype=np.float32)
    d.write(buffers["inputs"], x)
    once = launches[0]
    # the last waits for both
    recording = d.record(module, [once, once._replace(barrier=False), once._replace(barrier=True)])
    d.run(recording)
    out = np.empty_like(x)
    d.read(buffers["outputs"], out)
    np.testing.assert_array_equal(out, 2 * x)
    x += 1
    d.finish(d.submit(recording, buffers["inputs"], x, buffers["outputs"], out))
    np.testing.assert_array_equal(out, 2 * x)
    d.copy(buffers["inputs"], buffers["outputs"], 64)
    d.memory()
    d.drop(recording)
    d.unload(module)
    for b in buffers.values():
        d.free(b)


CALLS = [n for n in hip.SIGNATURES if not n.startswith("hiprtc") and n not in (
    "hipGetLastError", "hipGetDeviceProperties", "hipHostRegister", "hipHostUnregister")]


@pytest.mark.parametrize("call", CALLS)
def test_every_call_may_fail(call: str, fake: FakeHip) -> None:
    """An error that names the device, the call and the code; and then the device works."""
    with rocm.BACKEND.open() as d:
        used(d)
    assert call in fake.calls, "nothing makes this call"
    fake.fail[call] = 1
    with pytest.raises(DeviceError, match=f"rocm.*{call}: hipErrorInvalidValue") as caught:
        assert rocm.BACKEND.refusal() == ""
        d = rocm.BACKEND.open()
        try:
            used(d)
            d.close()
        finally:
            fake.fail.clear()
            d.close()
    fake.fail.clear()
    assert not isinstance(caught.value, OutOfMemory) and fake.last == 0
    fake.handles.clear()  # what the failing call itself could not give back
    fake.buffers.clear()
    registry._opened.clear()
    with rocm.BACKEND.open() as d:
        used(d)
    close()
    assert not fake.handles and not fake.buffers


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
        found, why = registry.seen("rocm")
    assert not found and "its driver broke: rocm: hipInit" in why


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_what_a_device_says_of_itself(chip: str, older: bool, install: Callable[..., FakeHip]) -> None:
    install(chip, older=older, devices=2)
    first, second = rocm.BACKEND.devices()
    assert (first.ordinal, second.ordinal, first.chip, first.kind) == (0, 1, chip, "gpu")
    assert first.name == "Pretended gfx000" and first.driver == f"HIP 6.4, {chip}"
    assert dict(first.limits) == {"threads": 1024, "shared_bytes": 65536, "subgroup": WAVES[chip], "compute_units": 4}


def test_code_for_another_chip_is_refused(install: Callable[..., FakeHip]) -> None:
    install()
    with rocm.BACKEND.open() as d:
        code, entries, _ = contract.doubling(d)
    install("gfx942")
    with rocm.BACKEND.open() as d, pytest.raises(DeviceError, match="hipErrorNoBinaryForGpu"):
        d.load(code, entries)


def test_damaged_code_never_reaches_the_driver(fake: FakeHip) -> None:
    with rocm.BACKEND.open() as d:
        code, entries, _ = contract.doubling(d)
        fake.calls.clear()
        for cut in (0, 3, 40, 63, 64, 500, len(code) - 1):
            part = code[:cut] + b"\0" * (cut == 0)
            with pytest.raises(DeviceError):
                d.load(part, [entries[0]._replace(size=len(part))])
        for at in (18, 32, 40, 54, 56, 58, 60, 62):
            broken = bytearray(code)
            broken[at] ^= 0x7F
            broken[at + 1] ^= 0x7F
            with pytest.raises(DeviceError, match="no code object, or a damaged one"):
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
        code, entries, _ = contract.doubling(d)
    install("gfx90a")
    with rocm.BACKEND.open() as d:
        d.load(code, entries)


def test_what_the_compiler_says_is_in_the_error(install: Callable[..., FakeHip],
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    rtc = FakeRtc(compiled)
    monkeypatch.setattr(hip, "compiler", lambda: rtc)
    install(OLD)
    with rocm.BACKEND.open() as d:
        code, entries, _ = contract.doubling(d)
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


def test_a_device_takes_the_chip_of_a_new_row(install: Callable[..., FakeHip],
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    install(chip="gfx777")
    assert rocm.BACKEND.devices()[0].chip == rocm.TEXT
    monkeypatch.setattr(chips, "CHIPS", (*chips.CHIPS, chips.Chip("rocm", "gfx777", "rdna4", 3)))
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
        module, launches, _ = contract.loaded(d)
        wrong = launches[0]._replace(grid=(0, 1, 1))
        with pytest.raises(DeviceError, match="hipGraphAddKernelNode"):
            d.record(module, [launches[0], wrong])
        d.launch(module, launches[0])
        d.record(module, [])
    close()
    assert not fake.handles


def test_a_forked_child_is_told(fake: FakeHip) -> None:
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
