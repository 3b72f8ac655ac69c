"""Convolutions by cuDNN on a pretended CUDA device: the calls, their place in graphs, and what files hold."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.pretended_cuda import close, install
from tests.machines.fake_cuda import FakeCuda
from tests.machines.fake_cudnn import (
    FILTER_GRADIENT,
    FORWARD,
    IMAGE_GRADIENT,
    FakeCudnn,
    filter_gradient_of,
    forward_of,
)
from tests.tune.small_models import L
from ztorch.abi import LIBRARY_CALL
from ztorch.backends import cublaslt, cudnn
from ztorch.compile import pipeline, tuned_files
from ztorch.compile.explained import scheduled
from ztorch.compile.targeting import target_for
from ztorch.compile.tuned_files import TunedKernel, machine_of
from ztorch.dtypes import f32
from ztorch.errors import DeviceError
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.lower import nests
from ztorch.lower.rewrites import library_convolutions
from ztorch.runtime.devices import library_versions, resolve
from ztorch.tune import clocks
from ztorch.tune.device_benchmark import device_seconds
from ztorch.tune.tuner import kernel_works

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
BATCH = 3
EXACT, WINOGRAD = 3, 4  # the engine without a numerical note, and one that transforms tiles


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCuda]:
    monkeypatch.setattr(tuned_files, "folder", lambda: tmp_path / "tuned")
    monkeypatch.setattr(cublaslt, "_paths", lambda: iter(()))
    monkeypatch.setattr(library_convolutions, "LIBRARY_WORK", 1)
    cublaslt.cublaslt.cache_clear()
    made = install(monkeypatch)
    yield made
    close(made)
    for opened in (cudnn.cudnn, cublaslt.cublaslt):
        opened.cache_clear()


@pytest.fixture
def library(driver: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCudnn:
    return FakeCudnn(tmp_path, driver, monkeypatch)


def network(**options: Any) -> zt.Sequential:
    model = zt.Sequential([L.Input((7, 6, 8)), L.Conv2D(16, 3, use_bias=False, **options)])
    model.build()
    r = np.random.default_rng(1)
    model.set_weights([r.normal(size=w.shape).astype(np.float32) for w in model.get_weights()])
    return model


def images(shape: tuple[int, ...] = (7, 6, 8)) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(BATCH, *shape)).astype(np.float32)


def measured(functions: Any, version: str = "") -> int:
    """Writes that cuDNN was faster for all convolutions that it computes; returns their number."""
    target = target_for(resolve("cuda:0")).with_libraries(library_versions("cuda"))
    works = [w for w in kernel_works(dict(functions), target)
             if nests.by_library("cudnn", w.kernel.region, w.kernel.limits)]
    label = f"cudnn {version or dict(library_versions('cuda'))['cudnn']}"
    tuned_files.write([TunedKernel(w.work, w.kernel.title, machine_of(target), 0, zt.__version__, "cudnn",
                                   repr(w.kernel.proposal()), 1e-6, 2e-6, label) for w in works])
    return len(works)


def measured_by_cudnn(step: Any, *where: Any) -> float:
    return device_seconds(step, *where) if step.schedule.kind == "cudnn" else 1.0


def convolved(x: np.ndarray, w: np.ndarray, *how: Any) -> np.ndarray:
    """Sums in float64, of our layout."""
    y = forward_of(np.moveaxis(x, -1, 1), np.transpose(w, (3, 2, 0, 1)).astype(np.float64), *how)
    return np.moveaxis(y, 1, -1)


@pytest.mark.parametrize("reads_any", [False, True], ids=["copied filters", "filters in place"])
def test_convolutions_are_calls_in_the_graph(library: FakeCudnn, tmp_path: Path, reads_any: bool) -> None:
    library.read_any_filters(reads_any)
    model, x = network(padding="same"), images()
    ours = model.compile("cuda", batch_size=BATCH)
    expected = ours.predict(x)
    functions = model.trace(batch_size=BATCH).functions
    assert not library.convolutions and measured(functions) == 1
    program = model.compile("cuda", batch_size=BATCH)
    assert program.executable.calls_libraries
    explained = scheduled("m", functions["predict"], "cuda:0")
    assert sum("on cuda:sm_90a: cudnn" in line for line in explained) == 1
    assert sum("computed by cudnn 9.28.1" in line for line in explained) == 1
    values = program.predict(x)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(values, convolved(x, *model.get_weights(), (1, 1), (1, 1), (1, 1), (1, 1)),
                               rtol=1e-4, atol=1e-5)
    assert {*library.convolutions} == {(FORWARD, EXACT)} and bool(library.copies) != reads_any
    np.testing.assert_array_equal(program.predict(x), values)
    program.save(tmp_path / "m.zt")
    assert LIBRARY_CALL not in (tmp_path / "m.zt").read_bytes()
    np.testing.assert_array_equal(zt.load(tmp_path / "m.zt").predict(x), expected)


def test_exact_convolutions_are_not_transformed(library: FakeCudnn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only an engine with Winograd's transforms works, they have our kernel, also after they were tuned."""
    library.fail(EXACT)
    model, x = network(), images()
    assert measured(model.trace(batch_size=BATCH).functions) == 1
    transformed = model.compile("cuda", batch_size=BATCH).predict(x)
    assert {*library.convolutions} == {(FORWARD, WINOGRAD)}
    monkeypatch.setattr(clocks, "device_seconds", measured_by_cudnn)
    for _ in range(2):
        program = model.compile("cuda", batch_size=BATCH, matmul_precision="exact")
        np.testing.assert_allclose(program.predict(x), transformed, rtol=1e-4, atol=1e-4)
        assert not program.executable.calls_libraries
        report = model.tune("cuda", batch_size=BATCH, matmul_precision="exact")
        assert report.products == () and all("no transforms" in k.machine for k in report.kernels)


