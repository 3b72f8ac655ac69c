"""The performance model's figures for each main kernel: `--update-goldens` writes them anew.

A change of a kernel that costs it registers, spills, conflicts or time shows here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from benchmarks.gpu_predictions import GPUS, KERNELS, predict_kernel_row
from models import digits_mlp
from ztorch.codegen.targets import target
from ztorch.machines.gpus import gpu
from ztorch.performance.prediction import KernelPrediction
from ztorch.performance.step import predict_functions

GOLDENS = Path(__file__).parent / "goldens" / "kernels.json"
STEP = GOLDENS.with_name("digits_mlp.json")
MEASURED = Path(benchmarks.__file__).parent / "results" / "2026-11-28-nvidia-h200.json"
# Main kernels that are as they were when they were measured.
UNCHANGED = ("softmax 65536x2048", "layer norm 65536x2048", "sum of columns 65536x2048", "sum of rows 65536x2048",
             "transpose 8192x8192", "Adam, 16 million weights")
MOST_LAUNCHES = 60  # of a step
SLACK = 16  # registers more that another version of the assembler may take


def of(p: KernelPrediction) -> dict[str, Any]:
    return {"kernel": p.name, "registers": p.registers, "spilled": p.spilled, "shared": p.shared_bytes,
            "products per load": round(p.matrix_per_load, 2), "conflicts": round(p.conflicts, 2),
            "lines per request": round(p.transactions, 2), "copies pending": p.copies_pending,
            "bound": p.bound, "microseconds": float(f"{p.seconds * 1e6:.3g}")}


def assembler() -> str:
    nvjitlink = pytest.importorskip("cuda.bindings.nvjitlink",
                                    reason="needs nvJitLink: pip install 'ztorch[cuda]'")
    return ".".join(map(str, nvjitlink.version()))


@pytest.mark.parametrize("name", KERNELS)
def test_main_kernels(name: str, pytestconfig: pytest.Config) -> None:
    version = assembler()
    predicted = {row: predict_kernel_row(KERNELS[name], gpu(row)) for row in GPUS}
    actual = {row: [of(k.kernel) for k in p.kernels] for row, p in predicted.items()}
    if name in UNCHANGED:  # without the start of a call, which replays in a row hide
        seconds = predicted["H200"].seconds - gpu("H200").step_us * 1e-6
        assert seconds == pytest.approx(measured(name), rel=0.08)
    goldens = json.loads(GOLDENS.read_text()) if GOLDENS.exists() else {"kernels": {}}
    if pytestconfig.getoption("--update-goldens"):
        goldens = {"nvJitLink": version, "kernels": {**goldens["kernels"], name: actual}}
        GOLDENS.write_text(json.dumps(goldens, indent=1, sort_keys=True) + "\n")
    known = goldens["kernels"][name]
    for row, kernels in actual.items():  # without ptxas, which alone assembles some kernels
        for now, then in zip(kernels, known[row], strict=True):
            if now["spilled"] is None:
                now |= {k: then[k] for k in ("registers", "spilled")}
    if version == goldens["nvJitLink"]:
        assert actual == known
    for row, kernels in actual.items():
        for now, then in zip(kernels, known[row], strict=True):
            assert now["registers"] <= then["registers"] + SLACK and now["spilled"] <= then["spilled"]
            assert now["shared"] == then["shared"] and now["conflicts"] == then["conflicts"]


def measured(name: str) -> float:
    """Seconds of a main kernel on an H200."""
    kernels, = (s for s in json.loads(MEASURED.read_text())["sections"] if s["key"] == "kernels")
    line, = (line for line in kernels["lines"] if line["case"] == name)
    number, unit = line["ztorch"].split()[:2]
    return float(number) * {"µs": 1e-6, "ms": 1e-3}[unit]


def test_a_step_of_a_small_model(pytestconfig: pytest.Config) -> None:
    """Its launches, those that wait for others, and what all of them read and write."""
    actual = {}
    for name in GPUS:
        row = gpu(name)
        functions = {"train": digits_mlp.build().trace(
            32, optimizer="adam", loss=digits_mlp.LOSS).functions["train"]}
        p = predict_functions(functions, target(row.targets[0]), row)["train"]
        assert p.launches == p.waves <= MOST_LAUNCHES  # those of a wave are joined
        actual[name] = {"launches": p.launches, "waves": p.waves,
                        "bytes": round(p.moved_bytes)}
    if pytestconfig.getoption("--update-goldens"):
        STEP.write_text(json.dumps(actual, indent=1, sort_keys=True) + "\n")
    assert actual == json.loads(STEP.read_text())


def test_no_main_kernel_spills() -> None:
    every = json.loads(GOLDENS.read_text())["kernels"]
    assert every.keys() == KERNELS.keys()
    assert not [(n, row) for n, rows in every.items() for row, kernels in rows.items()
                if any(k["spilled"] for k in kernels)]
