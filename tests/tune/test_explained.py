"""Figures of explain: work that can be counted by hand, and times of this machine."""

from __future__ import annotations

import gc
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import ztorch as zt
from ztorch import layers as L
from ztorch.cli import main
from ztorch.compile.targeting import target_for
from ztorch.dtypes import f32
from ztorch.errors import ConfigError, UnknownName, Unsupported
from ztorch.host.detect import detected
from ztorch.runtime.devices import resolve
from ztorch.tune.kernel_times import KernelTime
from ztorch.tune.peaks import fma_kernel, read_kernel

M, K, N = 24, 64, 40


def dense(**options: Any) -> zt.Sequential:
    return zt.Sequential([L.Input((K,)), L.Dense(N, use_bias=False, **options)], name="one")


def test_work_of_a_product() -> None:
    [kernel] = dense().explain(batch_size=M).kernels
    assert kernel.flops == 2 * M * K * N
    assert kernel.bytes == 4 * (M * K + K * N + M * N)
    assert kernel.layers == ("dense",) and kernel.runs == 1 and kernel.bound == "compute"
    row = target_for(resolve("cpu:avx2:zen3", must_be_local=False)).limits
    [zen3] = dense().explain(device="cpu:avx2:zen3", batch_size=M).kernels
    assert zen3.least_cycles == zen3.flops / (2 * row.processor.fma_ports * 8)
    [zen4] = dense().explain(device="cpu:avx512:zen4", batch_size=M).kernels
    assert zen4.least_cycles == zen3.least_cycles  # its ports take a wide vector in two halves


def test_a_table_counts_the_rows_that_are_read() -> None:
    model = zt.Sequential([L.Input((6,), dtype="int32"), L.Embedding(1000, 16)])
    [kernel] = model.explain(batch_size=2).kernels
    assert kernel.bytes == 4 * (2 * 6 + 2 * 6 * 16 + 2 * 6 * 16) and kernel.bound == "memory"


def test_runs_and_reasons() -> None:
    model = zt.Sequential([L.Input((5, 8)), L.GRU(16), L.Dense(3, "softmax")])
    times = model.explain(batch_size=4)
    assert {k.runs for k in times.kernels} == {1, 5}
    text = str(times)
    assert "estimated" in text and "matmul reads all of it repeatedly" in text
    assert f"{sum(k.runs for k in times.kernels)} kernels" in text
    assert times.text(rows=1, why=False).count("\n") < 8


def test_functions_are_bound_by_their_instructions() -> None:
    """An exponential has 14; a sum is bound by its bytes."""
    model = zt.Sequential([L.Input((K,)), L.Activation("exponential")])
    [kernel] = model.explain(device="cpu:avx2:zen4", batch_size=M).kernels
    assert (kernel.bound, kernel.issues, kernel.least_cycles) == ("issue", 14 * M * K, 14 * M * K / (4 * 8))
    [kernel] = zt.Sequential([L.Input((K,)), L.Lambda(lambda x: x + 1.0)]).explain(batch_size=M).kernels
    assert (kernel.bound, kernel.issues) == ("memory", M * K)


def test_equal_kernels_share_a_row() -> None:
    """And any difference, as of the first layer's input, is another row."""
    model = zt.Sequential([L.Input((K,)), *[L.Dense(N, activation="relu") for _ in range(5)]])
    times = model.explain(batch_size=M)
    first, *others = times.kernels
    rows = times.text(why=False).split("\n")[3:-2]
    assert len(rows) == 2
    many, one = (row.split() for row in rows)
    assert many[:2] == [others[0].name, "4"] and one[:2] == [first.name, "1"]
    cost = sum(k.cost for k in others)
    assert many[4] == f"{cost / times.total:.0%}"
    assert "like it: k2, k3, k4\n" in times.text()
    assert f"; at best {sum(k.least_cycles for k in times.kernels):,.0f}" in times.text()


def test_kernels_whose_workers_never_meet_are_measured_alone() -> None:
    """Each worker computes its own rows in all steps of this loop."""
    model = zt.Sequential([L.Input((4, 64)), L.LSTM(64)])
    program = model.compile("cpu", batch_size=8, threads=2)
    times = program.explain("predict", measure=True)
    assert times.measured and all(k.seconds for k in times.kernels)


