"""The benchmark of devices: its peers compute what our models do, and one failure ends no run."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import time
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from benchmarks import (
    gpu,
    gpu_compiled,
    gpu_models,
    gpu_parity,
    gpu_peers,
    gpu_predictions,
    gpu_smoke,
    level,
    stream_k,
    timing,
)
from benchmarks.gpu_cases import GPU, SMALL, SOFTWARE, Case, Measured, Sizes
from benchmarks.timing import Effort
from tests.cases.available import device
from tests.cases.covering import among_devices, one_in_each_run
from ztorch.errors import DeviceError, Unsupported
from ztorch.host import processor
from ztorch.runtime.devices import ListedDevice


@pytest.mark.parametrize("name", GPU.models)
def test_pytorch_s_models_are_ours(name: str) -> None:
    torch = pytest.importorskip("torch")
    model = importlib.import_module(f"models.{name}").build()
    call = model.compile("cpu", batch_size=2).executable.bind("predict")
    x, random = call.inputs["x"], np.random.default_rng(0)
    x[...] = random.random(x.shape) if x.dtype.kind == "f" else random.integers(0, 10, x.shape)
    call()
    with torch.inference_mode():
        theirs = gpu_peers.build(name, model).eval()(gpu_peers.inputs(x)).softmax(-1)
    np.testing.assert_allclose(call.outputs["y"], theirs.numpy(), rtol=1e-4, atol=1e-6)


def test_what_imitates_a_gpu_gets_less_work() -> None:
    kinds = {kind: gpu.sizes(ListedDevice("x:0", kind), False) for kind in ("cpu", "gpu", "integrated")}
    assert kinds == {"cpu": SOFTWARE, "gpu": GPU, "integrated": GPU}
    assert gpu.sizes(ListedDevice("x:0", "gpu"), True) is SMALL


def test_a_failure_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                             capsys: pytest.CaptureFixture[str]) -> None:
    """One device has no memory, the other's result is wrong; later ones are measured."""
    here = [ListedDevice("opencl:0", "cpu", "one"), ListedDevice("vulkan:0", "gpu", "other")]
    monkeypatch.setattr(gpu, "devices", lambda: here)

    def cases(d: ListedDevice, z: Sizes) -> list[Case]:
        def run(effort: Effort) -> Measured:
            if d.kind == "cpu":
                raise DeviceError("out of memory")
            raise SystemExit("ztorch is wrong by 1")

        return [Case("a case", run)]

    monkeypatch.setitem(gpu.KINDS, "conv", gpu.KINDS["conv"]._replace(cases=cases))
    monkeypatch.setitem(gpu.KINDS, "rows", gpu.KINDS["rows"]._replace(cases=lambda d, z: [
        Case("good", lambda effort: Measured([], 0.0, "1 x"))]))
    assert gpu.main(["--quick", "--only", "conv,rows", "--out", str(tmp_path)]) == 1
    said, text = capsys.readouterr().out, next(tmp_path.glob("*.md")).read_text()
    assert "[1 of 4, after " in said and "[4 of 4, after " in said
    for expected in ("a case, opencl:0: DeviceError: out of memory", "| good | vulkan:0 | 1 x |",
                     "a case, vulkan:0: SystemExit: ztorch is wrong by 1"):
        assert expected in text
    kept = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert [r["failed"] for r in kept["sections"][0]["results"]] == [
        "DeviceError: out of memory", "SystemExit: ztorch is wrong by 1"]


