"""Products by cuBLASLt on a pretended CUDA device: the calls, their place in graphs, and what files hold."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from benchmarks import gpu_smoke
from tests.cases.pretended_cuda import close, install
from tests.machines.fake_cublaslt import FakeCublaslt
from tests.machines.fake_cuda import FakeCuda
from tests.tune.small_models import L
from ztorch.abi import LIBRARY_CALL
from ztorch.backends import cublaslt, registry
from ztorch.backends.cublaslt import LoadedProduct, ProductCall
from ztorch.compile import tuned_files
from ztorch.compile.explained import scheduled
from ztorch.compile.targeting import target_for
from ztorch.compile.tuned_files import TunedKernel, machine_of
from ztorch.dtypes import f32
from ztorch.errors import DeviceError
from ztorch.lower import nests
from ztorch.runtime.devices import devices, library_versions, resolve
from ztorch.tune import clocks
from ztorch.tune.device_benchmark import device_seconds
from ztorch.tune.tuner import kernel_works

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
ROWS = 48


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCuda]:
    monkeypatch.setattr(tuned_files, "folder", lambda: tmp_path / "tuned")
    made = install(monkeypatch)
    yield made
    close(made)
    cublaslt.cublaslt.cache_clear()


@pytest.fixture
def library(driver: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCublaslt:
    return FakeCublaslt(tmp_path, driver, monkeypatch)


def network() -> zt.Sequential:
    return zt.Sequential([L.Input((40,)), L.Dense(72, use_bias=False), L.Dense(56, use_bias=False)])


def measured(model: Any, version: str = "", **options: Any) -> int:
    """Writes that cuBLASLt was faster for all products that it computes; returns their number."""
    target = target_for(resolve("cuda:0")).with_libraries(library_versions("cuda"))
    works = [w for w in kernel_works(dict(model.trace(batch_size=ROWS, **options).functions), target)
             if nests.by_library("cublaslt", w.kernel.region, w.kernel.limits)]
    label = f"cublaslt {version or dict(library_versions('cuda'))['cublaslt']}"
    tuned_files.write([TunedKernel(w.work, w.kernel.title, machine_of(target), 0, zt.__version__, "cublaslt",
                                   repr(w.kernel.proposal()), 1e-6, 2e-6, label) for w in works])
    return len(works)


def test_products_are_calls_in_the_graph(library: FakeCublaslt, tmp_path: Path) -> None:
    model, r = network(), np.random.default_rng(0)
    x = r.normal(size=(ROWS, 40)).astype(np.float32)
    ours = model.compile("cuda", batch_size=ROWS)
    expected = ours.predict(x)
    assert not library.products and not ours.executable.calls_libraries
    assert measured(model) == 2
    program = model.compile("cuda", batch_size=ROWS)
    assert program.executable.calls_libraries
    explained = scheduled("m", model.trace(batch_size=ROWS).functions["predict"], "cuda:0")
    assert sum("on cuda:sm_90a: cublaslt" in line for line in explained) == 2
    assert sum("computed by cublaslt 13.10.0" in line for line in explained) == 2
    np.testing.assert_allclose(program.predict(x), expected, rtol=1e-5, atol=1e-5)
    w, v = (a.astype(np.float64) for a in model.get_weights())
    np.testing.assert_allclose(program.predict(x), x.astype(np.float64) @ w @ v, rtol=1e-4, atol=1e-4)
    assert {(m, n, k) for m, n, k, *_ in library.products} == {(72, ROWS, 40), (56, ROWS, 72)}
    program.save(tmp_path / "m.zt")
    assert LIBRARY_CALL not in (tmp_path / "m.zt").read_bytes()
    np.testing.assert_array_equal(zt.load(tmp_path / "m.zt").predict(x), expected)


def test_training(library: FakeCublaslt) -> None:
    """Operands that are transposed, and products between kernels that wait for them."""
    r = np.random.default_rng(1)
    x, y = (r.normal(size=(ROWS, n)).astype(np.float32) for n in (40, 56))
    weights = []
    for count in (0, None):
        model = network()
        model.build()
        model.set_weights([np.random.default_rng(2).normal(size=w.shape) * 0.1 for w in model.get_weights()])
        if count is None:
            assert measured(model, optimizer="sgd", loss="mse") == 3  # gradients of weights are kernels with updates
        program = model.compile("cuda", optimizer="sgd", loss="mse", batch_size=ROWS)
        assert program.executable.calls_libraries == (count is None)
        program.fit(x, y, epochs=1, verbose=0, shuffle=False)
        weights.append(model.get_weights())
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_products_of_halves(library: FakeCublaslt, dtype: str) -> None:
    model, r = network(), np.random.default_rng(0)
    x = r.normal(size=(ROWS, 40)).astype(np.float32)
    expected = model.compile("cuda", batch_size=ROWS, dtype=dtype).predict(x)
    assert measured(model, dtype=dtype)
    program = model.compile("cuda", batch_size=ROWS, dtype=dtype)
    values = program.predict(x)
    np.testing.assert_allclose(values, expected, rtol=1e-2, atol=1e-2)  # a sum may round the other way
    assert {d.name for *_, d, _ in library.products} == {{"float16": "f16", "bfloat16": "bf16"}[dtype[6:]]}


@pytest.mark.parametrize("seconds, taken", [(0.5, 2)], ids=str)
def test_the_tuner_measures_it(library: FakeCublaslt, monkeypatch: pytest.MonkeyPatch, seconds: float,
                               taken: int) -> None:
    monkeypatch.setattr(clocks, "device_seconds", lambda step, *_: (
        seconds if step.schedule.kind == "cublaslt" else 1.0))
    model = network()
    report = model.tune("cuda", batch_size=ROWS)
    assert [k.library for k in report.products] == [f"cublaslt {dict(library_versions('cuda'))['cublaslt']}"] * 2
    assert f"{taken} of 2 products are faster by another library" in str(report)
    assert model.compile("cuda", batch_size=ROWS).executable.calls_libraries == bool(taken)


def test_sizes_that_it_refuses_keep_our_kernel(library: FakeCublaslt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "device_seconds", lambda step, *where: (
        device_seconds(step, *where) if step.schedule.kind == "cublaslt" else 1.0))
    library.refuse(True)
    model = network()
    assert model.tune("cuda", batch_size=ROWS).products == ()
    assert not model.compile("cuda", batch_size=ROWS).executable.calls_libraries


def test_a_convolution_of_one_pixel_is_a_product(library: FakeCublaslt) -> None:
    """Its result is stored in the shape of images."""
    model, r = zt.Sequential([L.Input((6, 5, 40)), L.Conv2D(64, 1, use_bias=False)]), np.random.default_rng(0)
    x = r.normal(size=(ROWS, 6, 5, 40)).astype(np.float32)
    expected = model.compile("cuda", batch_size=ROWS).predict(x)
    assert measured(model) == 1
    np.testing.assert_allclose(model.compile("cuda", batch_size=ROWS).predict(x), expected, rtol=1e-5, atol=1e-5)
    assert {(m, n, k) for m, n, k, *_ in library.products} == {(64, ROWS * 30, 40)}


def test_smoke_of_a_device_multiplies_by_it(library: FakeCublaslt, monkeypatch: pytest.MonkeyPatch,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    [d] = [d for d in devices() if d.id == "cuda:0"]
    monkeypatch.setattr(gpu_smoke, "GPU_SIDE", 64)
    some = [step for step in gpu_smoke.steps(d) if "by cublaslt" in step.name]
    monkeypatch.setattr(gpu_smoke, "steps", lambda d: some)
    assert gpu_smoke.smoke([d]) == 0
    output = capsys.readouterr().out
    assert output.count("ok") == 3 == output.count("in a graph: error")
    assert [(*sizes, d.name) for *sizes, d, _ in library.products[::2]] == [  # alone, and with copies
        (64, 64, 64, name) for name in ("f32", "f16", "bf16")]


@pytest.mark.parametrize("call", ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphAddChildGraphNode"])
def test_a_call_that_fails(call: str, driver: FakeCuda, library: FakeCublaslt) -> None:
    """It is an error with its name and code, and afterwards the device works."""
    model, x = network(), np.ones((ROWS, 40), np.float32)
    expected = model.compile("cuda", batch_size=ROWS).predict(x)
    measured(model)
    driver.fail[call] = "NOT_PERMITTED"
    with pytest.raises(DeviceError, match=f"cuda:0: {call}: CUDA_ERROR_NOT_PERMITTED"):
        model.compile("cuda", batch_size=ROWS).predict(x)
    driver.fail.clear()
    driver.forget()
    program = model.compile("cuda", batch_size=ROWS)
    np.testing.assert_allclose(program.predict(x), expected, rtol=1e-5, atol=1e-5)
    assert program.executable.calls_libraries


def test_another_version_or_none(library: FakeCublaslt, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    measured(model, version="12.0.0")
    assert not model.compile("cuda", batch_size=ROWS).executable.calls_libraries
    measured(model)
    monkeypatch.setattr(cublaslt, "_paths", lambda: iter(()))
    cublaslt.cublaslt.cache_clear()
    assert not model.compile("cuda", batch_size=ROWS).executable.calls_libraries


@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("b", [False, True])
def test_orders_distances_and_starts(driver: FakeCuda, library: FakeCublaslt, a: bool, b: bool) -> None:
    """Operands of either order in the middle of buffers, whose lines are apart."""
    m, n, k, pitches, starts = 3, 5, 4, (7, 6, 8), (16, 8, 32)
    device: Any = registry.open_device("cuda")
    call = ProductCall(m, n, k, starts, pitches, (a, b), ("f32", "f32"), 23, (0, 1, 2))
    r = np.random.default_rng(0)
    arrays = [r.normal(size=80).astype(np.float32) for _ in range(3)]
    buffers = [device.alloc(x.nbytes) for x in arrays]
    for x, buffer in zip(arrays, buffers, strict=True):
        device.write(buffer, x)
    found = cublaslt.cublaslt()
    assert found is not None
    with device._current():
        handle = found.handle()
        product = LoadedProduct(found, handle, call)
        product.enqueue(tuple(int(x.handle) for x in buffers), int(device._queue))
        device.synchronize()
        product.close()
        found.call("Destroy", handle)
    result = np.empty(80, np.float32)
    device.read(buffers[0], result)

    def lying(x: np.ndarray, which: int, rows: int, columns: int, transposed: bool) -> np.ndarray:
        lines, length = (columns, rows) if transposed else (rows, columns)
        part = x[starts[which] // 4 + np.arange(lines)[:, None] * pitches[which] + np.arange(length)]
        return part.T if transposed else part
    left, right = lying(arrays[1], 1, m, k, a), lying(arrays[2], 2, k, n, b)
    np.testing.assert_allclose(lying(result, 0, m, n, False), left.astype(float) @ right, rtol=1e-5)
    assert library.products == [(n, m, k, f32, 68)] and (result != arrays[0]).sum() == m * n


def test_all_objects_are_given_back(driver: FakeCuda, library: FakeCublaslt) -> None:
    device: Any = registry.open_device("cuda")
    call = ProductCall(4, 8, 16, (0, 64, 128), (8, 16, 8), (False, False), ("f32", "f32"), 23, (0, 1, 2))
    with device._current():
        found = cublaslt.cublaslt()
        assert found is not None
        handle = found.handle()
        LoadedProduct(found, handle, call).close()
        assert library.live == 1  # the handle
        library.refuse(True)
        with pytest.raises(DeviceError, match="cublasLtMatmulAlgoGetHeuristic: status 15"):
            LoadedProduct(found, handle, call)
        for wrong in ({"pitches": (8, 4, 8)}, {"dtypes": ("f16", "f32")}, {"mantissa_bits": 20}):
            with pytest.raises(DeviceError):
                LoadedProduct(found, handle, call._replace(**wrong))
        library.refuse(False)
        found.call("Destroy", handle)
    assert library.live == 0
