"""Rows of main kernels on a pretended CUDA device: as PTX, and as CUDA C++ by NVRTC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu_kernels, gpu_peers
from benchmarks.gpu_predictions import MainKernel
from benchmarks.timing import QUICK
from tests.cases.pretended_cuda import close, install
from tests.machines.fake_cuda import FakeCuda
from ztorch.codegen import nvrtc
from ztorch.dtypes import f32
from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.runtime.devices import devices


def kernel() -> MainKernel:
    return MainKernel(lambda: Graph({"y": OPS.gelu(leaf("input", "x", (70, 33), f32))}), 0, 1e3, "f32", 0.5)


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Measures the row of the kernel."""
    fake: FakeCuda = install(monkeypatch)
    monkeypatch.setattr(gpu_peers, "torch_on", lambda d: None)
    monkeypatch.setattr(gpu_kernels, "REPEATS", 2)
    [d] = [d for d in devices() if d.id == "cuda:0"]
    yield lambda: gpu_kernels._run(d, "gelu", kernel(), QUICK)
    close(fake)


def test_both_routes_are_timed(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs NVRTC: pip install 'ztorch[cuda]'")
    compared: list[tuple[np.ndarray, np.ndarray]] = []

    def worst(got: np.ndarray, want: np.ndarray) -> float:
        compared.append((got, want))
        return 0.0
    monkeypatch.setattr(gpu_kernels.peers, "worst", worst)
    result = row()
    assert [t.name for t in result.timings] == ["ztorch", "ztorch as CUDA C++"]
    [(got, want)] = compared
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert np.abs(want).max() > 1


def test_a_wrong_result_is_not_timed(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs NVRTC: pip install 'ztorch[cuda]'")
    monkeypatch.setattr(gpu_kernels.peers, "worst", lambda got, want: 0.1)
    with pytest.raises(SystemExit, match=r"gelu as CUDA C\+\+ on cuda:0: ztorch is wrong by"):
        row()


def test_without_nvrtc(row: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> Any:
        raise Unsupported("NVRTC is not installed")
    monkeypatch.setattr(nvrtc, "_nvrtc", missing)
    nvrtc._version.cache_clear()
    assert [t.name for t in row().timings] == ["ztorch"]
    assert "without CUDA C++: NVRTC is not installed" in capsys.readouterr().out
