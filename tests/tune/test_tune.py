"""The tuner: what it measures and remembers, what the compiler takes of it, and what it ignores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.schedules import JOBS
from tests.commands.results import fails, ok
from tests.parity import HERE, Module, agree
from ztorch.codegen.targets import TARGETS
from ztorch.compile import tuned_files
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.targeting import target_for
from ztorch.compile.tuned_files import TunedKernel, machine_of, usual_threads
from ztorch.compile.watch import show_plan
from ztorch.errors import ConfigError, FileError, Unsupported
from ztorch.host.settings import using
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import ProductSchedule, Schedule, parse
from ztorch.runtime.devices import resolve
from ztorch.tune import exchange, search, tuner
from ztorch.tune.candidates import alternatives, other_kinds, stages
from ztorch.tune.race import Race
from ztorch.tune.tuner import tune_functions, works_of

L = zt.layers
LEVEL = "avx2" if "avx2" in HERE else HERE[-1]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of schedules; assembled code stays in the cache of all tests."""
    monkeypatch.setattr(tuned_files, "folder", lambda: tmp_path / "tuned")
    return tmp_path / "tuned"


@pytest.fixture
def last_wins(monkeypatch: pytest.MonkeyPatch) -> list[Schedule]:
    """Of all schedules that race the last one is fastest; those that did."""
    raced: list[Schedule] = []

    def race(kernel: RegionKernel, schedules: list[Schedule], *_: Any) -> list[float]:
        raced.extend(schedules)
        return [1e-6 * (len(schedules) - k) for k in range(len(schedules))]

    monkeypatch.setattr(search, "_race", race)
    return raced


def small(rows: int = 7) -> zt.Sequential:
    return zt.Sequential([L.Input((19,)), L.Dense(37, activation="gelu"), L.LayerNormalization(),
                          L.Dense(5, activation="softmax")])


def tuned(kernel: RegionKernel, schedule: Schedule, target: Any, **changes: Any) -> TunedKernel:
    values = {"work": kernel.work, "title": kernel.title, "machine": machine_of(target),
              "threads": usual_threads(None), "version": zt.__version__, "schedule": repr(schedule),
              "rule": repr(kernel.proposal()), "seconds": 1e-6, "rule_seconds": 2e-6, **changes}
    return TunedKernel(**values)


def product_of(model: Any, target: Any, rows: int = 7) -> tuple[Any, RegionKernel, Schedule]:
    """The functions of a model, the kernel of its first product, and another schedule for that."""
    functions = model.trace(batch_size=rows).functions
    kernel = next(w.kernel for w in works_of(functions, target)
                  if isinstance(w.kernel.proposal(), ProductSchedule))
    return functions, kernel, alternatives(kernel, kernel.proposal(), ("tile_rows",))[0]


def schedules(functions: Any, target: Any, **options: Any) -> dict[str, tuple[Schedule | None, bool]]:
    plans = compile_functions(functions, target, "m", **options).plans
    return {step.key: (step.schedule, step.tuned) for plan in plans.values() for step in plan.steps}


# -- candidates and races --------------------------------------------------------------------------


def test_values_are_those_of_the_rules_over_odd_shapes() -> None:
    """Every kernel of every kind by the best alternative of each stage, read from the cache."""
    target = TARGETS[LEVEL]
    usual = Module(JOBS.values(), LEVEL)
    chosen: dict[str, Schedule] = {}
    for k, work in enumerate(works_of(usual.graphs, target)):
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
    taken = {s.key: s.schedule for p in module.compiled.plans.values() for s in p.steps if s.tuned}
    assert chosen.items() <= taken.items()
    for k, job in enumerate(JOBS.values()):
        got = module.run(k, 2)
        agree(job, got, terms=300)
        np.testing.assert_allclose(got[0], usual.run(k)[0], rtol=2e-5, atol=2e-5)


def test_a_race_tells_a_slow_schedule_from_a_fast_one() -> None:
    target = target_for(resolve("cpu"))
    model = zt.Sequential([L.Input((64,)), L.Dense(64)])
    _, kernel, _ = product_of(model, target, 64)
    rule = kernel.proposal()
    slow = parse("product tile(rows=1, vectors=1) block(rows=1) prefetch(0) unroll(1) epilogue(inline=1)")
    fast_seconds, slow_seconds = Race(
        [kernel.with_schedule(s).step() for s in (rule, slow)], target, 1).seconds(5)
    assert 0 < fast_seconds < slow_seconds / 1.5
    finding = search.search(kernel, target, 1, until=0)
    assert finding.rule == finding.best == rule and finding.seconds > 0


