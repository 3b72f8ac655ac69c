"""Plans of functions: measured by the tuner, stored, and taken by the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.tune.small_models import LEVEL, L
from ztorch.codegen.targets import Target
from ztorch.compile import tuned_files
from ztorch.compile.pipeline import compile_functions, simplify
from ztorch.compile.targeting import target_for
from ztorch.compile.tuned_files import TunedKernel, machine_of, usual_threads
from ztorch.compile.tuned_schedules import checked_plan, plan_work
from ztorch.compile.watch import Watch
from ztorch.errors import FileError
from ztorch.graph import passes
from ztorch.lower.plan_schedule import APART, RULES, PlanSchedule, other_plans
from ztorch.lower.schedule import IllegalSchedule
from ztorch.runtime.devices import resolve
from ztorch.runtime.executable import Executable
from ztorch.tune import exchange, plan_search, tuner

PLANS = [*other_plans(), PlanSchedule(0, APART)]


def network() -> zt.Sequential:
    """Channels first, with heavy work after products, and values that are cheap to compute again."""
    return zt.Sequential([
        L.Input((3, 10, 9)), L.Conv2D(8, 3, padding="same", data_format="channels_first", activation="gelu"),
        L.BatchNormalization(axis=1), L.Conv2D(4, 3, data_format="channels_first"), L.Flatten(),
        L.Dense(20, activation="gelu"), L.LayerNormalization(), L.Dense(5, activation="softmax")])


def graphs_of(model: zt.Sequential) -> dict[str, Any]:
    return dict(model.trace(batch_size=2, optimizer="adam", loss="mse").functions)


def local() -> Target:
    return target_for(resolve("cpu"))


def names_of(functions: Any, plan: PlanSchedule | None = None) -> list[str]:
    compiled = compile_functions(functions, local(), "m", plan=plan)
    return [step.kernel.name for p in compiled.plans.values() for step in p.steps]


@pytest.mark.parametrize("level", ["cpu:scalar", f"cpu:{LEVEL}"])
def test_plans_compute_the_same(level: str) -> None:
    model, r = network(), np.random.default_rng(0)
    functions, target = graphs_of(model), target_for(resolve(level))
    x, y = (r.normal(size=s).astype(np.float32) for s in ((2, 3, 10, 9), (2, 5)))
    results = {}
    for plan in (RULES, *PLANS):
        compiled = compile_functions(functions, target, "m", plan=plan)
        program = Executable(compiled.spec, compiled.code, compiled.params, 1)
        step = program.bind("train")
        for name, array in {"x": x, "y": y, "w": 1.0, "real": 1.0}.items():
            if name in step.inputs:
                step.inputs[name][...] = array
        for _ in range(3):
            step()
        call = program.bind("predict")
        call.inputs["x"][...] = x
        call()
        [port] = call.outputs
        results[plan] = call.outputs[port].copy()
    for plan, result in results.items():
        np.testing.assert_allclose(result, results[RULES], rtol=2e-4, atol=2e-5, err_msg=repr(plan))


def test_plans_have_other_kernels() -> None:
    functions = {"predict": graphs_of(network())["predict"]}
    usual = names_of(functions, RULES)
    assert names_of(functions) == usual
    assert names_of(functions, PlanSchedule(0, 2)) != usual  # no transposes of images
    assert len(names_of(functions, PlanSchedule(1, APART))) > 2 * len(usual)
    wide = zt.Sequential([L.Input((16,)), L.Dense(512, activation="gelu"), L.Dense(4)])
    functions = dict(wide.trace(batch_size=512).functions)
    assert len(names_of(functions, PlanSchedule(1, 1))) == len(names_of(functions)) + 1  # gelu


def record(graph: Any, schedule: str, **changes: Any) -> TunedKernel:
    return TunedKernel(**{
        "work": plan_work(graph), "title": "plan of predict", "machine": machine_of(local()),
        "threads": usual_threads(None), "version": zt.__version__, "schedule": schedule, "rule": repr(RULES),
        "seconds": 1e-6, "rule_seconds": 2e-6, **changes})


def test_the_compiler_takes_stored_plans(folder: Path) -> None:
    model = network()
    functions = {"predict": graphs_of(model)["predict"]}
    graph = simplify(functions, passes.DEFAULT, Watch())["predict"]
    usual, other = names_of(functions), names_of(functions, PlanSchedule(0, 2))
    x = np.random.default_rng(0).normal(size=(2, 3, 10, 9)).astype(np.float32)
    expected = model.compile("cpu", batch_size=2).predict(x)
    tuned_files.write([record(graph, "plan layout(0) fusion(2)")])
    assert names_of(functions) == other
    explained = {k.name for k in model.explain(batch_size=2).kernels}
    assert explained <= set(other) and not explained <= set(usual)
    np.testing.assert_allclose(model.compile("cpu", batch_size=2).predict(x), expected, rtol=1e-4, atol=1e-6)
    tuned_files.write([record(graph, "plan layout(0) fusion(2)", threads=usual_threads(None) + 1)])
    tuned_files.write([record(graph, "plan layout(1) fusion(4)")])
    with pytest.warns(UserWarning, match=r"ignored: 'plan layout\(1\) fusion\(4\)' is no plan"):
        assert names_of(functions) == usual
    tuned_files.write([record(graph, "elements lanes(8) order() share(0)")])
    with pytest.warns(UserWarning, match="is no plan of a function"):
        assert names_of(functions) == usual
    assert exchange.clear() == 2


def test_text_that_is_no_plan() -> None:
    assert checked_plan("plan layout(0) fusion(1)") == PlanSchedule(0, 1)
    for text in ("plan layout(2) fusion(1)", "plan layout(1)", "plan", "transpose lanes(8) abreast(1)"):
        with pytest.raises(IllegalSchedule):
            checked_plan(text)


def test_the_fastest_plan_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the ratio to the rules' plan in the same race."""
    plans = [PlanSchedule(0, 2), PlanSchedule(1, APART), PlanSchedule(0, APART)]  # have other kernels
    monkeypatch.setattr(plan_search, "other_plans", lambda: plans)
    monkeypatch.setattr(tuner, "library_versions", lambda backend: ())
    ratios = iter([0.9, 0.9, 0.5, 0.5, 0.7])  # first and final races of two plans, and one of the third
    monkeypatch.setattr(plan_search, "_race", lambda calls, *_: (3e-6, 3e-6 * next(ratios)))
    model = network()
    report = model.tune(batch_size=2, threads=1, seconds=30)
    [plan] = report.plans
    assert plan.schedule == repr(plans[1]) and plan.rule == repr(RULES)
    assert (plan.rule_seconds, plan.seconds) == (3e-6, 1.5e-6)
    assert "plan of predict" in str(report) and repr(plans[1]) in str(report)
    again = model.tune(batch_size=2, threads=1, seconds=0)
    assert again.plans == report.plans


