"""The calls of the CUDA driver on a pretended device, and the consequences if one fails."""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Iterator

import numpy as np
import pytest

import ztorch as zt
from tests.cases import doubled, small_model
from tests.cases.device_programs import run_kernels
from tests.cases.launch_barriers import numbers, reversing
from tests.cases.pretended_cuda import close, install
from tests.machines.fake_cuda import FakeCuda, Node
from tests.machines.ptx.parse import Entry
from tests.machines.ptx.running import rendered
from ztorch.backends import gpu, registry
from ztorch.backends.drivers import cuda
from ztorch.backends.handles import Binding, KernelEntry, Launch
from ztorch.codegen.render import shared_offsets
from ztorch.dtypes import f32, i32
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.ir.builder import Builder
from ztorch.lower.grid.workgroups import threads
from ztorch.program.program import Program
from ztorch.runtime import remote_steps


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = install(monkeypatch)
    yield made
    close(made)


BATCH = 4


def net() -> Program:
    return small_model.compiled(device="cuda", batch_size=BATCH)


def rows(batches: int) -> tuple[np.ndarray, np.ndarray]:
    """Random data that the model takes."""
    random = np.random.default_rng(1)
    return random.random((batches * BATCH, 4), np.float32), random.integers(0, 3, batches * BATCH)


def everything() -> None:
    """Every call that the driver makes."""
    with cuda.BACKEND.open(0) as d:
        module, launches, buffers = doubled.loaded(d, chained=2)
        d.write(buffers["inputs"], np.ones(doubled.N, np.float32))
        independent = [launches[0], launches[0]._replace(barrier=False), launches[1]]
        d.run(d.record(module, independent))
        d.synchronize()
        out = np.empty(doubled.N, np.float32)
        d.read(buffers["outputs"], out)
        assert (out == 4).all()
        d.copy(buffers["inputs"], buffers["outputs"], 64)
        d.record(module, [*[launches[0]._replace(barrier=False)] * 40, launches[1]])  # more than start early
        d.memory()
        one, other = d.stream(), d.stream()
        first = one.event()
        one.run(d.record(module, independent))
        other.wait(one.event())
        last = other.event()
        last.synchronize()
        assert last.done() and first.done() and last.seconds_since(first) > 0
        one.synchronize()
        d.run(d.record(module, launches))
        one.run(d.record(module, launches))
        more = np.full_like(out, 2)
        d.finish(d.submit(d.record(module, launches), buffers["inputs"], more, buffers["outputs"], out))
        assert (out == 8).all()
        for b in (blocks := (np.full_like(out, 3), np.empty_like(out))):
            d.pin(b)
        d.finish(d.submit(d.record(module, launches), buffers["inputs"], blocks[0], buffers["outputs"], blocks[1]))
        assert (blocks[1] == 12).all()
        del first, last
    run_kernels([reversing()], [numbers()], "cuda")


CALLS = sorted(name.removeprefix("do_") for name in vars(FakeCuda) if name.startswith("do_")
               and name not in ("do_cuGetErrorString", "do_cuFuncSetAttribute", "do_cuMemHostRegister", "do_cuMemHostUnregister", "do_cuGetProcAddress", "do_cuGraphAddDependencies",
                                "do_cuStreamBeginCapture", "do_cuStreamEndCapture", "do_cuGraphAddChildGraphNode"))


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails(call: str, fake: FakeCuda) -> None:
    """It is an error with its name and code, and afterwards the device works."""
    registry.open_device("cuda")
    fake.stack[:] = elsewhere(fake) if call in ("cuCtxPushCurrent", "cuCtxPopCurrent") else []
    fake.fail[call] = "NOT_PERMITTED"
    with pytest.raises((DeviceError, IndexError)) as caught:
        everything()
    if call in ("cuInit", "cuDeviceGetCount"):
        with pytest.raises(DeviceError, match=f"{call}: CUDA_ERROR_NOT_PERMITTED"):
            cuda.BACKEND.refusal()
    else:
        assert f"cuda:0: {call}: CUDA_ERROR_NOT_PERMITTED (the driver's words" in str(caught.value)
    fake.fail.clear()
    fake.forget()
    everything()


def elsewhere(fake: FakeCuda) -> list:
    """The contexts of a thread in which another library's is current."""
    return [fake.real.CUcontext(5)]


