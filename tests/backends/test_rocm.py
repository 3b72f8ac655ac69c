"""The ROCm driver on a pretended device: the contract that all drivers keep, HIP's own features, and
whole models whose code objects are made and whose rendered IR runs thread by thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backends.pretended_rocm import WAVES, close, fake, install  # noqa: F401  # fixtures
from tests.cases import contract, doubled
from tests.cases.covering import full, pairs
from tests.cases.device_programs import all_agree
from tests.cases.jobs import parts, sharing
from tests.cases.zoo import STEPS, assert_verified
from tests.machines.fake_hip import FakeHip
from tests.machines.rocm import halves
from tests.parity import plan_of
from ztorch.backends import gpu, hip, registry
from ztorch.backends.drivers import rocm
from ztorch.codegen.targets import TARGETS
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.optimizers import SGD
from ztorch.runtime.devices import device_info, resolve

CONTRACT = [check for name, check in vars(contract).items() if name.startswith("test_")]


def parameters(check: Any) -> list:
    """The cases that a check of the contract has besides the backend's name."""
    if list(inspect.signature(check).parameters) == ["name"]:
        return [pytest.param(check, (), id=check.__name__)]
    result = next(m for m in check.pytestmark if m.args[0] != "name")
    cases = [v if isinstance(v, tuple) else (v,) for v in result.args[1]]
    return [pytest.param(check, v, id=f"{check.__name__} {v}"[:60]) for v in cases]


@pytest.mark.parametrize(("check", "more"), [p for c in CONTRACT for p in parameters(c)])
def test_contract(check: Any, more: tuple, fake: FakeHip) -> None:
    check("rocm", *more)


SHARE = sharing(1, 3)


@pytest.mark.parametrize("ops", [  # many together: LLVM begins again for each module
    pytest.param(ops, id=f"{k}", marks=pytest.mark.slow if k else ()) for k, ops in enumerate(parts(SHARE, 30))])
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
    limits = dict(device_info(resolve("rocm:0")).limits)
    graph = model.trace(40, optimizer=SGD(0.1), loss="mse").functions["train"]
    steps = plan_of(graph, TARGETS[f"rocm:{chip}"].on_device(limits).limits)[0].parts
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


# -- HIP's own features --------------------------------------------------------------------------------


def used(d: Any) -> None:
    """Everything that a driver does, once."""
    module, launches, buffers = doubled.loaded(d)
    x = np.arange(doubled.N, dtype=np.float32)
    d.write(buffers["inputs"], x)
    once = launches[0]
    # the last waits for both
    recording = d.record(module, [once, once._replace(barrier=False), once._replace(barrier=True)])
    d.run(recording)
    out = np.empty_like(x)
    d.read(buffers["outputs"], out)
    np.testing.assert_array_equal(out, 2 * x)
    for most in (0, gpu.GRAPH_COPY_BYTES):  # copies of their own, and in the graph
        x += 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gpu, "GRAPH_COPY_BYTES", most)
            d.pin(x)
            d.pin(out)
            d.finish(d.submit(recording, buffers["inputs"], x, buffers["outputs"], out))
            d.unpin(x)
            d.unpin(out)
            d.synchronize()
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
    fake.handles.clear()  # handles that the failing call could not release
    fake.buffers.clear()
    registry._opened.clear()
    with rocm.BACKEND.open() as d:
        used(d)
    close()
    assert not fake.handles and not fake.buffers
