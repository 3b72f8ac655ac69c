"""Schedules for GPUs: predicted for a chip that is not here, measured on a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.cases import available
from tests.tune.small_models import L, schedules
from ztorch.codegen.targets import TARGETS, Target
from ztorch.compile import tuned_files
from ztorch.dtypes import bf16, f32
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.host.settings import using
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import GridElementSchedule, Schedule, parse
from ztorch.machines.gpus import gpu
from ztorch.performance.step import predict_functions
from ztorch.tune import clocks
from ztorch.tune.candidates import alternatives, stages
from ztorch.tune.clocks import FINAL_ROUNDS, PredictedClock, clock_for
from ztorch.tune.search import search
from ztorch.tune.tuner import kernel_works, tune_functions

HOPPER = TARGETS["cuda:sm_90a"]


def graph() -> Graph:
    return Graph({"y": OPS.matmul(leaf("input", "x", (2048, 512), bf16), leaf("input", "w", (512, 2048), bf16))})


def kernel_of(function: Graph, target: Target = HOPPER) -> RegionKernel:
    [work] = kernel_works({"y": function}, target)
    return work.kernel


def test_the_model_is_the_clock_of_a_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poor schedule in place of the rules' is found out, by the times that `explain` predicts."""
    kernel = kernel_of(graph())
    poor = parse("grid_roles tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1)")
    monkeypatch.setattr(RegionKernel, "proposal", lambda self: poor)
    clock = PredictedClock(HOPPER, gpu("H200"))
    clock.most = 3
    result = search(kernel, clock)
    assert result.rule == poor != result.best
    assert result.seconds < clocks.PREDICTED_SHARE * result.rule_seconds
    monkeypatch.undo()
    [known] = predict_functions({"y": graph()}, HOPPER, gpu("H200"), assemble=True, cached=True)["y"].kernels
    [of_rule] = clock.seconds(kernel, [kernel.proposal()], FINAL_ROUNDS)
    assert of_rule == known.kernel.seconds


def test_small_predicted_gains_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, clock = kernel_of(graph()), PredictedClock(HOPPER, gpu("H200"))
    rule = kernel.proposal()
    monkeypatch.setattr(clock, "seconds", lambda k, tried, rounds: [1.0 if s == rule else 0.93 for s in tried])
    assert search(kernel, clock).best == rule


def test_a_kernel_whose_buffers_fit_the_cache_is_faster() -> None:
    x = leaf("input", "x", (4096,), f32)
    kernel, chip = kernel_of(Graph({"y": OPS.exp(x)})), gpu("H200")
    fits, not_quite = (PredictedClock(HOPPER, replace(chip, l2_bytes=size)).seconds(kernel, [kernel.proposal()], 1)[0]
                       for size in (2 * 4096 * 4, 2 * 4096 * 4 - 1))
    assert fits < not_quite


@pytest.mark.parametrize("name", ["cuda:sm_90a", "cuda:sm_80", "rocm:gfx1100"])
def test_candidates_are_legal_and_lowered(name: str) -> None:
    """Of each kind of these kernels, and the first ones are most like the schedule that they replace."""
    target, kinds = TARGETS[name], set()
    x = leaf("input", "x", (64, 128), f32)
    functions = {"a": graph(), "b": Graph({"y": OPS.softmax(x)}), "c": Graph({"y": OPS.exp(x)}),
                 "d": Graph({"y": OPS.matmul(x, leaf("input", "w", (128, 64), f32))})}
    for work in kernel_works(functions, target):
        rule = work.kernel.proposal()
        for fields in stages(rule):
            for s in alternatives(work.kernel, rule, fields, 3)[:2]:
                kinds.add(s.kind)
                step = work.kernel.with_schedule(s).step()
                assert s != rule and step.schedule == s and step.kernel.body
    assert {"grid_rows", "grid_elements", "grid_product"} <= kinds and len(kinds) > 3


def test_a_chip_is_tuned_once_and_compiled_with_the_predictions(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = zt.Sequential([L.Input((64,)), L.Dense(32, activation="gelu")])

    def last_wins(self: PredictedClock, kernel: RegionKernel, tried: list[Schedule], rounds: int) -> list[float]:
        return [1e-6 * (len(tried) - k) for k in range(len(tried))]

    monkeypatch.setattr(PredictedClock, "seconds", last_wins)
    report = model.tune("cuda:sm_80", batch_size=8)
    assert report.measured == len(report.kernels) >= 1 and "kernels predicted" in str(report)
    assert {k.machine for k in report.kernels} == {"cuda:sm_80, 108 units, 23 bits, predicted"}
    assert model.tune("cuda:sm_80", batch_size=8).measured == 0
    functions = model.trace(batch_size=8).functions
    changed = {k.schedule for k in report.kernels if k.schedule != k.rule}
    taken = {repr(s) for s, tuned in schedules(functions, TARGETS["cuda:sm_80"]).values() if tuned}
    assert changed and changed == taken
    assert any(k.kernel.name.endswith(f"_{s.tile(1)}") for s in map(parse, changed) for k in predict_functions(
        functions, TARGETS["cuda:sm_80"], gpu("A100"), tuned=True)["predict"].kernels)
    for other in (TARGETS["cuda:sm_90a"], TARGETS["cuda:sm_80"].with_precision("tf32")):
        assert not any(tuned for _, tuned in schedules(functions, other).values())
    with using(tuned=False):
        assert not any(tuned for _, tuned in schedules(functions, TARGETS["cuda:sm_80"]).values())


def test_measurements_have_priority_over_predictions(folder: Path) -> None:
    target = TARGETS["cuda:sm_80"]
    function = {"y": Graph({"y": OPS.exp(leaf("input", "x", (4096,), f32))})}
    [work] = kernel_works(function, target)
    for predicted, threads in ((True, 64), (False, 128)):
        tuned_files.write([tuned_files.TunedKernel(
            work.work, work.kernel.title, tuned_files.machine_of(target, predicted), 0, zt.__version__,
            repr(GridElementSchedule(threads, 1)), repr(work.kernel.proposal()), 1e-6, 2e-6)])
    [(taken, tuned)] = schedules(function, target).values()
    assert tuned and taken == GridElementSchedule(128, 1)


@pytest.mark.parametrize("name", ["vulkan", "opencl"])
def test_a_device_is_measured(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By running its kernels, with the same results."""
    device = available.device(name).id
    monkeypatch.setattr(clocks.DeviceClock, "most", 1)
    model = zt.Sequential([L.Input((19,)), L.Dense(37, activation="gelu")])
    x = np.random.default_rng(0).normal(size=(7, 19)).astype(np.float32)
    usual = model.compile(device, batch_size=7).predict(x)
    report = model.tune(device, batch_size=7)
    assert report.measured >= 1 and "kernels measured" in str(report)
    assert all(k.seconds > 0 and k.rule_seconds > 0 and k.threads == 0 for k in report.kernels)
    np.testing.assert_allclose(model.compile(device, batch_size=7).predict(x), usual, rtol=1e-5, atol=1e-6)
    assert clock_for(HOPPER).predicted and len(tune_functions({"y": graph()}, HOPPER, "m", 0.0).kernels) == 0
