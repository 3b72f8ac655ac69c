"""Files that are written, run by OpenVINO: every layer of the catalogue that has a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import ztorch as zt
from tests.cases.grouping import together
from tests.layers.twin_cases import CASES, Case
from ztorch import layers as L
from ztorch.errors import Unsupported
from ztorch.graph.evaluate import evaluate
from ztorch.interchange.onnx.save import encode
from ztorch.layers.context import Context

openvino = pytest.importorskip("openvino")

FILES = [case for case in CASES if not case.training]


def run(data: bytes, *x: np.ndarray) -> list[np.ndarray]:
    """What OpenVINO makes of a file, in float32 on one thread."""
    core = openvino.Core()
    model = core.compile_model(core.read_model(data, b""), "CPU", {
        "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    results = model(dict(zip((port.any_name for port in model.inputs), x, strict=True)))
    return [results[port] for port in model.outputs]


def evaluated(model: zt.Model, x: np.ndarray) -> np.ndarray:
    leaves = model.leaves(len(x))
    outputs = model.called(leaves, Context())
    return evaluate(list(outputs.values()), dict(zip(leaves.values(), [x], strict=True)))[0]


def misread(data: bytes) -> bool:
    """Whether OpenVINO 2026.4 gives other numbers than ONNX Runtime and we do, or none.

    It joins two recurrent nodes of opposite directions on one tensor into one that is wrong: a file
    of nothing but these and a Concat shows it. Of a Scan, it takes tensors around the body that the
    body reads for states, and asks for as many results.
    """
    nodes = onnx.load_from_string(data).graph.node
    used = {name for n in nodes for name in n.input}
    directions: dict[str, set[bytes]] = {}
    for n in nodes:
        if n.op_type in ("LSTM", "GRU", "RNN") and n.output[0] in used:
            directions.setdefault(n.input[0], set()).update(
                a.s for a in n.attribute if a.name == "direction")
    bodies = [a.g for n in nodes for a in n.attribute if a.name == "body"]
    made = {name for n in nodes for name in n.output}
    return any(len(d) > 1 for d in directions.values()) or any(
        len(made & {name for n in body.node for name in n.input}) > 1 for body in bodies)


@together(of=20)
@pytest.mark.parametrize("case", FILES, ids=str)
def test_every_layer(case: Case) -> None:
    x = case.rows()
    x = x if case.ids else x.astype(np.float32)
    model = zt.Sequential([L.Input(x.shape[1:], dtype="int32" if case.ids else None), case.make()],
                          seed=1)
    try:
        data = encode(model)
    except Unsupported:
        return  # what has no file is another test's
    if misread(data):
        return
    [found] = run(data, x)
    expected: Any = evaluated(model, x)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