def test_an_interrupted_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    """Measurements are kept, and failures are measured again."""
    monkeypatch.setattr(gpu, "devices", lambda: [ListedDevice("vulkan:0", "gpu", "one")])
    ran, works = [], [False]

    def case(name: str, good: bool) -> Case:
        def run(effort: Effort) -> Measured:
            ran.append(name)
            if not (good or works[0]):
                raise DeviceError("out of memory")
            return Measured([], 0.0, "1 x", "3 s")

        return Case(name, run)

    monkeypatch.setitem(gpu.KINDS, "conv", gpu.KINDS["conv"]._replace(
        cases=lambda d, z: [case("first", True), case("second", False)]))
    how = ["--quick", "--only", "conv", "--out", str(tmp_path)]
    assert gpu.main([*how, "--minutes", "0"]) == 0 and not ran
    assert "2 rows are left, which --resume measures" in capsys.readouterr().out
    with monkeypatch.context() as slow:  # without a limit of one's own: ten minutes
        slow.setattr(gpu, "perf_counter", itertools.count(step=400).__next__)
        assert gpu.main(how) == 0 and ran == ["first"]
    assert "1 rows are left" in capsys.readouterr().out
    ran.clear()
    assert gpu.main(how) == 1 and ran == ["first", "second"]
    works[0] = True
    assert gpu.main([*how, "--resume"]) == 0 and ran == ["first", "second", "second"]
    assert str(tmp_path) in capsys.readouterr().out
    assert gpu.main([*how, "--resume"]) == 0 and len(ran) == 3
    assert "nothing is left to measure" in capsys.readouterr().out
    text = next(tmp_path.glob("*.md")).read_text()
    assert text.count("| first | vulkan:0 | 1 x | 3 s |") == text.count("| second | vulkan:0 | 1 x | 3 s |") == 1
    assert "out of memory" not in text


def test_compiling_is_limited() -> None:
    """By a child, which ends with its own children; a failure is told by its last line."""
    sleeps = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    begun = time.perf_counter()
    assert gpu_compiled.refusal([sys.executable, "-c", sleeps], limit=0.5) == "did not compile in 0.5 s"
    assert time.perf_counter() - begun < 20
    assert gpu_compiled.refusal([sys.executable, "-c", "raise ValueError('no Triton')"]) == (
        "failed: ValueError: no Triton")
    assert gpu_compiled.refusal([sys.executable, "-c", ""]) == ""


def test_what_did_not_compile_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "devices", lambda: [ListedDevice("cuda:0", "gpu", "one")])
    monkeypatch.setattr(gpu_compiled, "refusal", lambda command: f"did not compile {command[-3:]} in 40 s")
    runs, left_out = gpu_compiled.contestant("lenet", "train", (np.zeros((32, 3)), np.zeros(32)), lambda: None)
    assert not runs
    monkeypatch.setitem(gpu.KINDS, "models", gpu.KINDS["models"]._replace(cases=lambda d, z: [
        Case("lenet, a step", lambda effort: Measured([], 0.0, "1 x", left_out=left_out))]))
    assert gpu.main(["--quick", "--only", "models", "--out", str(tmp_path)]) == 0
    text = next(tmp_path.glob("*.md")).read_text()
    assert "lenet, a step, cuda:0: torch.compile did not compile ['lenet', 'train', '32'] in 40 s" in text


def test_a_batch_for_the_compiling_child() -> None:
    """The shapes are those of the step that is measured, so the compiled code is found again."""
    from models import lenet

    x, y = gpu_models.batch_of(lenet.build(), lenet.LOSS, 2)
    inputs = lenet.build().compile("cpu", batch_size=2, optimizer="adam", loss=lenet.LOSS).executable.bind("train").inputs
    assert (x.shape, y.shape, y.dtype) == (inputs["x"].shape, inputs["y"].shape, inputs["y"].dtype)


