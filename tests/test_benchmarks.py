"""The benchmark of devices: its peers compute what our models do, and one failure ends no run."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gpu, gpu_peers, timing
from benchmarks.gpu_cases import GPU, SMALL, SOFTWARE, Case, Measured, Sizes
from benchmarks.timing import Effort
from tests.cases.available import device
from tests.cases.covering import among_devices
from ztorch.errors import DeviceError
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
    """One device has no memory, the other's result is wrong; what comes after is measured."""
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


@pytest.mark.parametrize(("options", "said"), [
    (["--only", "matmull"], "no kind of rows matmull; there are matmul, rows"),
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
