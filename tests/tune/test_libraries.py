"""Products by other libraries: measured by the tuner, used where they were measured, never in files."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.tune.small_models import L
from ztorch.abi import CONNECT
from ztorch.backends import vendor_libraries
from ztorch.backends.vendor_libraries import versions
from ztorch.codegen.targets import Target
from ztorch.compile import tuned_files
from ztorch.compile.pipeline import compile_functions, simplify
from ztorch.compile.targeting import target_for, with_libraries
from ztorch.compile.tuned_files import TunedKernel, machine_of, usual_threads
from ztorch.compile.tuned_schedules import checked_plan, chooser, plan_work
from ztorch.compile.watch import Watch
from ztorch.graph import passes
from ztorch.lower.cpu import library_nest, library_operands
from ztorch.lower.plan_schedule import RULES, library_plan
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import Schedule
from ztorch.runtime.devices import resolve
from ztorch.runtime.executable import Executable
from ztorch.tune import plan_search, tuner
from ztorch.tune.clocks import ProcessorClock

pytestmark = pytest.mark.skipif(not dict(versions()).get("openblas"), reason="no OpenBLAS, not even NumPy's")
BATCH = 40


def network() -> zt.Sequential:
    """Products with and without epilogues, of sizes that are no multiples of vectors or blocks."""
    return zt.Sequential([L.Input((61,)), L.Dense(83, activation="relu"), L.Dense(45, use_bias=False)])


def numbers(model: zt.Sequential) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and what the model makes of them in float64."""
    x = np.random.default_rng(0).normal(size=(BATCH, 61)).astype(np.float32)
    w, b, v = (a.astype(np.float64) for a in model.get_weights())
    return x, np.maximum(x.astype(np.float64) @ w + b, 0) @ v


def local(libraries: bool = True) -> Target:
    return target_for(resolve("cpu")).with_libraries(versions() if libraries else ())


def record(functions: Any, library: str, schedule: str = "openblas_plan layout(1) fusion(2)",
           function: str = "predict", seconds: float = 1e-6, rule_seconds: float = 2e-6) -> TunedKernel:
    """The measurement of a function whose products a library computes in half the time."""
    graph = simplify(functions, passes.DEFAULT, Watch())[function]
    return TunedKernel(plan_work(graph), "plan", machine_of(local()), usual_threads(None), zt.__version__,
                       schedule, repr(RULES), seconds, rule_seconds, library)


def here() -> str:
    [label] = [f"{name} {version}" for name, version in versions() if name == "openblas"]
    return label


@pytest.mark.parametrize("blocks", [(13, 20), (40, 45), (1, 83), (79, 32)], ids=str)
def test_products_by_a_library_are_products(blocks: tuple[int, int]) -> None:
    """In blocks with and without a tail; with the same bits for any number of workers."""
    model = network()
    x, expected = numbers(model)
    functions, plan = dict(model.trace(batch_size=BATCH).functions), library_plan(RULES, "openblas")
    keys = [s.key for s in compile_functions(functions, local(), "m", plan=plan).plans["predict"].steps]
    chosen = {key: "openblas block(rows={}, columns={})".format(*blocks) for key in keys}
    compiled = compile_functions(functions, local(), "m", plan=plan, schedules=chosen)
    values = []
    for threads in (1, 2, 3):
        call = Executable(compiled.spec, compiled.code, compiled.params, threads).bind("predict")
        call.workers = threads
        next(iter(call.inputs.values()))[...] = x
        call()
        values.append(next(iter(call.outputs.values())).copy())
    np.testing.assert_allclose(values[0], expected, rtol=1e-5, atol=1e-5)
    assert all(np.array_equal(values[0], v) for v in values[1:])


