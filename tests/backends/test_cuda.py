"""The CUDA driver on a pretended device: the contract that all drivers keep, what is CUDA's own, and
whole models whose rendered PTX runs thread by thread."""

from __future__ import annotations

import functools
import inspect
import os
import re
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from benchmarks import gpu_smoke
from tests.cases import contract
from tests.cases.device_programs import Module, all_agree
from tests.cases.jobs import parts, sharing
from tests.cases.pretended_cuda import close, install
from tests.cases.zoo import BATCH, STEPS, rows, small
from tests.machines.fake_cuda import FakeCuda, Node
from tests.machines.ptx.parse import Entry, parse
from tests.machines.ptx.running import rendered
from tests.parity import Job, agree
from ztorch import ops, settings
from ztorch.backends import cuda_calls, registry
from ztorch.backends.cuda_maps import encode
from ztorch.backends.drivers import cuda
from ztorch.backends.handles import Binding, KernelEntry, Launch, TensorMap
from ztorch.codegen import ptx
from ztorch.codegen.render import shared_offsets
from ztorch.codegen.targets import TARGETS
from ztorch.commands.train import compiled
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import DType, bf16, f16, f32, i8, i32
from ztorch.errors import DeviceError, OutOfMemory, ZtorchError
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.builder import Builder
from ztorch.lower.grid import threads
from ztorch.machines import chips
from ztorch.runtime.devices import devices, resolve


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = install(monkeypatch)
    yield made
    close(made)


CONTRACT = [check for name, check in vars(contract).items() if name.startswith("test_")]


@pytest.mark.parametrize("check", [c for c in CONTRACT if list(inspect.signature(c).parameters) == ["name"]],
                         ids=lambda c: c.__name__)
def test_contract(check: object, fake: FakeCuda) -> None:
    check("cuda")  # type: ignore[operator]
    assert fake.pushed == 0, "a context was left current"


SHARE = sharing(0, 6)


@pytest.mark.parametrize("ops", [
    pytest.param(ops, id=f"{k}", marks=pytest.mark.slow if k else ()) for k, ops in enumerate(parts(SHARE, 12))])
def test_every_op(ops: list[str], fake: FakeCuda) -> None:
    """The rendered PTX of every op and its gradient, thread by thread."""
    all_agree("cuda", [job for op in ops for job in SHARE[op]])
    assert "cuGraphLaunch" in fake.calls


# -- whole models ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [
    "digits_mlp", *(pytest.param(n, marks=pytest.mark.slow) for n in ("digits_cnn", "lstm_classifier")),
    # These train on the devices of test_zoo.py, and their ops and gradients run above.
    *(pytest.param(n, marks=pytest.mark.full) for n in ("text_classifier", "autoencoder", "tabular_regressor"))])
def test_models_train_as_on_the_cpu(name: str, fake: FakeCuda) -> None:
    losses, predicted = {}, {}
    for device in ("cpu", "cuda:0"):
        recipe = small(name)  # a model anew: one that was compiled goes on from what it learned
        program = compiled(recipe, device, BATCH)
        x, y = rows(program.executable, program.metadata, recipe, STEPS)
        losses[device] = program.fit(x, y, epochs=1, verbose=0, shuffle=False).history["loss"]
        predicted[device] = program.predict(x)
    np.testing.assert_allclose(losses["cuda:0"], losses["cpu"], rtol=1e-5)
    np.testing.assert_allclose(predicted["cuda:0"], predicted["cpu"], rtol=0, atol=1e-4)


