"""The tuner: its measurements and its cache, their use by the compiler, and entries that it ignores."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.schedules import JOBS
from tests.commands.results import fails, ok
from tests.parity import Module, agree
from tests.tune.small_models import LEVEL, L, product_of, schedules, small, tuned
from ztorch.codegen.targets import TARGETS
from ztorch.compile import tuned_files
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.targeting import target_for
from ztorch.compile.watch import show_plan
from ztorch.errors import ConfigError, Unsupported
from ztorch.host.settings import using
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import Schedule, parse
from ztorch.runtime.devices import resolve
from ztorch.tune import search, tuner
from ztorch.tune.candidates import alternatives, other_kinds, stages
from ztorch.tune.clocks import ProcessorClock
from ztorch.tune.kernel_benchmark import KernelBenchmark
from ztorch.tune.tuner import kernel_works, tune_functions


@pytest.fixture
def last_wins(monkeypatch: pytest.MonkeyPatch) -> list[Schedule]:
    """Of all schedules that race the last one is fastest; those that did."""
    raced: list[Schedule] = []

    def race(kernel: RegionKernel, schedules: list[Schedule], *_: Any) -> list[float]:
        raced.extend(schedules)
        return [1e-6 * (len(schedules) - k) for k in range(len(schedules))]

    monkeypatch.setattr(search, "_seconds", race)
    return raced


# -- candidates and races --------------------------------------------------------------------------


def test_values_are_those_of_the_rules_over_odd_shapes() -> None:
    """Every kernel of every kind by the best alternative of each stage, read from the cache."""
    target = TARGETS[LEVEL]
    usual = Module(JOBS.values(), LEVEL)
    chosen: dict[str, Schedule] = {}
    for k, work in enumerate(kernel_works(usual.graphs, target)):
        rule = work.kernel.proposal()
        others = other_kinds(work.kernel, rule)
        for fields in stages(rule):
            others += alternatives(work.kernel, rule, fields)
        assert rule not in others and len({*others}) == len(others)
        if others:
            chosen[work.kernel.key] = others[k % len(others)]
            tuned_files.write([tuned(work.kernel, others[k % len(others)], target)])
    assert len(chosen) > len(JOBS) and len({s.kind for s in chosen.values()}) >= 5
    module = Module(JOBS.values(), LEVEL)
    taken = {s.key: s.schedule for p in module.compiled.plans.values() for s in p.parts if s.tuned}
    assert chosen.items() <= taken.items()
    for k, job in enumerate(JOBS.values()):
        got = module.run(k, 2)
        agree(job, got, terms=300)
        np.testing.assert_allclose(got[0], usual.run(k)[0], rtol=2e-5, atol=2e-5)


def test_a_race_separates_slow_schedules_from_fast_ones() -> None:
    target = target_for(resolve("cpu"))
    model = zt.Sequential([L.Input((64,)), L.Dense(64)])
    _, kernel, _ = product_of(model, target, 64)
    rule = kernel.proposal()
    slow = parse("product tile(rows=1, vectors=1) block(rows=1, depth=0, pack=0) prefetch(0) unroll(1) epilogue(inline=1)")
    fast_seconds, slow_seconds = KernelBenchmark(
        [kernel.with_schedule(s).step() for s in (rule, slow)], target, 1).seconds(5)
    assert 0 < fast_seconds < slow_seconds / 1.5
    finding = search.search(kernel, ProcessorClock(target, 1), until=0)
    assert finding.rule == finding.best == rule and finding.seconds > 0


def test_gains_within_noise_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_for(resolve("cpu"))
    _, kernel, _ = product_of(small(), target)
    rule = kernel.proposal()
    for share, gains in ((0.98, False), (0.9, True)):
        monkeypatch.setattr(search, "_seconds", lambda kernel, schedules, *_, share=share: [
            1.0 if s == rule else share for s in schedules])
        finding = search.search(kernel, ProcessorClock(target, 1))
        assert (finding.best != rule) == gains and finding.rule == rule
        assert finding.seconds == (share if gains else 1.0)


def test_no_stage_starts_after_the_time_limit(last_wins: list[Schedule]) -> None:
    target = target_for(resolve("cpu"))
    _, kernel, _ = product_of(small(), target)
    first = [kernel.proposal(), *other_kinds(kernel, kernel.proposal())]
    search.search(kernel, ProcessorClock(target, 1), until=0)
    assert len(last_wins) == len(first) + 2 * (len(first) > 1)  # and the last race
    raced = len(last_wins)
    search.search(kernel, ProcessorClock(target, 1))
    assert len(last_wins) > 2 * raced


# -- the cache -------------------------------------------------------------------------------------


def test_a_tuned_model_is_compiled_with_the_stored_schedules(
        folder: Path, last_wins: list[Schedule]) -> None:
    model, x = small(), np.random.default_rng(0).normal(size=(7, 19)).astype(np.float32)
    usual = model.compile("cpu", batch_size=7).predict(x)
    report = model.tune(batch_size=7)
    assert report.measured == len(report.kernels) > 1 and not report.left
    assert len(os.listdir(folder)) == len(report.kernels) + len(report.plans)
    assert any(k.schedule != k.rule for k in report.kernels) and "better schedule" in str(report)
    assert "gelu" in str(report) or "matmul" in str(report)
    raced = len(last_wins)
    again = model.tune(batch_size=7)
    assert again.measured == 0 and len(last_wins) == raced
    assert (again.kernels, again.plans) == (report.kernels, report.plans)
    assert model.tune(batch_size=7, again=True).measured == report.measured
    functions, target = model.trace(batch_size=7).functions, target_for(resolve("cpu"))
    compiled = compile_functions(functions, target, "m")
    text = "".join(map(show_plan, compiled.plans.values()))
    changed = [k.schedule for k in report.kernels if k.schedule != k.rule]
    assert all(f"{schedule}  (tuned)" in text for schedule in changed)
    np.testing.assert_allclose(model.compile("cpu", batch_size=7).predict(x), usual, rtol=1e-5,
                               atol=1e-6)
    with using(tuned=False):
        assert not any(flag for _, flag in schedules(functions, target).values())


def test_timeout_and_ctrl_c_keep_results(
        folder: Path, last_wins: list[Schedule], monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    none = model.tune(batch_size=7, seconds=0)
    assert none.measured == 0 and none.left > 1 and not folder.exists() and "run it again" in str(none)
    whole, calls = search.search, []

    def interrupted(kernel: RegionKernel, *rest: Any) -> Any:
        calls.append(kernel)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(kernel, *rest)

    monkeypatch.setattr(tuner, "search", interrupted)
    report = model.tune(batch_size=7)
    assert report.interrupted and report.measured == 1 and report.left == none.left - 1
    assert "measurements are kept" in str(report) and len(os.listdir(folder)) == 1 + len(report.plans)
    monkeypatch.setattr(tuner, "search", whole)
    assert model.tune(batch_size=7).measured == report.left


# -- where it is asked for -------------------------------------------------------------------------


def test_what_cannot_be_measured_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = small().trace(batch_size=7).functions
    for target, reason in ((TARGETS["opencl"], "can neither be measured here nor be predicted"),
                           (TARGETS["c"], "not measured for 'c'"), (TARGETS["neon" if LEVEL != "neon" else "avx2"], "does not run"),
                           (TARGETS[LEVEL], "this processor is not any")):
        with pytest.raises(Unsupported, match=reason):
            tune_functions(functions, target, "m")
    monkeypatch.setattr(tuned_files, "folder", lambda: None)
    with pytest.raises(ConfigError, match="ZTORCH_CACHE=0"):
        small().tune(batch_size=7)


def test_autotune_measures_the_compiled_kernels(folder: Path, last_wins: list[Schedule]) -> None:
    x = np.ones((7, 19), np.float32)
    usual = small().compile("cpu", batch_size=7).predict(x)
    assert not folder.exists()
    with using(autotune=True):
        np.testing.assert_allclose(small().compile("cpu", batch_size=7).predict(x), usual, rtol=1e-5)
    assert len(os.listdir(folder)) > 1 and last_wins


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from click.testing import CliRunner

    from ztorch.cli import main

    monkeypatch.chdir(tmp_path)
    yield lambda *words: CliRunner().invoke(main, ["tune", *map(str, words)])


def test_commands(run: Any, tmp_path: Path, last_wins: list[Schedule]) -> None:
    (tmp_path / "net.py").write_text(
        "from ztorch import Sequential, layers as L\nLOSS = 'mse'\nBATCH_SIZE = 4\n"
        "def build():\n    return Sequential([L.Input((3,)), L.Dense(4)], name='net')\n")
    assert "Nothing was measured yet" in ok(run("list"))
    output = ok(run("net.py", "--threads", 1))
    assert "dense_matmul" in output and "kernels measured, 0 known before" in output
    assert "0 kernels measured" in ok(run("--threads", 1, "net.py"))
    listed = ok(run("list"))
    assert "1 thread, ztorch" in listed and listed.count("\n") > 3
    count = len(json.loads(ok(run("list", "--json"))))
    assert f"Wrote {count} kernels to s.json" in ok(run("export", "s.json"))
    assert f"Removed {count} files" in ok(run("clear"))
    assert f"Read {count} kernels from s.json" in ok(run("import", "s.json"))
    fails(run("import", "net.py"), "net.py holds no schedules")
    fails(run("net.py", "--device", "dummy"), "computes nothing")
    fails(run("digts_mlp"), "did you mean 'digits_mlp'")
