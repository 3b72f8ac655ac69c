"""Files of every layer of the catalogue, run by ONNX Runtime and OpenVINO."""

from __future__ import annotations

import copy
import time
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import ztorch as zt
from tests.cases.covering import share
from tests.cases.grouping import together
from tests.interchange.onnx_files import runtime, tensor
from tests.layers.layer_arguments import TRIED
from tests.layers.twin_cases import CASES, NESTED, Case, public
from ztorch import layers as L
from ztorch.graph.evaluate import evaluate
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
    """The file of a layer, what it is given, and what it means."""
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
    [found] = runtime(data, x)
    compare(found, expected)


# -- OpenVINO --------------------------------------------------------------------------------------


def openvino(data: bytes, *x: np.ndarray) -> list[np.ndarray]:
    """What OpenVINO makes of a file, in float32 on one thread."""
    core = pytest.importorskip("openvino").Core()
    model = core.compile_model(core.read_model(data, b""), "CPU", {
        "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    results = model(dict(zip((port.any_name for port in model.inputs), x, strict=True)))
    return [results[port] for port in model.outputs]


def misread(data: bytes) -> bool:
    """Whether a file has what OpenVINO 2026.4 misreads: two recurrent nodes of opposite directions on
    one tensor, or a Scan whose body reads several tensors around it. The tests below have a small file
    of each."""
    nodes = onnx.load_from_string(data).graph.node
    used = {name for n in nodes for name in n.input}
    directions: dict[str, set[bytes]] = {}
    for n in nodes:
        if n.op_type in ("LSTM", "GRU", "RNN") and n.output[0] in used:
            directions.setdefault(n.input[0], set()).update(
                a.s for a in n.attribute if a.name == "direction")
    bodies = [a.g for n in nodes for a in n.attribute if a.name == "body"]
    there = {name for n in nodes for name in n.output}
    return any(len(d) > 1 for d in directions.values()) or any(
        len(there & {name for n in body.node for name in n.input}) > 1 for body in bodies)


@together(of=20)
@pytest.mark.parametrize("case", share(FILES, TURN), ids=str)
def test_every_layer_in_openvino(case: Case) -> None:
    data, x, expected = made(case)
    if not misread(data):
        [found] = openvino(data, x)
        compare(found, expected)


def two_directions(op: str) -> bytes:
    """A node there and one back over the same rows, and what both give side by side."""
    random, gates = np.random.default_rng(0), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    arrays, nodes = [], []
    for d in ("forward", "reverse"):
        arrays += [tensor(f"{name}_{d}", random.normal(size=shape).astype(np.float32))
                   for name, shape in (("w", (1, 2 * gates, 3)), ("r", (1, 2 * gates, 2)))]
        nodes.append(helper.make_node(op, ["x", f"w_{d}", f"r_{d}"], [d], hidden_size=2, direction=d))
    nodes.append(helper.make_node("Concat", ["forward", "reverse"], ["y"], axis=3))
    return packed(nodes, [5, 2, 3], arrays, [5, 1, 2, 4])


def scan_of_two_tensors() -> bytes:
    """state = state * a + row * b, where a and b are computed around the loop."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["state", "a"], ["kept"]), helper.make_node("Mul", ["row", "b"], ["new"]),
         helper.make_node("Add", ["kept", "new"], ["next"]), helper.make_node("Identity", ["next"], ["out"])],
        "body", [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("state", "row")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("next", "out")])
    nodes = [helper.make_node("ReduceMax", ["x", "axes"], ["a"], keepdims=0),
             helper.make_node("ReduceMin", ["x", "axes"], ["b"], keepdims=0),
             helper.make_node("Scan", ["zero", "x"], ["last", "y"], body=body, num_scan_inputs=1)]
    return packed(nodes, [5, 3], [tensor("axes", [0]), tensor("zero", np.zeros(3, np.float32))], [5, 3])


def packed(nodes: list[onnx.NodeProto], shape: list[int], arrays: list[onnx.TensorProto], result: list[int]) -> bytes:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", result)))
    graph = helper.make_graph(nodes, "g", [x], [y], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN", "Scan"])
def test_what_openvino_misreads_is_right(op: str, tmp_path: Any) -> None:
    """ONNX Runtime, ONNX's own evaluator and ztorch agree on it."""
    data = scan_of_two_tensors() if op == "Scan" else two_directions(op)
    x = np.random.default_rng(1).normal(size=(5, 3) if op == "Scan" else (5, 2, 3)).astype(np.float32)
    [expected] = ReferenceEvaluator(onnx.load_from_string(data)).run(None, {"x": x})
    compare(runtime(data, x)[0], expected)
    (tmp_path / "m.onnx").write_bytes(data)
    compare(np.asarray(zt.onnx.load_layer(tmp_path / "m.onnx")([zt.tensor(x)])), expected)
    assert misread(data)
    if pytest.importorskip("openvino").__version__.startswith("2026.4"):
        with pytest.raises(Exception, match=r"unconverted_ops_report|Not equal to tolerance"):
            compare(openvino(data, x)[0], expected)