def test_convolutions_of_a_program_share_a_workspace(driver: FakeCuda, library: FakeCudnn) -> None:
    """Those that may run at the same time have one each; further buffers need none."""
    layers = [L.Conv2D(8, side, padding="same", use_bias=False) for side in (3, 3, 2, 3)]
    x = L.Input((7, 6, 8))
    y = layers[1](layers[0](x))
    model = zt.Model(x, L.Concatenate()([layers[2](y), layers[3](y)]))
    model.build()
    assert measured(model.trace(batch_size=BATCH).functions) == 2  # windows of two sizes
    program = model.compile("cuda", batch_size=BATCH)
    first = program.predict(images())
    loaded = program.executable.module.handle
    sizes = {loaded.functions[k].workspace for k in loaded.calls}
    assert len(loaded.calls) == 2 == len(sizes) and len(loaded.workspaces) == 2
    another = program.executable.bind("predict")  # on buffers of its own
    another.inputs["x"][...] = images()
    another()
    np.testing.assert_array_equal(another.outputs["y"], first)
    used = driver.used
    program.executable.opened_device.unload(program.executable.module)
    assert used - driver.used == 2 * max(sizes)


CASES: dict[str, Any] = {  # of a layer, and strides, dilations and borders
    "strides": ({"strides": 2, "padding": "same"}, (2, 2), (1, 1), (1, 0), (1, 1)),
    "dilation": ({"dilation_rate": 2}, (1, 1), (2, 2), (0, 0), (0, 0))}


@pytest.mark.parametrize("name", CASES)
def test_windows_of_any_kind(library: FakeCudnn, name: str) -> None:
    options, *how = CASES[name]
    model, x = network(**options), images()
    assert measured(model.trace(batch_size=BATCH).functions) == 1
    program = model.compile("cuda", batch_size=BATCH)
    np.testing.assert_allclose(program.predict(x), convolved(x, *model.get_weights(), *how), rtol=1e-4, atol=1e-5)
    assert program.executable.calls_libraries


def trained(measures: bool) -> tuple[list[np.ndarray], int]:
    """The weights after a step, and the convolutions that were taken."""
    model = zt.Sequential([L.Input((4, 5, 8)), *(L.Conv2D(8, 3, padding="same", use_bias=False) for _ in range(2))])
    model.build()
    r = np.random.default_rng(2)
    model.set_weights([r.normal(size=w.shape).astype(np.float32) * 0.1 for w in model.get_weights()])
    y = r.normal(size=(BATCH, 4, 5, 8)).astype(np.float32)
    options: dict[str, Any] = {"batch_size": BATCH, "optimizer": "sgd", "loss": "mse"}
    taken = measured(model.trace(**options).functions) if measures else 0
    model.compile("cuda", **options).fit(images((4, 5, 8)), y, epochs=1, verbose=0, shuffle=False)
    return model.get_weights(), taken


def test_gradients_of_images(library: FakeCudnn) -> None:
    """A convolution with a mirrored window is the operation of that name, with filters as they are."""
    (ours, _), (theirs, taken) = trained(False), trained(True)
    assert taken >= 2 and {operation for operation, _ in library.convolutions} == {FORWARD, IMAGE_GRADIENT}
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6)