def test_time_limits_and_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    assert model.tune(batch_size=2, threads=1, seconds=0).plans == ()
    assert not folder.exists()
    monkeypatch.setattr(plan_search, "MOST_BYTES", 100)  # two programs of 100 bytes fit
    monkeypatch.setattr("ztorch.tune.search._seconds", lambda kernel, s, *_: [1e-6] * len(s))
    assert model.tune(batch_size=2, threads=1).plans == ()


def test_a_measured_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ztorch.tune.search._seconds", lambda kernel, s, *_: [1e-6] * len(s))
    monkeypatch.setattr(tuner, "library_versions", lambda backend: ())
    report = network().tune(batch_size=2, optimizer="adam", loss="mse", threads=1)
    assert {p.title for p in report.plans} == {"plan of predict", "plan of evaluate", "plan of train"}
    assert all(0 < p.seconds <= p.rule_seconds < 0.1 for p in report.plans)


def test_a_file_with_any_kind_is_imported_by_a_new_process(tmp_path: Path) -> None:
    path = tmp_path / "schedules.json"
    kernels = [record(graphs_of(network())["predict"], text, title=f"one of {text.split()[0]}").to_json()
               for text in ("plan layout(0) fusion(2)", "correlation lanes(8) steps(2)")]
    path.write_text(json.dumps({"format": exchange.FORMAT, "kernels": kernels}))
    root = str(Path(zt.__file__).parents[1])
    command = [sys.executable, "-c", "import sys; from ztorch.tune import exchange; print(exchange.import_file(sys.argv[1]))",
               str(path)]
    environment = {**os.environ, "PYTHONPATH": root, "ZTORCH_CACHE": str(tmp_path)}
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "2\n"
    path.write_text(path.read_text().replace("correlation", "correlations"))
    with pytest.raises((FileError, zt.errors.ZtorchError), match="no schedule of kind"):
        exchange.import_file(path)
