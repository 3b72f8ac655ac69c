"""Files of every layer of the catalog, run by ONNX Runtime and OpenVINO."""

from __future__ import annotations

import copy
import time
from functools import cache
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.covering import share
from tests.cases.grouping import together
from tests.interchange.onnx_files import runtime
from tests.layers.layer_arguments import TRIED
from tests.layers.twin_cases import CASES, NESTED, Case, public
from ztorch import layers as L
from ztorch.graph.evaluate import evaluate
from ztorch.interchange.onnx.opset import converted
from ztorch.interchange.onnx.save import encode
from ztorch.layers.context import Context

TWINS = [case for case in CASES if not case.training]
# Those of one step, which take states: the layers around them have files.
CELLS = {"SimpleRNNCell", "LSTMCell", "GRUCell", "StackedRNNCells"}
OTHERS = [Case(name, shape, copy.deepcopy(how), ids=10 if "Embedding" in name else 0)
          for name, (shape, how) in TRIED.items()
          if name not in {case.layer for case in TWINS} | CELLS | {"Input"}]
FILES = TWINS + OTHERS
TURN = int(time.time() // 86_400)  # OpenVINO takes another quarter each day


def test_every_layer_has_a_file() -> None:
    assert {case.layer for case in FILES} | CELLS | {"Input"} == {*public()}
    assert {*NESTED} <= {case.layer for case in FILES}


@cache
def made(case: Case) -> tuple[bytes, np.ndarray, np.ndarray]:
    """The file of a layer, its inputs and its results."""
    x = case.rows()
    x = x if case.ids else x.astype(np.float32)
    if case.layer == "Encoded":
        x = np.abs(x)  # of categories
    model = zt.Sequential([L.Input(x.shape[1:], dtype="int32" if case.ids else None), case.make()],
                          seed=1)
    data = encode(model)
    leaves = model.leaves(len(x))
    outputs = model.called(leaves, Context())
    return data, x, evaluate([*outputs.values()], dict(zip(leaves.values(), [x], strict=True)))[0]


def compare(found: Any, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


@together(of=40)
@pytest.mark.parametrize("case", FILES, ids=str)
def test_every_layer(case: Case) -> None:
    data, x, expected = made(case)
    [result] = runtime(data, x)
    compare(result, expected)


@together(of=20)
@pytest.mark.parametrize("case", share(FILES, TURN + 1), ids=str)
def test_every_layer_of_the_oldest_opset(case: Case) -> None:
    data, x, expected = made(case)
    [result] = runtime(converted(data, 13, str(case)), x)
    compare(result, expected)


# -- OpenVINO --------------------------------------------------------------------------------------


def openvino(data: bytes, *x: np.ndarray) -> list[np.ndarray]:
    """OpenVINO's results for a file, in float32 on one thread."""
    core = pytest.importorskip("openvino").Core()
    model = core.compile_model(core.read_model(data, b""), "CPU", {
        "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    results = model(dict(zip((port.any_name for port in model.inputs), x, strict=True)))
    return [results[port] for port in model.outputs]


@together(of=20)
@pytest.mark.parametrize("case", share(FILES, TURN), ids=str)
def test_every_layer_in_openvino(case: Case) -> None:
    data, x, expected = made(case)
    [result] = openvino(data, x)
    compare(result, expected)