SLOPES: dict[str, Any] = {  # of filters: arguments of the convolution, strides, dilations, borders; rows may be left over
    "plain": ({}, (1, 1), (1, 1), (0, 0), (0, 0)),
    "borders": ({"padding": "same"}, (1, 1), (1, 1), (1, 1), (1, 1)),
    "strides": ({"strides": 2}, (2, 2), (1, 1), (0, 0), (0, 0)),
    "dilation": ({"dilation_rate": 2}, (1, 1), (2, 2), (0, 0), (0, 0))}


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("reads_any", [False, True], ids=["copied filters", "filters in place"])
def test_gradients_of_filters(library: FakeCudnn, name: str, reads_any: bool) -> None:
    """A product of transposed windows with slopes is the operation of that name."""
    library.read_any_filters(reads_any)
    options, *how = SLOPES[name]
    x, w = leaf("input", "x", (BATCH, 8, 7, 8), f32), leaf("input", "w", (3, 3, 8, 16), f32)
    y = OPS.conv2d(x, w, **options)
    slope = leaf("input", "slope", y.shape, f32)
    graph = Graph({"y": gradients(OPS.sum(y * slope), [w])[0]})
    place = resolve("cuda:0")
    target = target_for(place).with_libraries(library_versions("cuda"))
    kernels = [s.region_kernel for s in pipeline.compile_functions({"predict": graph}, target, "m").plans["predict"].steps]
    [key] = [k.key for k in kernels if k and nests.by_library("cudnn", k.region, k.limits)]
    program = pipeline.compile_functions({"predict": graph}, target, "m", schedules={key: "cudnn"})
    call = pipeline.start(program.spec, program.code, program.params, None, place.ordinal).bind("predict")
    r = np.random.default_rng(0)
    given = {port: r.normal(size=array.shape).astype(np.float32) for port, array in call.inputs.items()}
    for port, array in call.inputs.items():
        array[...] = given[port]
    call()
    assert {*library.convolutions} == {(FILTER_GRADIENT, EXACT)} and bool(library.copies) != reads_any
    expected = filter_gradient_of(np.moveaxis(given["x"], -1, 1).astype(np.float64), np.moveaxis(given["slope"], -1, 1),
                                  (16, 8, 3, 3), *how)
    np.testing.assert_allclose(np.transpose(call.outputs["y"], (3, 2, 0, 1)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("precision", "another"), [("float32", "exact"), ("exact", "float32")])
def test_the_tuner_measures_it(library: FakeCudnn, monkeypatch: pytest.MonkeyPatch, precision: str, another: str) -> None:
    monkeypatch.setattr(clocks, "device_seconds", lambda step, *_: 0.5 if step.schedule.kind == "cudnn" else 1.0)
    model = network()
    report = model.tune("cuda", batch_size=BATCH, matmul_precision=precision)
    assert [k.library for k in report.products] == ["cudnn 9.28.1"]
    assert "1 of 1 products are faster by another library" in str(report)
    assert model.compile("cuda", batch_size=BATCH, matmul_precision=precision).executable.calls_libraries
    assert not model.compile("cuda", batch_size=BATCH, matmul_precision=another).executable.calls_libraries


def test_sizes_that_it_refuses_keep_our_kernel(library: FakeCudnn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "device_seconds", measured_by_cudnn)
    library.refuse(True)
    model = network()
    assert model.tune("cuda", batch_size=BATCH).products == ()
    assert not model.compile("cuda", batch_size=BATCH).executable.calls_libraries


def test_another_version_or_none(library: FakeCudnn, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    measured(model.trace(batch_size=BATCH).functions, version="9.1.0")
    assert not model.compile("cuda", batch_size=BATCH).executable.calls_libraries
    measured(model.trace(batch_size=BATCH).functions)
    monkeypatch.setattr(cudnn, "_paths", lambda: iter(()))
    cudnn.cudnn.cache_clear()
    assert not model.compile("cuda", batch_size=BATCH).executable.calls_libraries


@pytest.mark.parametrize("call", ["cuStreamBeginCapture", "cuMemAlloc"])
def test_a_call_that_fails(call: str, driver: FakeCuda, library: FakeCudnn) -> None:
    """It is an error with its name and code, and afterwards the device works."""
    model, x = network(), images()
    expected = model.compile("cuda", batch_size=BATCH).predict(x)
    measured(model.trace(batch_size=BATCH).functions)
    driver.fail[call] = "NOT_PERMITTED"
    with pytest.raises(DeviceError, match=f"cuda:0: {call}.*: CUDA_ERROR_NOT_PERMITTED"):
        model.compile("cuda", batch_size=BATCH).predict(x)
    driver.fail.clear()
    driver.forget()
    program = model.compile("cuda", batch_size=BATCH)
    np.testing.assert_allclose(program.predict(x), expected, rtol=1e-4, atol=1e-4)
    assert program.executable.calls_libraries


@pytest.mark.parametrize("ending", ["", "STREAM_CAPTURE_INVALIDATED"])
def test_a_convolution_that_fails_while_it_is_captured(ending: str, driver: FakeCuda, library: FakeCudnn,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own error is raised, not that of the capture, and no graph is left."""
    def call(opened: cudnn.Cudnn, name: str, *args: Any) -> None:
        if name == "BackendExecute":
            raise DeviceError("cudnnBackendExecute: status 5000")
        done(opened, name, *args)

    model, done = network(), cudnn.Cudnn.call
    measured(model.trace(batch_size=BATCH).functions)
    monkeypatch.setattr(cudnn.Cudnn, "call", call)
    if ending:
        driver.fail["cuStreamEndCapture"] = ending
    with pytest.raises(DeviceError, match="cudnnBackendExecute: status 5000"):
        model.compile("cuda", batch_size=BATCH).predict(images())
    assert not driver.capturing and not any(isinstance(made, dict) for made in driver.handles.values())
