"""CUDA's chips: which code runs on which, machine code behind the text, tensor maps, and the tool that tries a new GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from benchmarks import gpu_smoke
from tests.cases import doubled
from tests.cases.device_programs import Module
from tests.cases.pretended_cuda import close, install
from tests.cases.zoo import BATCH, rows, small
from tests.machines.fake_cuda import FakeCuda
from tests.machines.ptx.parse import parse
from tests.parity import Job, agree
from ztorch import ops, settings
from ztorch.backends import cuda_calls, registry
from ztorch.backends.cuda_maps import encode
from ztorch.backends.handles import TensorMap
from ztorch.codegen import ptx
from ztorch.codegen.targets import TARGETS
from ztorch.commands.train import compiled
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import DType, bf16, f16, f32, i8
from ztorch.errors import DeviceError, OutOfMemory, ZtorchError
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.runtime.devices import devices


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = install(monkeypatch)
    yield made
    close(made)


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


def test_machine_code_follows_the_text(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that does not take it assembles the text; without nvJitLink there is but the text."""
    pytest.importorskip("cuda.bindings.nvjitlink")
    d = registry.open_device("cuda")
    text = doubled.doubling(d)[0]
    with settings.using(cubin=True):
        code, entries, _ = doubled.doubling(d)
        monkeypatch.setattr(ptx, "_version", lambda: "")
        assert doubled.doubling(d)[0] == text
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
def test_compiled_for_an_absent_chip(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code needs no driver at all; only to run it is refused."""
    monkeypatch.setattr(cuda_calls, "driver", lambda: (_ for _ in ()).throw(ModuleNotFoundError("none")))
    recipe = small("digits_mlp")
    functions = recipe.model.trace(batch_size=2, loss=recipe.loss, optimizer="sgd").functions
    made = compile_functions(functions, replace(TARGETS[f"cuda:{chip}"], one_module_per_kernel=False), "digits")
    assert made.spec.arch == chip and f".target {chip}\n" in made.text
    assert {e[0] for e in made.spec.entries} == set(parse(made.text).entries)
    with pytest.raises(DeviceError, match="names a chip, which can be exported for"):
        compiled(recipe, f"cuda:{chip}", 2)


# -- recognizing a new GPU -----------------------------------------------------------------------------


def test_smoke_names_the_call_that_failed(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    """Measured times stand beside the prediction for the GPU of that name."""
    [d] = [d for d in devices() if d.id == "cuda:0"]
    d = replace(d, name="NVIDIA H200")
    some = [step for step in gpu_smoke.steps(d) if step.name in (
        "open, allocate, write, copy, read, free", "one kernel", "time of one launch")]
    monkeypatch.setattr(gpu_smoke, "steps", lambda d: some)
    assert gpu_smoke.smoke([d]) == 0
    output = capsys.readouterr().out.splitlines()
    assert len(output) == 4 and all("ok" in line for line in output[1:])
    assert re.search(r"time of one launch: measured .+, predicted \d.* µs$", output[3])
    fake.fail["cuGraphLaunch"] = "NOT_PERMITTED"
    assert gpu_smoke.smoke([d]) == 1
    output = capsys.readouterr().out.splitlines()
    assert "ok" in output[1] and all("cuda:0: cuGraphLaunch: CUDA_ERROR_NOT_PERMITTED" in line
                                     for line in output[2:])


def test_the_error_has_the_assemblers_message(fake: FakeCuda) -> None:
    d = registry.open_device("cuda")
    code, entries, _ = doubled.doubling(d)
    before = len(fake.handles)
    for bad in (code.replace(b"add.rn.f32", b"frob.f32"), code.replace(b".target sm_90a", b".target sm_100")):
        two = [*entries, entries[0]._replace(at=len(code), size=len(bad))]
        with pytest.raises(DeviceError, match=r"cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX .*: (.*frob|sm_100 is)"):
            d.load(code + bad, two)
        assert len(fake.handles) == before, "the part that was good is still loaded"
    with pytest.raises(DeviceError, match="cuModuleGetFunction: CUDA_ERROR_NOT_FOUND"):
        d.load(code, [entries[0]._replace(name="other")])


def test_kernels_that_wait_may_start_early(fake: FakeCuda) -> None:
    """If one of a module does not wait for the kernels before it, none starts early."""
    code, _, _ = doubled.doubling(registry.open_device("cuda"))
    assert cuda_calls.waits(code)
    impatient = code.replace(b"griddepcontrol.wait;", b"")
    assert impatient != code and not cuda_calls.waits(impatient)
    assert not cuda_calls.waits(code.rstrip(b"\0") + impatient)