def test_training_by_a_library() -> None:
    """Products with transposed operands, which it reads in place, beside our kernels."""
    functions = dict(network().trace(batch_size=BATCH, optimizer="sgd", loss="mse").functions)
    r = np.random.default_rng(1)
    x, y = (r.normal(size=(BATCH, n)).astype(np.float32) for n in (61, 45))
    states = []
    for plan in (RULES, library_plan(RULES, "openblas")):
        compiled = compile_functions(functions, local(), "m", plan=plan)
        kinds = [s.schedule.kind for s in compiled.plans["train"].steps if s.schedule]
        assert kinds.count("openblas") == (0 if plan is RULES else 5)
        program = Executable(compiled.spec, compiled.code, compiled.params)
        call = program.bind("train")
        for array, value in zip(call.inputs.values(), (x, y), strict=False):
            array[...] = value
        for _ in range(3):
            call()
        states.append(program.states_snapshot())
    for name, value in states[0].items():
        np.testing.assert_allclose(states[1][name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_stack_of_products_by_a_library() -> None:
    a, b = zt.Input((33, 40)), zt.Input((40, 56))
    model = zt.Model([a, b], zt.ops.matmul(a, b) * 0.5)
    functions = dict(model.trace(batch_size=3).functions)
    compiled = compile_functions(functions, local(), "m", plan=library_plan(RULES, "openblas"))
    assert [s.schedule.kind for s in compiled.plans["predict"].steps if s.schedule] == ["openblas"]
    call = Executable(compiled.spec, compiled.code, compiled.params, 2).bind("predict")
    r = np.random.default_rng(2)
    for array in call.inputs.values():
        array[...] = r.normal(size=array.shape)
    call()
    x, y = (array.astype(np.float64) for array in call.inputs.values())
    np.testing.assert_allclose(next(iter(call.outputs.values())), x @ y / 2, rtol=1e-5, atol=1e-5)


def test_products_inside_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop over time steps multiplies by the same matrix each time, forward and backward."""
    for module in (library_operands, library_nest):
        monkeypatch.setattr(module, "LIBRARY_WORK", 1)
    model = zt.Sequential([L.Input((6, 12)), L.LSTM(20), L.Dense(7)])
    functions = dict(model.trace(batch_size=9, optimizer="sgd", loss="mse").functions)
    r, states = np.random.default_rng(3), []
    x, y = r.normal(size=(9, 6, 12)), r.normal(size=(9, 7))
    for plan in (RULES, library_plan(RULES, "openblas")):
        compiled = compile_functions({"train": functions["train"]}, local(), "m", plan=plan)
        program = Executable(compiled.spec, compiled.code, compiled.params, 2)
        call = program.bind("train")
        for array, value in zip(call.inputs.values(), (x, y), strict=False):
            array[...] = value
        call()
        call()
        states.append(program.states_snapshot())
    inside = {k for loop in compiled.plans["train"].loops for k in range(loop.first, loop.end)}
    kinds = [s.schedule.kind if s.schedule else "" for s in compiled.plans["train"].steps]
    assert any(kinds[k] == "openblas" for k in inside)
    for name, value in states[0].items():
        np.testing.assert_allclose(states[1][name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_the_compiler_uses_what_was_measured(folder: Path, tmp_path: Path) -> None:
    """Of this version of the library alone; files have our kernels, and the same states."""
    model = network()
    functions = dict(model.trace(batch_size=BATCH).functions)
    x, expected = numbers(model)
    ours = model.compile("cpu", batch_size=BATCH)
    assert not ours.executable.calls_libraries and "openblas" not in str(model.explain(batch_size=BATCH))
    tuned_files.write([record(functions, "openblas 0.0.1 Z80")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not model.compile("cpu", batch_size=BATCH).executable.calls_libraries
        assert "openblas" not in str(model.explain(batch_size=BATCH))
    tuned_files.write([record(functions, here())])
    program = model.compile("cpu", batch_size=BATCH)
    assert program.executable.calls_libraries
    assert f"computed by {here()}" in str(model.explain(batch_size=BATCH))
    np.testing.assert_allclose(program.predict(x), expected, rtol=1e-5, atol=1e-5)
    program.save(tmp_path / "m.zt")
    assert CONNECT.encode() not in (tmp_path / "m.zt").read_bytes()
    loaded = zt.load(tmp_path / "m.zt")
    assert not loaded.executable.calls_libraries
    np.testing.assert_array_equal(loaded.predict(x), ours.predict(x))
    assert model.compile("cpu", batch_size=BATCH).executable.calls_libraries  # from the cache


def test_a_trained_program_is_saved_without_the_library(folder: Path, tmp_path: Path) -> None:
    model = network()
    functions = dict(model.trace(batch_size=BATCH, optimizer="adam", loss="mse").functions)
    tuned_files.write([record(functions, here(), function=name) for name in functions])
    program = model.compile("cpu", batch_size=BATCH, optimizer="adam", loss="mse")
    r = np.random.default_rng(1)
    x, y = (r.normal(size=(4 * BATCH, n)).astype(np.float32) for n in (61, 45))
    program.fit(x, y, epochs=2, verbose=0, shuffle=False)
    assert program.executable.calls_libraries
    own, program.executable.own_kernels = program.executable.own_kernels, pytest.fail  # a checkpoint has no code
    program.save_checkpoint(tmp_path / "m.safetensors")
    program.executable.own_kernels = own
    program.save(tmp_path / "m.zt")
    loaded = zt.load(tmp_path / "m.zt")
    assert not loaded.executable.calls_libraries
    states, same = (p.executable.states_snapshot() for p in (program, loaded))
    checkpointed = model.compile("cpu", batch_size=BATCH, optimizer="adam", loss="mse")
    checkpointed.load_checkpoint(tmp_path / "m.safetensors")
    for name, value in states.items():
        np.testing.assert_array_equal(same[name], value, err_msg=name)
        np.testing.assert_array_equal(checkpointed.executable.state(name), value, err_msg=name)
    theirs, ours = (p.fit(x, y, epochs=1, verbose=0, shuffle=False).history["loss"] for p in (program, loaded))
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)


def test_without_the_library_our_kernel_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    tuned_files.write([record(dict(model.trace(batch_size=BATCH).functions), here())])
    monkeypatch.setattr(vendor_libraries, "vendor_libraries", tuple)
    assert with_libraries(local(False)).limits.libraries == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = model.compile("cpu", batch_size=BATCH)
    assert not program.executable.calls_libraries
    x, expected = numbers(model)
    np.testing.assert_allclose(program.predict(x), expected, rtol=1e-5, atol=1e-5)


def test_the_best_of_several_libraries_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the share of our time in its own race: the machine may have been faster in another one."""
    model = network()
    functions = dict(model.trace(batch_size=BATCH).functions)
    monkeypatch.setattr(vendor_libraries, "versions", lambda: (("onednn", "3.0"), ("openblas", "0.3")))
    tuned_files.write([record(functions, "openblas 0.3", seconds=0.9e-6, rule_seconds=1e-6),
                       record(functions, "onednn 3.0", repr(RULES), seconds=0.8e-6, rule_seconds=0.8e-6)])
    choose = chooser(with_libraries(local(False)))
    assert choose is not None
    graph = simplify(functions, passes.DEFAULT, Watch())["predict"]
    assert choose.plan(graph) == library_plan(RULES, "openblas")
    tuned_files.write([record(functions, "onednn 3.0", "onednn_plan layout(1) fusion(2)", seconds=3e-6,
                              rule_seconds=4e-6)])
    assert choose.plan(graph) == library_plan(RULES, "onednn")


class PretendedClock(ProcessorClock):
    """A clock by which a library takes some seconds, and our kernels take one."""

    library = 0.5

    def seconds(self, kernel: RegionKernel, schedules: Sequence[Schedule], rounds: int) -> list[float]:
        return [self.library if s.kind == "openblas" else 1.0 for s in schedules]


@pytest.mark.parametrize("faster", [True, False])
def test_the_tuner_measures_libraries(folder: Path, monkeypatch: pytest.MonkeyPatch, faster: bool) -> None:
    """A product or a whole function is computed by a library if that was faster than ours."""
    monkeypatch.setattr(tuner, "clock_for", lambda target, threads, ordinal: PretendedClock(target, threads))
    monkeypatch.setattr(PretendedClock, "library", 0.5 if faster else 0.99)
    monkeypatch.setattr(plan_search, "other_plans", tuple)
    monkeypatch.setattr(plan_search, "_race", lambda *_: (1.0, 0.5 if faster else 1.0))
    model = network()
    report = model.tune("cpu", batch_size=BATCH, optimizer="sgd", loss="mse")
    assert {k.library for k in report.products} == {here()}
    assert all((k.schedule != k.rule) == faster for k in report.products)
    taken = f"{len(report.products) if faster else 0} of {len(report.products)} products are faster by another"
    assert taken in str(report)
    program = model.compile("cpu", batch_size=BATCH, optimizer="sgd", loss="mse")
    assert program.executable.calls_libraries == faster
    again = model.tune("cpu", batch_size=BATCH, optimizer="sgd", loss="mse")
    assert again.measured == 0 and set(again.products) <= set(report.products)
    plans = [k for k in again.plans if k.library]
    assert len(plans) == 3 * faster and all(checked_plan(k.schedule).library == "openblas" for k in plans)


def test_openblas_is_found_where_others_loaded_from_the_same_descriptor() -> None:
    """Somebody loads from /proc/self/fd/N and closes N, which our copy of OpenBLAS then gets."""
    descriptor = os.memfd_create("theirs")
    os.write(descriptor, Path(_ctypes.__file__).read_bytes())
    theirs = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    os.close(descriptor)
    vendor_libraries.vendor_libraries.cache_clear()
    assert "openblas" in dict(versions()) and theirs._handle
