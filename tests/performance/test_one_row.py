"""Small models that predict one row: their launches and predicted times, with and without chains, and the machine code
of chains."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ztorch.codegen import ptx
from ztorch.codegen.nvidia_programs import PACKAGES, installed
from ztorch.codegen.targets import TARGETS, target
from ztorch.compile.kernels import Kernels
from ztorch.compile.pipeline import declare_states, plan_functions, simplify
from ztorch.compile.watch import Watch
from ztorch.graph import passes
from ztorch.graph.value import Graph
from ztorch.lower import plan
from ztorch.lower.rewrites import prepare
from ztorch.machines.gpus import gpu
from ztorch.performance.assembled import assembled_resources
from ztorch.performance.step import FunctionPrediction, predict_functions

GOLDENS = Path(__file__).parent / "goldens" / "one_row.json"
MODELS, GPUS = ("digits_mlp", "mnist_mlp"), ("H200", "A100")
needs_assembler = pytest.mark.skipif(not installed("nvdisasm"), reason=f"needs nvdisasm: pip install {PACKAGES['nvdisasm']}")


def functions(model: str) -> dict[str, Graph]:
    return {"predict": importlib.import_module(f"models.{model}").build().trace(1).functions["predict"]}


def predicted(model: str, name: str) -> FunctionPrediction:
    row = gpu(name)
    return predict_functions(functions(model), target(row.targets[0]), row)["predict"]


def without_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "with_chains", lambda steps, *_: list(steps))
    monkeypatch.setattr(prepare, "becomes_chains", lambda *_: False)


def figures(p: FunctionPrediction) -> list[float]:
    """Launches, and microseconds of a call."""
    return [p.launches, float(f"{p.seconds * 1e6:.3g}")]


def test_one_row(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    actual: dict[str, Any] = {}
    for name in GPUS:
        for model in MODELS:
            chained = predicted(model, name)
            with monkeypatch.context() as patch:
                without_chains(patch)
                separate = predicted(model, name)
            assert chained.seconds < separate.seconds
            actual[f"{model} on {name}"] = {"chained": figures(chained), "separate": figures(separate)}
    if pytestconfig.getoption("--update-goldens"):
        GOLDENS.write_text(json.dumps(actual, indent=1) + "\n")
    assert actual == json.loads(GOLDENS.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lenet", "digits_cnn", "tabular_regressor", "unet", "text_classifier"])
@pytest.mark.parametrize("name", GPUS)
def test_chains_take_no_longer(model: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the model, as far as its figures go."""
    chained = predicted(model, name)
    without_chains(monkeypatch)
    separate = predicted(model, name)
    assert chained.launches <= separate.launches and chained.seconds <= separate.seconds * 1.002


@needs_assembler
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a", "sm_120"])
def test_the_machine_code_loads_weights_before_the_barrier(chip: str) -> None:
    """The assembler leaves them there, and spills nothing."""
    made_for = TARGETS[f"cuda:{chip}"]
    model = functions("mnist_mlp")
    steps = plan_functions(simplify(model, passes.DEFAULT, Watch()), made_for,
                           declare_states(model, made_for), Watch())["predict"].steps
    [chain] = [s.kernel for s in steps if "grid_barrier" in s.kernel.opcodes()]
    assert assembled_resources({0: chain}, made_for)[0].spilled == 0
    kernels = Kernels(made_for)
    kernels.number(chain)
    listing = ptx.assembly(kernels.module(kernels.rendered), made_for)
    opcodes = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)", listing)
    assert not [o for o in opcodes if o.startswith(("LDL", "STL", "CALL"))]
    at = next(k for k, o in enumerate(opcodes) if o.startswith("ATOMG"))
    loads = [sum(o.startswith("LDG.E") and "STRONG" not in o for o in part) for part in (opcodes[:at], opcodes[at:])]
    near = {m.name for m in chain.memories if m.space != "global"}
    barrier = next(k for k, i in enumerate(chain.body) if i.opcode == "grid_barrier")
    assert loads == [sum(i.opcode == "load" and i.attrs["mem"] not in near for i in part)
                     for part in (chain.body[:barrier], chain.body[barrier:])]
