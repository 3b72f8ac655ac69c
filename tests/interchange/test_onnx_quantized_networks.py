"""Networks whose activations and weights are quantized, as tools of ONNX Runtime write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import ztorch as zt
from tests.interchange.onnx_files import info, model_of, tensor, written
from ztorch.compile.targeting import target_for
from ztorch.runtime.devices import resolve
from ztorch.runtime.executable import Executable

RANDOM = np.random.default_rng(3)
# Weights of equal size, which are more bytes as floats than are folded.
WEIGHTS = [RANDOM.integers(-127, 128, (160, 160), np.int8) for _ in range(2)]
SCALES = [RANDOM.uniform(0.001, 0.003, 160).astype(np.float32) for _ in range(2)]
STEPS = [(np.float32(0.02), np.uint8(120)), (np.float32(0.05), np.uint8(0))]  # of activations: scale and zero point
FORMS = ("QDQ", "integers", "dynamic")


def _codes(x: np.ndarray, step: tuple[np.float32, np.uint8]) -> np.ndarray:
    scale, zero = step
    return np.clip(np.rint(x / scale) + zero, 0, 255)


def _wanted(x: np.ndarray, form: str) -> np.ndarray:
    """The network in float64."""
    for weight, scale, step in zip(WEIGHTS, SCALES, STEPS, strict=True):
        if form == "dynamic":  # the range of all numbers and 0
            low, high = min(x.min(), 0), max(x.max(), 0)
            span = np.float32(np.float32(high - low) / np.float32(255))
            step = span, np.uint8(np.clip(np.rint(np.float32(-low) / span), 0, 255))
        codes = _codes(x.astype(np.float32), step)
        x = (codes - step[1]) * np.float64(step[0]) @ (weight * scale.astype(np.float64))
        x = np.maximum(x, 0)
    return x


def _nodes(form: str) -> tuple[list[Any], list[Any]]:
    """The nodes and the stored arrays of a network of two products."""
    nodes, arrays, x = [], [], "x"
    for k, (weight, scale, (step, zero)) in enumerate(zip(WEIGHTS, SCALES, STEPS, strict=True)):
        arrays += [tensor(f"w{k}", weight), tensor(f"s{k}", scale), tensor(f"step{k}", step), tensor(f"zero{k}", zero),
                   tensor(f"none{k}", np.zeros(160, np.int8))]
        if form == "QDQ":
            nodes += [helper.make_node("QuantizeLinear", [x, f"step{k}", f"zero{k}"], [f"q{k}"]),
                      helper.make_node("DequantizeLinear", [f"q{k}", f"step{k}", f"zero{k}"], [f"d{k}"]),
                      helper.make_node("DequantizeLinear", [f"w{k}", f"s{k}", f"none{k}"], [f"f{k}"], axis=1),
                      helper.make_node("MatMul", [f"d{k}", f"f{k}"], [f"m{k}"])]
        else:
            made = helper.make_node("DynamicQuantizeLinear", [x], [f"q{k}", f"t{k}", f"z{k}"]) if form == "dynamic" else (
                helper.make_node("QuantizeLinear", [x, f"step{k}", f"zero{k}"], [f"q{k}"]))
            zero_name, step_name = (f"z{k}", f"t{k}") if form == "dynamic" else (f"zero{k}", f"step{k}")
            nodes += [made, helper.make_node("MatMulInteger", [f"q{k}", f"w{k}", zero_name, f"none{k}"], [f"i{k}"]),
                      helper.make_node("Cast", [f"i{k}"], [f"c{k}"], to=TensorProto.FLOAT),
                      helper.make_node("Mul", [f"c{k}", step_name], [f"u{k}"]),
                      helper.make_node("Mul", [f"u{k}", f"s{k}"], [f"m{k}"])]
        nodes.append(helper.make_node("Relu", [f"m{k}"], ["y" if k else "h"]))
        x = "h"
    return nodes, arrays


@pytest.mark.parametrize("form", FORMS)
def test_predictions_are_those_of_the_codes(form: str, tmp_path: Path) -> None:
    """On rows in one batch and in several; weights stay bytes in the program, or become pairs of 16 bits
    where the processor multiplies no bytes."""
    size = 1 if target_for(resolve("cpu")).limits.byte_dots else 2
    nodes, arrays = _nodes(form)
    inputs, outputs = ([info(name, TensorProto.FLOAT, "batch", 160)] for name in "xy")
    model = zt.onnx.load(written(model_of(nodes, inputs, outputs, arrays, 20), tmp_path / "m.onnx"))
    x = RANDOM.standard_normal((7, 160)).astype(np.float32)
    for rows in (1, 7):
        program = model.compile(batch_size=rows, device="cpu")
        y = program.predict_on_batch(x[:rows])
        wanted = _wanted(x[:rows], form)
        # A code of the second product may be the next one where rounding decides.
        assert np.abs(y - wanted).mean() < 1e-3 * np.abs(wanted).mean()
        assert isinstance(program.executable, Executable)
        stored = sum(size for _, size in program.executable.spec.constants)
        assert stored < 1.5 * size * sum(w.nbytes for w in WEIGHTS)