def test_a_gain_that_may_be_noise_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    _, kernel, _ = product_of(small(), TARGETS[LEVEL])
    rule = kernel.proposal()
    for share, gains in ((0.98, False), (0.9, True)):
        monkeypatch.setattr(search, "_race", lambda kernel, schedules, *_, share=share: [
            1.0 if s == rule else share for s in schedules])
        finding = search.search(kernel, TARGETS[LEVEL], 1)
        assert (finding.best != rule) == gains and finding.rule == rule
        assert finding.seconds == (share if gains else 1.0)


# -- what is remembered ----------------------------------------------------------------------------


def test_a_model_is_tuned_once_and_compiled_by_what_was_found(
        folder: Path, last_wins: list[Schedule]) -> None:
    model, x = small(), np.random.default_rng(0).normal(size=(7, 19)).astype(np.float32)
    usual = model.compile("cpu", batch_size=7).predict(x)
    report = model.tune(batch_size=7)
    assert report.measured == len(report.kernels) == len(os.listdir(folder)) > 1 and not report.left
    assert any(k.schedule != k.rule for k in report.kernels) and "better schedule" in str(report)
    assert "gelu" in str(report) or "matmul" in str(report)
    raced = len(last_wins)
    again = model.tune(batch_size=7)
    assert again.measured == 0 and again.kernels == report.kernels and len(last_wins) == raced
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