@pytest.mark.slow
def test_the_order_between_barriers_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph may run launches that no barrier parts in any order, or at once."""
    weights = []
    for shuffled in (False, True):
        with monkeypatch.context() as patch:
            fake = install(patch, shuffled=shuffled)
            program = compiled(small("digits_mlp"), "cuda", BATCH)
            x, y = rows(program.executable, program.metadata, small("digits_mlp"), 2)
            program.fit(x, y, verbose=0, shuffle=False)
            weights.append(program.get_weights())
            close(fake)
    for a, b in zip(*weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_launches_wait_only_where_a_barrier_says_so(fake: FakeCuda) -> None:
    d = contract.device("cuda")
    module, (launch, *_), _ = contract.loaded(d)
    graphs: list[dict] = []
    keep = FakeCuda.do_cuGraphInstantiate
    fake.__dict__["cuGraphInstantiate"] = lambda g, f: (
        graphs.append(dict(fake.held(g, dict))), fake.call("cuGraphInstantiate", g, f))[1]
    assert keep is FakeCuda.do_cuGraphInstantiate
    d.record(module, [launch._replace(barrier=b) for b in (False, False, True, False, True, True)])
    names = {n: k for k, n in enumerate(graphs[0])}
    after = [sorted(names[a] for a in node.after) for node in graphs[0].values()]
    kernels = [node.entry is not None for node in graphs[0].values()]
    assert kernels == [True, True, False, True, True, False, True, True]
    assert after == [[], [], [0, 1], [2], [2], [3, 4], [5], [6]]


# -- what is there ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("capability", "chip"), [
    ((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 7), "sm_86"), ((8, 9), "sm_89"),
    ((9, 0), "sm_90a"), ((10, 0), "sm_100"), ((12, 0), "sm_100")])
def test_the_chip_that_code_is_made_for(capability: tuple[int, int], chip: str,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, capability=capability)
    assert registry.opened("cuda", 0).info.chip == chip
    assert resolve("cuda").target == f"cuda:{chip}"
    test = next(c for c in CONTRACT if c.__name__ == "test_one_launch_by_itself")
    test("cuda")
    close(fake)


def test_a_device_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, capability=(6, 1))
    with pytest.raises(DeviceError, match=r"cuda:0 \(Pretended GPU\) is older than sm_75"):
        registry.opened("cuda", 0)


def test_a_device_takes_the_chip_of_a_new_row(monkeypatch: pytest.MonkeyPatch) -> None:
    made = install(monkeypatch, capability=(9, 5))
    assert cuda.BACKEND.devices()[0].chip == "sm_90"
    monkeypatch.setattr(chips, "CHIPS", (*chips.CHIPS, chips.Chip("cuda", "sm_95", "ampere", 7, 95, isa="9.1")))
    found = cuda.BACKEND.devices()[0]
    assert found.chip == "sm_95" and found.runs[-1] == "sm_95" and resolve("cuda:0").target == "cuda:sm_95"
    monkeypatch.setattr(chips, "CHIPS", chips.CHIPS[-1:])
    install(monkeypatch, capability=(9, 0))
    with pytest.raises(DeviceError, match="is older than sm_95"):
        registry.opened("cuda", 0)
    close(made)


def test_why_there_is_no_device(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = cuda.BACKEND
    assert backend.refusal() == "" and len(backend.devices()) == 1
    assert backend.devices()[0].driver == "CUDA 13.2, compute capability 9.0"
    fake.devices = 0
    assert backend.refusal() == "the driver has no device"
    for code in ("NO_DEVICE", "STUB_LIBRARY"):
        fake.fail["cuInit"] = code
        assert f"cuInit: CUDA_ERROR_{code} (the driver's words" in backend.refusal()
        assert backend.devices() == []
    for code in ("SYSTEM_DRIVER_MISMATCH", "UNKNOWN"):
        fake.fail["cuInit"] = code
        with pytest.warns(UserWarning, match=f"backend cuda is broken: .*CUDA_ERROR_{code}"):
            found, why = registry.seen("cuda")
        assert not found and f"its driver broke: cuda: cuInit: CUDA_ERROR_{code}" in why

    class Absent(RuntimeError):
        pass

    def absent(flags: int) -> None:
        raise Absent("cannot be found")

    fake.__dict__["cuInit"] = absent
    assert backend.refusal() == "NVIDIA's driver is not installed (Absent for libcuda)"

    def missing() -> None:
        raise ModuleNotFoundError("no such module")

    monkeypatch.setattr(cuda_calls, "driver", missing)
    assert "pip install 'ztorch[cuda]'" in backend.refusal()
    with pytest.raises(DeviceError, match="there is no cuda device here: cuda-bindings is not"):
        registry.opened("cuda")


# -- what goes wrong -------------------------------------------------------------------------------


def everything() -> None:
    """Every call that the driver makes."""
    with cuda.BACKEND.open(0) as d:
        module, launches, buffers = contract.loaded(d, chained=2)
        d.write(buffers["inputs"], np.ones(contract.N, np.float32))
        independent = [launches[0], launches[0]._replace(barrier=False), launches[1]]
        d.run(d.record(module, independent))
        d.synchronise()
        out = np.empty(contract.N, np.float32)
        d.read(buffers["outputs"], out)
        assert (out == 4).all()
        d.copy(buffers["inputs"], buffers["outputs"], 64)
        d.memory()
        one, other = d.stream(), d.stream()
        first = one.event()
        one.run(d.record(module, independent))
        other.wait(one.event())
        last = other.event()
        last.synchronise()
        assert last.done() and first.done() and last.seconds_since(first) > 0
        one.synchronise()
        d.run(d.record(module, launches))
        one.run(d.record(module, launches))
        more = np.full_like(out, 2)
        d.finish(d.submit(d.record(module, launches), buffers["inputs"], more, buffers["outputs"], out))
        assert (out == 8).all()
        del first, last


CALLS = sorted(name.removeprefix("do_") for name in vars(FakeCuda) if name.startswith("do_")
               and name not in ("do_cuGetErrorString", "do_cuFuncSetAttribute", "do_cuMemHostRegister",
                                "do_cuMemHostUnregister", "do_cuGetProcAddress"))


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails(call: str, fake: FakeCuda) -> None:
    """It is an error with its name and code, and afterwards the device works."""
    registry.opened("cuda")
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


def test_all_calls_are_made_and_all_is_given_back(fake: FakeCuda) -> None:
    everything()
    assert set(CALLS) <= set(fake.calls)
    assert fake.pushed == 0
    registry.opened("cuda").close()
    owned = [h for h in fake.handles.values() if not isinstance(h, Entry | Node)]
    assert not owned and not fake.memory.allocations and not fake.retained and not fake.used


def test_a_step_is_waited_for_once(fake: FakeCuda) -> None:
    """Copies and launches go into one stream, from and to memory that the driver knows; where it does
    not want to know it, they are done all the same."""
    program = compiled(small("digits_mlp"), "cuda", BATCH)
    x, _ = rows(program.executable, program.metadata, small("digits_mlp"), 1)
    want = program.predict(x)
    pinned = dict(fake.pinned)
    before = len(fake.calls)
    np.testing.assert_array_equal(program.predict(x), want)
    made = [c for c in fake.calls[before:] if not c.startswith("cuCtx")]
    assert made == ["cuMemcpyHtoDAsync", "cuEventRecord", "cuStreamWaitEvent", "cuGraphLaunch",
                    "cuMemcpyDtoHAsync", "cuEventRecord", "cuEventSynchronize"]
    assert pinned and fake.pinned == pinned
    registry.opened("cuda").close()
    assert not fake.pinned
    fake.fail["cuMemHostRegister"] = "NOT_PERMITTED"
    np.testing.assert_array_equal(compiled(small("digits_mlp"), "cuda", BATCH).predict(x).shape, want.shape)


def test_steps_of_fit_overlap(fake: FakeCuda) -> None:
    """The next batch is copied while a step is under way, and scores are those of one step at a time; a
    step whose loss is not finite is named though another one had begun."""
    recipe, made, seen = small("digits_mlp"), [], ("cuMemcpyHtoDAsync", "cuEventSynchronize")
    program = compiled(recipe, "cuda", BATCH)
    x, y = rows(program.executable, program.metadata, recipe, 5)
    first = program.get_weights()

    class EachStep(zt.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            assert not fake.waiting, "scores of a step that is under way"

    fit = functools.partial(program.fit, x, y, epochs=1, verbose=0, shuffle=False)
    for run in (fit, lambda: fit(callbacks=[EachStep()]), lambda: program.evaluate(x, y, verbose=0),
                lambda: program.predict(x)):
        before = len(fake.calls)
        run()
        made.append([c for c in fake.calls[before:] if c in seen][-10:])
    copy, wait = seen
    overlapping = [copy, *[copy, wait] * 4, wait]
    assert made == [overlapping, [copy, wait] * 5, overlapping, overlapping]
    x[3 * BATCH] = np.nan
    with pytest.raises(zt.errors.NonFiniteLoss, match="step 4;"):
        program.fit(x, y, epochs=1, verbose=0, shuffle=False)
    program.set_weights(first)
    assert np.isfinite(program.predict(x[:BATCH])).all() and not fake.waiting


def test_steps_come_one_by_one_where_a_second_batch_has_no_room(fake: FakeCuda) -> None:
    """Scores and weights are those of steps that overlap."""
    found = []
    for short in (False, True):
        recipe = small("digits_mlp")
        program = compiled(recipe, "cuda", BATCH)
        x, y = rows(program.executable, program.metadata, recipe, 4)
        program.train_on_batch(x[:BATCH], y[:BATCH])  # binds the first call
        total, bound = fake.total, len(registry.opened("cuda")._recordings)
        fake.total = fake.used if short else total
        history = program.fit(x, y, epochs=2, verbose=0, shuffle=False).history
        fake.total = total
        assert len(registry.opened("cuda")._recordings) == bound + (not short)
        found.append([history["loss"], [w.tolist() for w in program.get_weights()]])
    assert found[0] == found[1] and found[0][0][1] < found[0][0][0]


def test_out_of_memory_says_how_much(fake: FakeCuda) -> None:
    d = registry.opened("cuda")
    with pytest.raises(OutOfMemory, match=r"cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY .* asked for "
                                          "2,147,483,648 bytes, and 1,073,741,824 of 1,073,741,824"):
        d.alloc(1 << 31)
    d.free(d.alloc(1 << 20))


def test_a_kernel_that_goes_wrong_loses_the_device_until_it_is_opened_again(fake: FakeCuda) -> None:
    program = compiled(small("digits_mlp"), "cuda", BATCH)
    x, _ = rows(program.executable, program.metadata, small("digits_mlp"), 1)
    d = registry.opened("cuda")
    fake.sick = "ILLEGAL_ADDRESS"
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS .* is lost: compile"):
        program.predict(x)
    for use in (lambda: program.predict(x), lambda: d.alloc(64), d.synchronise, d.memory):
        with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"):
            use()
    again = compiled(small("digits_mlp"), "cuda", BATCH)  # nobody has to close it by hand
    assert d.closed and registry.opened("cuda") is not d and fake.retained == 1
    assert np.isfinite(again.predict(x)).all()


def test_a_context_that_others_hold_is_left_to_them(fake: FakeCuda) -> None:
    """Only a new process helps then, and the error says so."""
    fake.shared = True
    d = registry.opened("cuda")
    fake.sick = "ILLEGAL_ADDRESS"
    with pytest.raises(DeviceError, match="holds it too, start a new process"):
        d.synchronise()
    with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"):
        registry.opened("cuda")
    assert "cuDevicePrimaryCtxReset" not in fake.calls and not fake.retained


def test_more_shared_memory_than_a_kernel_may_declare(fake: FakeCuda) -> None:
    """Launches ask for it, and the function must allow it first."""
    d, n = registry.opened("cuda"), 15_000
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


def test_what_the_assembler_says_is_in_the_error(fake: FakeCuda) -> None:
    d = registry.opened("cuda")
    code, entries, _ = contract.doubling(d)
    before = len(fake.handles)
    for bad in (code.replace(b"add.rn.f32", b"frob.f32"), code.replace(b".target sm_90a", b".target sm_100")):
        two = [*entries, entries[0]._replace(at=len(code), size=len(bad))]
        with pytest.raises(DeviceError, match=r"cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX .*: (.*frob|sm_100 is)"):
            d.load(code + bad, two)
        assert len(fake.handles) == before, "the part that was good is still loaded"
    with pytest.raises(DeviceError, match="cuModuleGetFunction: CUDA_ERROR_NOT_FOUND"):
        d.load(code, [entries[0]._replace(name="other")])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_is_told(fake: FakeCuda) -> None:
    d = registry.opened("cuda")
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


# -- artifacts -------------------------------------------------------------------------------------


def test_code_for_an_earlier_chip_runs_on_a_later_one(fake: FakeCuda, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    close(fake)
    fake = install(monkeypatch, capability=(8, 9))
    program = compiled(small("digits_mlp"), "cuda:0", BATCH)
    x, _ = rows(program.executable, program.metadata, small("digits_mlp"), 1)
    program.save(tmp_path / "model.zt")
    want = program.predict(x)
    np.testing.assert_array_equal(zt.load(tmp_path / "model.zt").predict(x), want)
    close(fake)
    later = install(monkeypatch, capability=(10, 0))
    np.testing.assert_array_equal(zt.load(tmp_path / "model.zt").predict(x), want)
    close(later)
    install(monkeypatch, capability=(8, 0))
    with pytest.raises(ZtorchError, match="sm_89"):
        zt.load(tmp_path / "model.zt")


def test_machine_code_lies_behind_the_text(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that does not take it assembles the text; without nvJitLink there is but the text."""
    pytest.importorskip("cuda.bindings.nvjitlink")
    d = registry.opened("cuda")
    text = contract.doubling(d)[0]
    with settings.using(cubin=True):
        code, entries, _ = contract.doubling(d)
        monkeypatch.setattr(ptx, "_version", lambda: "")
        assert contract.doubling(d)[0] == text
    cubin = code.removeprefix(text)
    assert text.index(0) == len(text) - 1 and cubin.startswith(b"\x7fELF") and entries[0].size == len(code)
    for taken, loads in ({}, 2), ({cubin: text}, 1):
        fake.cubins, before = taken, len(fake.calls)
        d.unload(d.load(code, entries))
        assert fake.calls[before:].count("cuModuleLoadDataEx") == loads
    damaged = code[:-9]
    fake.cubins = {}
    d.load(damaged, [entries[0]._replace(size=len(damaged))])
    fake.fail["cuModuleLoadDataEx"] = "OUT_OF_MEMORY"
    before = len(fake.calls)
    with pytest.raises(OutOfMemory, match="cuModuleLoadDataEx"):
        d.load(code, entries)
    assert fake.calls[before:].count("cuModuleLoadDataEx") == 1