def test_all_calls_are_made_and_memory_is_freed(fake: FakeCuda) -> None:
    """Another library's context is current again after each call. Where a thread has none, ours stays: a call
    then only asks which one is current."""
    fake.stack[:] = elsewhere(fake)
    everything()
    assert set(CALLS) - set(fake.calls) == {"cuCtxSetCurrent"}
    assert fake.pushed == 0 and fake.stack == elsewhere(fake)
    fake.stack.clear()
    before = len(fake.calls)
    everything()
    contexts = [c for c in fake.calls[before:] if c.startswith("cuCtx") and c != "cuCtxGetCurrent"]
    assert contexts == ["cuCtxSetCurrent"] and list(map(int, fake.stack)) == [77]
    registry.open_device("cuda").close()
    owned = [h for h in fake.handles.values() if not isinstance(h, Entry | Node)]
    assert not owned and not fake.memory.allocations and not fake.retained and not fake.used


SMALL = ["cuGraphLaunch", "cuEventRecord", "cuEventSynchronize"]
LARGE = ["cuMemcpyHtoDAsync", "cuEventRecord", "cuStreamWaitEvent", "cuGraphLaunch", "cuMemcpyDtoHAsync",
         "cuEventRecord", "cuEventSynchronize"]


@pytest.mark.parametrize(("most", "calls"), [(gpu.GRAPH_COPY_BYTES, SMALL), (0, LARGE)], ids=["small", "large"])
def test_a_step_is_waited_for_once(most: int, calls: list[str], fake: FakeCuda,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies and launches go into one stream, from and to memory that the driver knows; where it does
    not want to know it, they are done all the same. Small copies are part of the graph."""
    monkeypatch.setattr(gpu, "GRAPH_COPY_BYTES", most)
    program, (x, _) = net(), rows(1)
    want = program.predict(x)
    pinned = dict(fake.pinned)
    before = len(fake.calls)
    np.testing.assert_array_equal(program.predict(x), want)
    made = [c for c in fake.calls[before:] if not c.startswith("cuCtx")]
    assert made == calls
    assert pinned and fake.pinned == pinned
    registry.open_device("cuda").close()
    assert not fake.pinned
    fake.fail["cuMemHostRegister"] = "NOT_PERMITTED"
    np.testing.assert_array_equal(net().predict(x).shape, want.shape)


@pytest.mark.parametrize("together", [1, 2])
def test_steps_of_fit_overlap(together: int, fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next batches are copied while a call is under way, and scores are those of one step at a time; a
    step whose loss is not finite is named though another one had begun."""
    monkeypatch.setattr(gpu, "GRAPH_COPY_BYTES", 0)
    monkeypatch.setattr(remote_steps, "MOST_STEPS", together)
    program, made, seen = net(), [], ("cuMemcpyHtoDAsync", "cuEventSynchronize")
    steps = 3 * together
    x, y = rows(steps)
    first = program.get_weights()

    class EachStep(zt.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            assert not fake.waiting, "scores of a step that is under way"

    fit = functools.partial(program.fit, x, y, epochs=1, verbose=0, shuffle=False)
    for run in (fit, lambda: fit(callbacks=[EachStep()]), lambda: program.evaluate(x, y, verbose=0),
                lambda: program.predict(x)):
        before = len(fake.calls)
        run()
        made.append([c for c in fake.calls[before:] if c in seen])
    copy, wait = seen
    overlapping = [copy, *[copy, wait] * 2, wait]
    each = [copy, *[copy, wait] * (steps - 1), wait]
    assert made == [overlapping, [copy, wait] * steps, overlapping, each]
    x[BATCH] = np.nan
    before = len(fake.calls)
    with pytest.raises(zt.errors.NonFiniteLoss, match="step 2;"):
        fit()
    ended = [copy, *[copy, wait] * (2 // together), wait]  # also the one that had begun was waited for
    assert [c for c in fake.calls[before:] if c in seen] == ended
    program.set_weights(first)
    assert np.isfinite(program.predict(x[:BATCH])).all() and not fake.waiting


@pytest.mark.parametrize("together", [1, 2])
def test_steps_come_one_by_one_where_a_second_batch_has_no_room(together: int, fake: FakeCuda,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores and weights are those of steps that overlap. The last batch is not full."""
    monkeypatch.setattr(remote_steps, "MOST_STEPS", together)
    actual = []
    for short in (False, True):
        program = net()
        x, y = (a[:-1] for a in rows(together + 1))
        program.fit(x[:together * BATCH], y[:together * BATCH], verbose=0)  # binds the first call
        total, bound = fake.total, len(registry.open_device("cuda")._recordings)
        fake.total = fake.used if short else total
        history = program.fit(x, y, epochs=2, verbose=0, shuffle=False).history
        fake.total = total
        assert len(registry.open_device("cuda")._recordings) == bound + (not short)
        actual.append([history["loss"], [w.tolist() for w in program.get_weights()]])
    assert actual[0] == actual[1] and actual[0][0][1] < actual[0][0][0]


def test_out_of_memory_says_how_much(fake: FakeCuda) -> None:
    d = registry.open_device("cuda")
    with pytest.raises(OutOfMemory, match=r"cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY .*: "
                                          "2,147,483,648 bytes were requested, and 1,073,741,824 of 1,073,741,824"):
        d.alloc(1 << 31)
    d.free(d.alloc(1 << 20))


def test_a_failed_kernel_closes_the_device(fake: FakeCuda) -> None:
    program, (x, _) = net(), rows(1)
    d = registry.open_device("cuda")
    fake.sick = "ILLEGAL_ADDRESS"
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS .* are lost: compile"):
        program.predict(x)
    for use in (lambda: program.predict(x), lambda: d.alloc(64), d.synchronize, d.memory):
        with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"):
            use()
    again = net()  # nobody has to close it by hand
    assert d.closed and registry.open_device("cuda") is not d and fake.retained == 1
    assert np.isfinite(again.predict(x)).all()


def test_a_context_that_others_hold_is_left_to_them(fake: FakeCuda) -> None:
    """Only a new process helps then, and the error says so."""
    fake.shared = True
    d = registry.open_device("cuda")
    fake.sick = "ILLEGAL_ADDRESS"
    with pytest.raises(DeviceError, match="uses it too, start a new process"):
        d.synchronize()
    with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"):
        registry.open_device("cuda")
    assert "cuDevicePrimaryCtxReset" not in fake.calls and not fake.retained


def test_more_shared_memory_than_a_kernel_may_declare(fake: FakeCuda) -> None:
    """Launches ask for it, and the function must allow it first."""
    d, n = registry.open_device("cuda"), 15_000
    b = Builder("turn", i32)
    b.memory("x", f32, n), b.memory("y", f32, n, access="w")
    first, second = (b.memory(name, f32, n // 2, "shared", "rw") for name in "st")
    with b.loop(0, 1, kind="grid"), threads(b, 250) as t:
        with b.loop(t, n // 2, 250) as i:
            b.store(first, i, b.load("x", i))
            b.store(second, i, b.load("x", i, off=n // 2))
        b.barrier()
        with b.loop(t, n // 2, 250) as i:
            b.store("y", i, b.load(second, i))
            b.store("y", i, b.load(first, i), off=n // 2)
    code = rendered([b.kernel()], "sm_90a").encode()
    x = np.arange(n, dtype=np.float32)
    source, target = d.alloc(x.nbytes), d.alloc(x.nbytes)
    d.write(source, x)
    entry = KernelEntry("k0", 0, len(code), (250, 1, 1), shared_offsets(b.kernel())[1])
    launch = Launch(0, (1, 1, 1), (Binding(source, 0, x.nbytes, False), Binding(target, 0, x.nbytes, True)))
    d.launch(d.load(code, [entry]), launch)
    y = np.empty_like(x)
    d.read(target, y)
    np.testing.assert_array_equal(y, np.roll(x, n // 2))
    with pytest.raises(DeviceError, match="INVALID_VALUE"):
        d.launch(d.load(code, [entry._replace(shared=300 << 10)]), launch)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_gets_an_error(fake: FakeCuda) -> None:
    d = registry.open_device("cuda")
    buffer = d.alloc(64)
    child = os.fork()
    if not child:  # nothing of the parent's may be touched: the fake fails where it is
        code = 1
        try:
            with pytest.raises(DeviceError, match="was forked"):
                d.write(buffer, np.zeros(4))
            assert "spawn" in cuda.BACKEND.refusal() and not cuda.BACKEND.devices()
            d.close()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    d.write(buffer, np.zeros(4))
