"""What the model says of each main kernel: `--update-goldens` writes it anew.

A change of a kernel that costs it registers, spills, conflicts or time shows here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_predictions import GPUS, KERNELS, predict_kernel_row
from ztorch.machines.gpus import gpu
from ztorch.performance.prediction import KernelPrediction

GOLDENS = Path(__file__).parent / "goldens" / "kernels.json"
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
    found = {row: [of(k.kernel) for k in predict_kernel_row(KERNELS[name], gpu(row)).kernels]
             for row in GPUS}
    goldens = json.loads(GOLDENS.read_text()) if GOLDENS.exists() else {"kernels": {}}
    if pytestconfig.getoption("--update-goldens"):
        goldens = {"nvJitLink": version, "kernels": {**goldens["kernels"], name: found}}
        GOLDENS.write_text(json.dumps(goldens, indent=1, sort_keys=True) + "\n")
    known = goldens["kernels"][name]
    if version == goldens["nvJitLink"]:
        assert found == known
    for row, kernels in found.items():
        for now, then in zip(kernels, known[row], strict=True):
            assert now["registers"] <= then["registers"] + SLACK and now["spilled"] <= then["spilled"]
            assert now["shared"] == then["shared"] and now["conflicts"] == then["conflicts"]


def test_no_main_kernel_spills() -> None:
    every = json.loads(GOLDENS.read_text())["kernels"]
    assert every.keys() == KERNELS.keys()
    assert not [(n, row) for n, rows in every.items() for row, kernels in rows.items()
                if any(k["spilled"] for k in kernels)]