def test_kernels_are_assembled_one_by_one_on_threads() -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    x = leaf("input", "x", (33, 65), f32)
    graph = {"f": Graph({"y": ops.softmax(ops.matmul(x, ops.transpose(x))), "z": ops.sum(x, axis=0)})}
    with settings.using(cubin=True, cache=None):
        made = compile_functions(graph, TARGETS["cuda:sm_80"], "parts")
    assert len(made.spec.entries) > 1
    for symbol, at, size, _ in made.spec.entries:
        text, _, cubin = made.code[at:at + size].partition(b"\0")
        assert text.count(b".entry") == 1 and f".entry {symbol}(".encode() in text
        assert cubin.startswith(b"\x7fELF") and f".text.{symbol}\0".encode() in cubin


@pytest.mark.parametrize("capability", [(7, 5), (9, 0)], ids=["by whole numbers", "by cvt"])
@pytest.mark.parametrize("d", [f16, bf16], ids=repr)
def test_halves(d: DType, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """16-bit floats, which older chips convert bit by bit."""
    fake = install(monkeypatch, capability=capability)
    x, y = leaf("input", "x", (9, 33), d), leaf("input", "y", (33, 7), d)
    rng = np.random.default_rng(0)
    feeds = {v: rng.normal(size=v.shape).astype(np.float32) for v in (x, y)}
    feeds[x][0, :4] = np.inf, -0.0, 1e-7, 70000
    job = Job(Graph({
        "product": ops.matmul(ops.clip(x, -3.0, 3.0), y), "softmax": ops.softmax(ops.clip(x, -9.0, 9.0)),
        "sum": ops.sum(y, axis=0), "wide": ops.cast(x, f32), "narrow": ops.cast(ops.cast(x, f32) * 1.1, d),
        "whole": ops.cast(x, i8)}), feeds)
    module = Module([job], "cuda")
    with np.errstate(over="ignore"):
        agree(job, module.run(0), terms=33)
    close(fake)


def tiles() -> Job:
    x, y = leaf("input", "x", (2, 256, 136), f16), leaf("input", "y", (2, 128, 136), f16)
    rng = np.random.default_rng(0)
    return Job(Graph({"product": ops.relu(ops.matmul(x, ops.transpose(y, (0, 2, 1))))}),
               {v: rng.normal(size=v.shape).astype(np.float32) for v in (x, y)})


def test_tiles_are_copied_by_maps(fake: FakeCuda) -> None:
    """The driver encodes them in memory as aligned as it asks for, with the addresses of a launch."""
    job = tiles()
    module = Module([job], "cuda")
    assert "cp.async.bulk.tensor.3d" in module.compiled.text
    agree(job, module.run(0), terms=136)
    left, right = fake.encoded.values()
    assert (left.extents, left.strides, left.box) == ((136, 256, 2), (272, 256 * 272), (64, 128, 1))
    assert (right.extents, right.strides, right.box) == ((136, 128, 2), (272, 128 * 272), (64, 64, 1))
    assert "cuGetProcAddress" in fake.calls


def test_maps_that_the_driver_refuses(fake: FakeCuda) -> None:
    compiled = Module([tiles()], "cuda").compiled
    entry = next(e for e in compiled.spec.kernel_entries if e[-1])
    one = TensorMap(*entry[-1][0])
    for wrong in (one._replace(at=8), one._replace(pitches=(264, one.pitches[1])), one._replace(box=(128, 64, 1))):
        with pytest.raises(DeviceError, match="cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE for TensorMap"):
            encode("cuda:0", 1 << 20, 1 << 32, wrong)
    fake.missing = True
    with pytest.raises(DeviceError, match="has no cuTensorMapEncodeTiled; update it"):
        encode("cuda:0", 1 << 20, 1 << 32, one)


@pytest.mark.parametrize("chip", ["sm_75", "sm_100"])
def test_compiled_for_a_chip_that_is_not_here(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code needs no driver at all; only to run it is refused."""
    monkeypatch.setattr(cuda_calls, "driver", lambda: (_ for _ in ()).throw(ModuleNotFoundError("none")))
    recipe = small("digits_mlp")
    functions = recipe.model.trace(batch_size=2, loss=recipe.loss, optimizer="sgd").functions
    made = compile_functions(functions, replace(TARGETS[f"cuda:{chip}"], one_module_per_kernel=False), "digits")
    assert made.spec.arch == chip and f".target {chip}\n" in made.text
    assert {e[0] for e in made.spec.entries} == set(parse(made.text).entries)
    with pytest.raises(DeviceError, match="names a chip, which is enough to export for it"):
        compiled(recipe, f"cuda:{chip}", 2)


# -- what tells of a new GPU ---------------------------------------------------------------------------


def test_smoke_names_the_call_that_failed(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    """And what was measured stands beside what was predicted for the GPU of that name."""
    [d] = [d for d in devices() if d.id == "cuda:0"]
    d = replace(d, name="NVIDIA H200")
    some = [step for step in gpu_smoke.steps(d) if step.name in (
        "open, allocate, write, copy, read, free", "one kernel", "time of one launch")]
    monkeypatch.setattr(gpu_smoke, "steps", lambda d: some)
    assert gpu_smoke.smoke([d]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 4 and all("ok" in line for line in said[1:])
    assert re.search(r"time of one launch: measured .+, predicted \d.* µs$", said[3])
    fake.fail["cuGraphLaunch"] = "NOT_PERMITTED"
    assert gpu_smoke.smoke([d]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "ok" in said[1] and all("cuda:0: cuGraphLaunch: CUDA_ERROR_NOT_PERMITTED" in line
                                   for line in said[2:])