def test_time_that_is_up_and_ctrl_c_keep_what_was_found(
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
    assert "what was found is kept" in str(report) and len(os.listdir(folder)) == 1
    monkeypatch.setattr(tuner, "search", whole)
    assert model.tune(batch_size=7).measured == report.left


def test_only_what_was_measured_on_such_a_machine_is_taken() -> None:
    target = TARGETS[LEVEL]
    functions, kernel, other = product_of(small(), target)
    tuned_files.write([
        tuned(kernel, other, target, version="0.0.9"), tuned(kernel, other, target, threads=999),
        tuned(kernel, other, target, machine="avx2 zen9"), tuned(kernel, other, target, work="0" * 64)])
    assert len(tuned_files.names()) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not any(flag for _, flag in schedules(functions, target).values())
        assert schedules(functions, target, threads=999)[kernel.key] == (other, True)
        tuned_files.write([tuned(kernel, other, target)])
        assert schedules(functions, target)[kernel.key] == (other, True)
        asked = schedules(functions, target, schedules={kernel.key: kernel.proposal()})
        assert asked[kernel.key] == (kernel.proposal(), False)


DAMAGED = [
    (b"", "is not a schedule of `ztorch tune`"), (b"\x00\xff" * 40, "is not a schedule"),
    (b"[]", "must be an object"), (b"{}", "work is missing"), (b"[" * 20000, "is not a schedule"),
    (b" " * 70000, "more than 65536 bytes"),
    ({"threads": 0}, "threads is 0"), ({"work": "../x"}, "work is"), ({"seconds": 1e9}, "seconds is"),
    ({"schedule": "product tile(rows=99, vectors=2) block(rows=1) prefetch(0) unroll(4) epilogue(inline=1)"},
     r"tile\(rows=99\) must be one of"),
    ({"schedule": "transpose lanes(8)"}, "its kinds are product"), ({"schedule": "fast"}, "no schedule of kind"),
]


def test_a_file_that_is_damaged_or_does_not_fit_is_ignored_with_the_reason(folder: Path) -> None:
    target = TARGETS[LEVEL]
    functions, kernel, other = product_of(small(), target)
    right = tuned(kernel, other, target)
    for change, reason in DAMAGED:
        tuned_files.write([right])
        content = change if isinstance(change, bytes) else json.dumps({**right.to_json(), **change}).encode()
        (folder / right.file_name).write_bytes(content)
        with pytest.warns(UserWarning, match=f"is ignored: .*{reason}"):
            assert schedules(functions, target)[kernel.key] == (kernel.proposal(), False)


def test_schedules_go_to_a_file_and_back(folder: Path, tmp_path: Path) -> None:
    target, path = TARGETS[LEVEL], tmp_path / "s.json"
    _, kernel, other = product_of(small(), target)
    kernels = [tuned(kernel, other, target), tuned(kernel, other, target, threads=3)]
    tuned_files.write(kernels)
    assert exchange.export_file(path) == 2 and exchange.clear() == 2 and exchange.known() == []
    assert exchange.import_file(path) == 2
    assert sorted(exchange.known(), key=repr) == sorted(kernels, key=repr)
    (folder / "damaged.json").write_text("{")
    with pytest.warns(UserWarning, match="damaged.json is not a schedule"):
        assert len(exchange.known()) == 2
    data = json.loads(path.read_text())
    for change in ("{", "[]", json.dumps({**data, "format": "2"}),
                   json.dumps({**data, "kernels": [{**data["kernels"][0], "schedule": "x"}]})):
        path.write_text(change)
        with pytest.raises((FileError, ConfigError), match=r"holds no schedules|no schedule of kind"):
            exchange.import_file(path)
    with pytest.raises(ConfigError, match=r"schedules\.json"):
        exchange.export_file(tmp_path / "s.csv")


SCRIPT = """
import sys, warnings, ztorch as zt
from ztorch.tune import search
warnings.simplefilter("error")
search._race = lambda kernel, schedules, *_: [1e-6 / (k + 1) for k in range(len(schedules))]
L = zt.layers
model = zt.Sequential([L.Input((19,)), L.Dense(37, activation="gelu"), L.Dense(5)])
for again in (False, True, True):
    report = model.tune(batch_size=7, threads=1, again=again)
print(*sorted(k.file_name for k in report.kernels))
"""


def test_two_processes_tune_the_same_at_once(tmp_path: Path) -> None:
    """They name the same kernels alike, whatever the seed of their hashes, and no file is torn."""
    root = str(Path(zt.__file__).parents[1])
    running = [subprocess.Popen([sys.executable, "-c", SCRIPT], text=True, stdout=subprocess.PIPE,
                                env={**os.environ, "PYTHONPATH": root, "ZTORCH_CACHE": str(tmp_path),
                                     "PYTHONHASHSEED": str(seed)}) for seed in (1, 2)]
    first, second = (p.communicate()[0].split() for p in running)
    assert [p.returncode for p in running] == [0, 0] and first == second and len(first) > 1
    assert sorted(tuned_files.names()) == sorted(first)
    assert len(exchange.known()) == len(first)


# -- where it is asked for -------------------------------------------------------------------------


def test_what_cannot_be_measured_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = small().trace(batch_size=7).functions
    for target, reason in ((TARGETS["opencl"], "measured on the CPU, not for 'opencl'"),
                           (TARGETS["c"], "not for 'c'"), (TARGETS["neon" if LEVEL != "neon" else "avx2"], "does not run"),
                           (TARGETS[LEVEL], "this machine is no any")):
        with pytest.raises(Unsupported, match=reason):
            tune_functions(functions, target, "m")
    monkeypatch.setattr(tuned_files, "folder", lambda: None)
    with pytest.raises(ConfigError, match="ZTORCH_CACHE=0"):
        small().tune(batch_size=7)


def test_autotune_measures_what_is_compiled(folder: Path, last_wins: list[Schedule]) -> None:
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
    said = ok(run("net.py", "--threads", 1))
    assert "dense_matmul" in said and "kernels measured, 0 known before" in said
    assert "0 kernels measured" in ok(run("--threads", 1, "net.py"))
    listed = ok(run("list"))
    assert "1 thread, ztorch" in listed and listed.count("\n") > 3
    count = len(json.loads(ok(run("list", "--json"))))
    assert f"Wrote {count} kernels to s.json" in ok(run("export", "s.json"))
    assert f"Removed {count} files" in ok(run("clear"))
    assert f"Read {count} kernels from s.json" in ok(run("import", "s.json"))
    fails(run("import", "net.py"), "net.py holds no schedules")
    fails(run("net.py", "--device", "dummy"), "measured on the CPU")
    fails(run("digts_mlp"), "did you mean 'digits_mlp'")
