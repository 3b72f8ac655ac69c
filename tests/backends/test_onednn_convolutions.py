"""Convolutions by oneDNN: a pretended one checks every call and computes; what is measured is used, and never in
files."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.backends.onednn_library import needs_compiler, pretended_onednn
from tests.tune.small_models import L
from ztorch.abi import CONNECT
from ztorch.backends import vendor_libraries
from ztorch.backends.vendor_libraries import versions
from ztorch.compile import tuned_files
from ztorch.compile.pipeline import compile_functions, simplify
from ztorch.compile.targeting import target_for
from ztorch.compile.tuned_files import TunedKernel, machine_of, usual_threads
from ztorch.compile.tuned_schedules import plan_work
from ztorch.compile.watch import Watch
from ztorch.dtypes import f32
from ztorch.errors import DeviceError
from ztorch.graph import passes
from ztorch.graph.op import leaf
from ztorch.ir.interpret import interpret
from ztorch.lower.plan_schedule import RULES, library_plan
from ztorch.lower.rewrites import library_convolutions
from ztorch.runtime.devices import resolve
from ztorch.runtime.executable import Executable
from ztorch.tune import plan_search, tuner
from ztorch.tune.clocks import ProcessorClock

pytestmark = needs_compiler
BATCH = 5
PLAN = library_plan(RULES, "onednn")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The library, the only one in the only folder in which libraries are searched."""
    monkeypatch.setattr(vendor_libraries, "_FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(vendor_libraries, "_openblas", lambda: iter(()))
    monkeypatch.setattr(tuned_files, "folder", lambda: tmp_path / "tuned")
    monkeypatch.setattr(library_convolutions, "LIBRARY_WORK", 1)
    cached = vendor_libraries.vendor_libraries
    cached.cache_clear()
    yield pretended_onednn(tmp_path)
    cached.cache_clear()


def compiled(functions: dict[str, Any], plan: Any = PLAN, **options: Any) -> Any:
    target = target_for(resolve("cpu")).with_libraries(versions())
    return compile_functions(functions, target, "m", plan=plan, **options)


def weighted(model: Any) -> Any:
    model.build()
    r = np.random.default_rng(1)
    model.set_weights([r.normal(size=w.shape).astype(np.float32) for w in model.get_weights()])
    return model


def convolved(x: np.ndarray, w: np.ndarray, bias: Any, strides: Any, dilations: Any, low: Any,
              high: Any) -> np.ndarray:
    """The sums of a convolution in float64, window by window."""
    x = np.pad(x.astype(np.float64), [(0, 0), *zip(low, high, strict=True), (0, 0)])
    spatial = [(n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(
        x.shape[1:-1], w.shape[:-2], dilations, strides, strict=True)]
    y = np.zeros((len(x), *spatial, w.shape[-1])) + bias
    for place in np.ndindex(w.shape[:-2]):
        window = (slice(None), *(slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, n, s in zip(
            place, dilations, spatial, strides, strict=True)))
        y += x[window] @ w[place].astype(np.float64)
    return y


CASES = {  # of a layer: its shape of images, its arguments, and strides, dilations and borders
    "borders": ((7, 6, 3), L.Conv2D(4, 3, padding="same", activation="relu"), (1, 1), (1, 1), (1, 1), (1, 1)),
    "uneven": ((8, 7, 3), L.Conv2D(4, (2, 3), strides=2, padding="same"), (2, 2), (1, 1), (0, 1), (0, 1)),
    "dilated": ((9, 8, 2), L.Conv2D(5, 3, dilation_rate=2, use_bias=False), (1, 1), (2, 2), (0, 0), (0, 0)),
    "line": ((11, 3), L.Conv1D(4, 3, strides=2), (2,), (1,), (0,), (0,)),
    "volume": ((4, 5, 4, 2), L.Conv3D(3, 2), (1, 1, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0))}


@pytest.mark.parametrize("name", CASES)
def test_calls_are_convolutions(path: Path, name: str) -> None:
    """For several workers, each with some images, also in calls of two sizes; with the same bits."""
    shape, layer, *how = CASES[name]
    model = weighted(zt.Sequential([L.Input(shape), layer]))
    functions = dict(model.trace(batch_size=BATCH).functions)
    [key] = [s.key for s in compiled(functions).plans["predict"].steps]
    x = np.random.default_rng(0).normal(size=(BATCH, *shape)).astype(np.float32)
    w, *bias = model.get_weights()
    expected = convolved(x, w, bias[0] if bias else 0, *how)
    if name == "borders":
        expected = np.maximum(expected, 0)
    for images, threads in ((5, 1), (2, 1), (2, 2), (1, 3)):
        program = compiled(functions, schedules={key: f"onednn_convolution images({images})"})
        executable = Executable(program.spec, program.code, program.params, threads)
        call = executable.bind("predict")
        call.workers = threads
        next(iter(call.inputs.values()))[...] = x
        call()
        values = next(iter(call.outputs.values()))
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)


def test_the_interpreter_convolves(path: Path) -> None:
    """The kernel means what it computes: calls of two sizes, a bias, and what is cut off."""
    shape, layer, *how = CASES["borders"]
    model = weighted(zt.Sequential([L.Input(shape), layer]))
    functions = dict(model.trace(batch_size=BATCH).functions)
    [key] = [s.key for s in compiled(functions).plans["predict"].steps]
    [step] = compiled(functions, schedules={key: "onednn_convolution images(2)"}).plans["predict"].steps
    x = np.random.default_rng(0).normal(size=(BATCH, *shape)).astype(np.float32)
    w, bias = model.get_weights()
    expected = np.maximum(convolved(x, w, bias, *how), 0)
    by_size = {a.size: np.ascontiguousarray(a).reshape(-1) for a in (x, w, bias)}
    arrays = {m.name: by_size.get(m.size, np.zeros(m.size, np.float32)) for m in step.kernel.memories}
    interpret(step.kernel, arrays)
    [y] = [a for a in arrays.values() if a.size == expected.size]
    np.testing.assert_allclose(y.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


def test_nan_is_not_cut_off(path: Path) -> None:
    model = weighted(zt.Sequential([L.Input((5, 5, 2)), L.Conv2D(3, 3, activation="relu")]))
    functions = dict(model.trace(batch_size=2).functions)
    program = compiled(functions)
    call = Executable(program.spec, program.code, program.params, 1).bind("predict")
    x = np.random.default_rng(0).normal(size=(2, 5, 5, 2)).astype(np.float32)
    x[0, 0, 0, 0] = np.nan
    next(iter(call.inputs.values()))[...] = x
    call()
    nan = np.isnan(next(iter(call.outputs.values())))
    assert nan[0, 0, 0].all() and nan.sum() == 3


def test_training(path: Path) -> None:
    """Gradients of images are convolutions, too: of slopes with mirrored filters."""
    model = zt.Sequential([L.Input((8, 8, 3)), L.Conv2D(4, 3, activation="relu"), L.Conv2D(5, 3), L.Flatten(),
                           L.Dense(2)])
    functions = {"train": model.trace(batch_size=4, optimizer="sgd", loss="mse").functions["train"]}
    r, states = np.random.default_rng(0), []
    x, y = r.normal(size=(4, 8, 8, 3)), r.normal(size=(4, 2))
    for plan in (RULES, PLAN):
        program = compiled(functions, plan)
        kinds = [s.schedule.kind for s in program.plans["train"].steps if s.schedule]
        assert (kinds.count("onednn_convolution") > 2) == (plan is PLAN)
        executable = Executable(program.spec, program.code, program.params, 1)
        call = executable.bind("train")
        for array, value in zip(call.inputs.values(), (x, y), strict=False):
            array[...] = value
        call()
        call()
        states.append(executable.states_snapshot())
    for name, value in states[0].items():
        np.testing.assert_allclose(states[1][name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_all_objects_are_given_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = weighted(zt.Sequential([L.Input((5, 5, 2)), L.Conv2D(3, 3)]))
    program = compiled(dict(model.trace(batch_size=2).functions))
    library = ctypes.CDLL(str(path))
    executable = Executable(program.spec, program.code, program.params, 2)
    assert library.pretended_live() > 0 and library.omp_get_max_threads() == 7
    del executable
    gc.collect()
    assert library.pretended_live() == 0


def test_a_convolution_that_it_refuses(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is an error of the call's name, and nothing is left; the tuner does not take the library."""
    other = path.parent / "other"
    other.mkdir()
    refusing = pretended_onednn(other, refuses=1)
    monkeypatch.setattr(vendor_libraries, "_FOLDERS", (str(other),))
    model = weighted(zt.Sequential([L.Input((5, 5, 2)), L.Conv2D(3, 3)]))
    program = compiled(dict(model.trace(batch_size=2).functions))
    with pytest.raises(DeviceError, match="dnnl_convolution_forward_primitive_desc_create: status 3"):
        Executable(program.spec, program.code, program.params, 1)
    assert ctypes.CDLL(str(refusing)).pretended_live() == 0
    assert not [k for k in model.tune("cpu", batch_size=2, threads=1, seconds=30).plans if k.library]


def test_an_older_version_multiplies_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor_libraries, "_FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(library_convolutions, "LIBRARY_WORK", 1)
    vendor_libraries.vendor_libraries.cache_clear()
    pretended_onednn(tmp_path, major=2)
    model = zt.Sequential([L.Input((5, 5, 2)), L.Conv2D(3, 3)])
    program = compiled(dict(model.trace(batch_size=2).functions))
    assert "onednn" in dict(versions())
    assert all(s.schedule.kind != "onednn_convolution" for s in program.plans["predict"].steps if s.schedule)
    vendor_libraries.vendor_libraries.cache_clear()


class PretendedClock(ProcessorClock):
    """A clock by which calls for two images are the fastest."""

    def seconds(self, kernel: Any, schedules: Any, rounds: int) -> list[float]:
        return [0.5 if getattr(s, "images", 0) == 2 else 1.0 for s in schedules]


@pytest.mark.parametrize("faster", [True, False])
def test_what_is_measured_is_used_and_not_saved(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                faster: bool) -> None:
    monkeypatch.setattr(tuner, "clock_for", lambda target, threads, ordinal: PretendedClock(target, threads))
    monkeypatch.setattr(plan_search, "other_plans", tuple)
    monkeypatch.setattr(plan_search, "_race", lambda *_: (1.0, 0.5 if faster else 1.0))
    model = weighted(zt.Sequential([L.Input((6, 6, 3)), L.Conv2D(4, 3, activation="relu")]))
    x = np.random.default_rng(0).normal(size=(BATCH, 6, 6, 3)).astype(np.float32)
    w, bias = model.get_weights()
    expected = np.maximum(convolved(x, w, bias, (1, 1), (1, 1), (0, 0), (0, 0)), 0)
    ours = model.compile("cpu", batch_size=BATCH)
    report = model.tune("cpu", batch_size=BATCH)
    assert [k.library for k in report.plans if k.library] == ["onednn 3.0.1 isa 0xe7"]
    program = model.compile("cpu", batch_size=BATCH)
    assert program.executable.calls_libraries == faster
    np.testing.assert_allclose(program.predict(x), expected, rtol=1e-4, atol=1e-5)
    explained = str(model.explain(batch_size=BATCH))
    assert ("computed by onednn 3.0.1 isa 0xe7" in explained) == faster
    assert ("images(2)" in explained) == faster
    program.save(tmp_path / "m.zt")
    assert CONNECT.encode() not in (tmp_path / "m.zt").read_bytes()
    loaded = zt.load(tmp_path / "m.zt")
    assert not loaded.executable.calls_libraries
    np.testing.assert_array_equal(loaded.predict(x), ours.predict(x))
    assert model.compile("cpu", batch_size=BATCH).executable.calls_libraries == faster  # from the cache


def test_without_the_library_our_kernels_are_taken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = weighted(zt.Sequential([L.Input((6, 6, 3)), L.Conv2D(4, 3)]))
    graph = simplify(dict(model.trace(batch_size=BATCH).functions), passes.DEFAULT, Watch())["predict"]
    target = target_for(resolve("cpu")).with_libraries(versions())
    [label] = [f"{name} {version}" for name, version in versions()]
    tuned_files.write([TunedKernel(plan_work(graph), "plan", machine_of(target), usual_threads(None),
                                   zt.__version__, repr(PLAN), repr(RULES), 1e-6, 2e-6, label)])
    assert model.compile("cpu", batch_size=BATCH).executable.calls_libraries
    monkeypatch.setattr(vendor_libraries, "vendor_libraries", tuple)
    assert not model.compile("cpu", batch_size=BATCH).executable.calls_libraries


def test_pitches_of_single_elements() -> None:
    """Those of a dense tensor: libraries know a layout by its pitches, and have slow code for odd ones."""
    for shape in ((1, 5, 6, 7), (2, 1, 1, 3), (2, 3, 4, 1), (1, 1, 1, 1)):
        operand = library_convolutions.in_memory(leaf("input", "x", shape, f32))
        assert operand is not None
        assert operand.pitches == tuple(int(np.prod(shape[k + 1:])) for k in range(4))