def test_smoke_names_failures_and_continues(monkeypatch: pytest.MonkeyPatch,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    def fails(error: Exception) -> str:
        raise error

    monkeypatch.setattr(gpu_smoke, "steps", lambda d: [
        gpu_smoke.SmokeStep("first", lambda: "1 GiB free"),
        gpu_smoke.SmokeStep("second", lambda: fails(DeviceError("cuda:0: cuGraphLaunch: CUDA_ERROR_UNKNOWN"))),
        gpu_smoke.SmokeStep("third", lambda: fails(Unsupported("no float64")))])
    assert gpu_smoke.smoke([ListedDevice("cuda:0", "gpu", "one")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("cuda:0: one (gpu)") and lines[1].endswith("first: 1 GiB free")
    assert "FAILED" in lines[2] and lines[2].endswith("second: DeviceError: cuda:0: cuGraphLaunch: CUDA_ERROR_UNKNOWN")
    assert "lacks" in lines[3] and lines[3].endswith("third: no float64")


@pytest.mark.slow
@pytest.mark.parametrize("backend", one_in_each_run("vulkan", "cuda", "rocm", "metal", "opencl", "webgpu"))
def test_smoke(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    d = device(backend)
    assert gpu.main(["--smoke", "--devices", d.id]) == 0
    output = capsys.readouterr().out
    assert output.count("\n") == 1 + len(gpu_smoke.steps(ListedDevice(d.id, d.info.kind, d.info.name)))


def test_predictions_say_that_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_predictions, "KERNELS", {
        k: v for k, v in gpu_predictions.KERNELS.items() if k.startswith("gelu")})
    monkeypatch.setattr(gpu_predictions, "SIZES", {})
    assert gpu.main(["--predict", "--quick", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "predictions.md").read_text()
    assert "**Predictions, not measurements**" in text
    for expected in ("| gelu 16384x4096 | H200 | ", "| digits_mlp, train, batch 32, float32 | A100 | "):
        assert text.count(expected) == 1
    [kernels, steps] = json.loads((tmp_path / "predictions.json").read_text())["sections"]
    assert all(0.88 < r["share"] <= 1 for r in kernels["results"])
    assert all(r["launch_count"] <= 60 for r in steps["results"])


def test_measured_devices_are_predicted() -> None:
    """Beside a measurement stands a prediction where the device has figures."""
    assert gpu_predictions.predicted_seconds({}, ListedDevice("vulkan:0", "cpu", "llvmpipe")) is None


def test_parity_is_for_gpus_and_names_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_parity.cases(ListedDevice("vulkan:0", "cpu"), SMALL) == []
    d = ListedDevice("dummy:0", "gpu")
    assert [c.name for c in gpu_parity.cases(d, SMALL)] == [*gpu_parity.TESTS]
    monkeypatch.setitem(gpu_parity.TESTS, "every op", "tests/terminal/test_progress.py")
    passed = gpu_parity.run(ListedDevice("bar:0", "gpu"), "every op", timing.QUICK)
    assert int(passed.rate.split()[0]) > 0 and passed.rate.endswith(" passed")
    output = "F.\nE   AssertionError: worst 3\nFAILED tests/x.py::test_op[cuda-add]\n1 failed in 2s\n"
    monkeypatch.setattr(gpu_parity.subprocess, "run",
                        lambda command, **how: CompletedProcess(command, 1, output, ""))
    with pytest.raises(RuntimeError, match=r"every op: E   Assert.*worst 3; FAILED .*cuda-add"):
        gpu_parity.run(d, "every op", timing.QUICK)


@pytest.mark.parametrize(("options", "said"), [
    (["--only", "matmull"], "no kind of rows matmull; there are parity, kernels, matmul, rows"),
    (["--devices", "cuda:99"], "cuda:99: not here; `ztorch devices` lists what is"),
])
def test_options_are_checked(options: list[str], said: str,
                             capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main(options)
    assert said in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "kind"), among_devices([*gpu.KINDS]))
def test_every_row_is_right(backend: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = device(backend).id
    monkeypatch.setattr(timing, "sleep", lambda seconds: None)  # only results count here
    assert gpu.main(["--quick", "--devices", at, "--only", kind, "--out", str(tmp_path)]) == 0


def test_a_race_without_avx512_restarts_with_it_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *how: begun.append(how))
    monkeypatch.setattr(processor, "features", lambda: frozenset({"avx2", "fma", "avx512f", "amx_tile"}))
    assert not level.limited("benchmarks.cpu", "", []) and begun == []
    level.limited("benchmarks.cpu", "avx2", ["--quick"])
    [(_, command, environment)] = begun
    assert command[1:] == ["-m", "benchmarks.cpu", "--quick"] and environment["ATEN_CPU_CAPABILITY"] == "avx2"
    for name, value in level.AVX2.items():
        monkeypatch.setenv(name, value)
    assert level.limited("benchmarks.cpu", "avx2", ["--quick"]) and len(begun) == 1
    assert processor.features() == {"avx2", "fma"}


def test_where_stream_k_gains() -> None:
    """For a product in parts, and for one whose last round leaves units idle."""
    for shape, share in (((128, 4096, 4096), 0.96), ((2560, 2560, 2560), 0.9)):
        gaining = stream_k.compare(*shape)
        assert gaining.chosen and gaining.stream_seconds < share * gaining.seconds
    small, parts = stream_k.compare(1024, 1024, 1024), stream_k.compare(512, 768, 3072)
    assert not small.chosen and small.stream_seconds > small.seconds
    assert not parts.chosen and not parts.stream_schedule