def test_measured_times(tmp_path: Path) -> None:
    model = dense(activation="relu")
    program = model.compile("cpu", batch_size=M, loss="mse", optimizer="adam", threads=1)
    times = program.explain("train", measure=True)
    assert times.measured and all(k.seconds and k.least_seconds for k in times.kernels)
    assert times.total == pytest.approx(sum(k.runs * k.seconds for k in times.kernels if k.seconds))
    record = json.loads(json.dumps(times.to_json()))
    assert len(record["kernels"]) == len(times.kernels) and record["peaks"]["flops"] > 1e8
    times.plot(str(tmp_path / "roofline.svg"))
    assert (tmp_path / "roofline.svg").read_text().count("<path") > len(times.kernels)
    assert "GB/s" in str(times)
    peaks = times.peaks
    assert peaks is not None
    assert peaks.rate(1) == pytest.approx(peaks.reads[0][1])
    assert peaks.rate(1 << 40) == pytest.approx(peaks.reads[-1][1])
    rates = sorted((peaks.reads[1][1], peaks.reads[2][1]))
    assert rates[0] <= peaks.rate(1 << 19) <= rates[1]
    assert peaks.seconds(peaks.flops, 0) == pytest.approx(1.0)


def test_the_kernels_that_find_the_limits() -> None:
    target = target_for(resolve("cpu"))
    kernel, flops = fma_kernel(target.limits, 2)
    lanes = kernel.memories[0].size // 2
    assert flops == 2 * 2 * 12 * 40_000 * lanes
    assert read_kernel(target.limits, 1, 1 << 16)[1] >= 1 << 22
    for threads in (1, 3):  # each has its own part of the buffer, and its own sums
        x, y = read_kernel(target.limits, threads, 1 << 16)[0].memories
        assert 0 < x.size <= 1 << 14 and x.size % (8 * threads * target.limits.lanes(f32)) == 0
        assert y.size == threads * target.limits.lanes(f32)


def test_the_share_of_the_best_possible_speed() -> None:
    about = dict.fromkeys((f.name for f in fields(KernelTime)), ())  # other fields do not matter
    estimated = KernelTime(**{**about, "runs": 3, "cycles": 400.0, "least_cycles": 100.0,  # type: ignore[arg-type]
                              "seconds": None, "least_seconds": None})
    assert estimated.share == 0.25 and estimated.cost == 1200
    assert replace(estimated, seconds=0.5).share == 0.25 and replace(estimated, least_seconds=0.5).share == 0.25
    measured = replace(estimated, seconds=0.5, least_seconds=0.2)
    assert measured.share == 0.4 and measured.cost == 1.5


def test_the_device_of_the_last_compile() -> None:
    model, another = dense(), "zen4" if detected().name == "zen3" else "zen3"
    model.compile(f"cpu:avx2:{another}", batch_size=M)
    times = model.explain()
    assert (times.device, times.processor) == ("avx2", another)
    with pytest.raises(Unsupported, match=f"this processor is not {another}"):
        model.tune(seconds=0)
    assert model.explain(device="cpu:scalar").device == "scalar"


def test_what_cannot_be_explained(tmp_path: Path) -> None:
    model = dense()
    program = model.compile("cpu", batch_size=M)
    with pytest.raises(UnknownName, match="unknown function 'trian'"):
        program.explain("trian")
    with pytest.raises(ConfigError, match="measure=True"):
        program.explain().plot(str(tmp_path / "x.svg"))
    with pytest.raises(Unsupported, match=r"cuda:sm_80"):
        model.explain(device="cuda:sm_80")
    program.save(tmp_path / "one.zt")
    loaded = zt.load(tmp_path / "one.zt")
    with pytest.raises(ConfigError, match=r"zt.load_model\(path\)"):
        loaded.explain()
    assert zt.load_model(tmp_path / "one.zt").explain().kernels[0].name
    del model
    gc.collect()
    with pytest.raises(ConfigError, match="no longer exists"):
        program.explain()


def test_the_command(tmp_path: Path) -> None:
    output = CliRunner().invoke(main, ["explain", "digits_mlp", "--rows", "2"])
    assert output.exit_code == 0 and "estimated" in output.output and "... and 2 more" in output.output
    output = CliRunner().invoke(main, ["explain", "digits_mlp", "--json", "--device", "cpu:avx2:zen3"])
    record = json.loads(output.output)
    assert record["processor"] == "zen3" and np.isfinite(record["kernels"][0]["share"])
    output = CliRunner().invoke(main, ["explain", "digits_mlp", "--gpu", "A100", "--measure"])
    assert output.exit_code == 2 and "--measure needs a device of this machine" in output.output
