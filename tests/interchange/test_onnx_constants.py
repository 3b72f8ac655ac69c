"""Nodes of constants, and arithmetic with shapes, in ONNX files against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.cases.grouping import together
from tests.interchange.onnx_files import model_of, ours, port, runtime, single, tensor, written
from tests.interchange.onnx_node_cases import CASES, Case, f32, floats, i64, ints, label, recurrent
from ztorch.interchange.onnx import load

FOLDED = [c for c in CASES if c.op not in ("Dropout", "LSTM", "GRU", "RNN", "Attention") and
          not any(isinstance(k, np.ndarray) and k.ndim and k.dtype.kind == "f" for k in c.known)]


def test_random_numbers_are_no_constants(tmp_path: Path) -> None:
    """A node without inputs that draws is not worked out while importing."""
    x = floats(2, 300)
    nodes = [helper.make_node("RandomNormal", [], ["r"], shape=[300]),
             helper.make_node("Add", ["x", "r"], ["y"])]
    path = written(model_of(nodes, [port("x", x)], [port("y", x)]), tmp_path / "random.onnx")
    apart = load(path).compile("cpu", batch_size=2, threads=1).predict(x) - x
    assert abs(apart.mean()) < 0.3 and 0.8 < apart.std() < 1.2


@together(of=100)
@pytest.mark.parametrize("case", FOLDED, ids=label)
def test_a_node_of_constants_is_worked_out_while_importing(case: Case, tmp_path: Path) -> None:
    """All inputs of the node are constants; the model adds its result to the input."""
    lone = single(case.op, case.data, case.known, case.attrs, case.opset, case.count)
    x = floats(2, 1)
    nodes = [*(helper.make_node("Constant", [], [f"x{k}"], value=tensor("", a))
               for k, a in enumerate(case.data)), *lone.graph.node,
             helper.make_node("Cast", ["y0"], ["floats"], to=1),
             helper.make_node("Abs", ["floats"], ["sizes"]),
             helper.make_node("ReduceSum", ["sizes"], ["total"], keepdims=0),
             helper.make_node("Add", ["x", "total"], ["y"])]
    made = model_of(nodes, [port("x", x)], [port("y", x)], list(lone.graph.initializer),
                    case.opset)
    path = written(made, tmp_path / "folded.onnx")
    model = load(path)
    graph = model.trace(batch_size=2).functions["predict"]
    assert {v.op.name for v in graph.nodes()} <= {"leaf", "add", "full", "broadcast_to"}
    np.testing.assert_allclose(ours(model, x)[0], runtime(path, x)[0], rtol=1e-4)


def test_shape_arithmetic(tmp_path: Path) -> None:
    """The nodes that exporters write for x.reshape(x.shape[0], -1) + arange: shapes are known in the end."""
    x = floats(2, 3, 4)
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Shape", ["x"], ["rest"], start=1),
        helper.make_node("ReduceProd", ["rest"], ["columns"], keepdims=0),
        helper.make_node("Unsqueeze", ["rows", "axis"], ["rows_1"]),
        helper.make_node("Unsqueeze", ["columns", "axis"], ["columns_1"]),
        helper.make_node("Concat", ["rows_1", "columns_1"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"]),
        helper.make_node("Range", ["zero", "columns", "one"], ["counted"]),
        helper.make_node("Cast", ["counted"], ["steps"], to=1),
        helper.make_node("Add", ["flat", "steps"], ["sum"]),
        helper.make_node("ConstantOfShape", ["target"], ["twos"], value=tensor("", f32([2]))),
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Cast", ["size"], ["size_f"], to=1),
        helper.make_node("Mul", ["size_f", "half"], ["scale"]),
        helper.make_node("Mul", ["twos", "scale"], ["offset"]),
        helper.make_node("Add", ["sum", "offset"], ["y"])]
    made = model_of(nodes, [port("x", x)], [port("y", floats(2, 12))],
                    [tensor("zero", i64(0)[0]), tensor("one", i64(1)[0]), tensor("axis", i64(0))])
    path = written(made, tmp_path / "shapes.onnx")
    model = load(path)
    assert model.output_shape == (None, 12) and not model.weights
    np.testing.assert_allclose(ours(model, x)[0], runtime(path, x)[0], rtol=1e-6)


def test_the_batch_may_come_first_in_sequences(tmp_path: Path) -> None:
    """layout=1 equals Transposes around the other layout."""
    x, case = floats(2, 4, 5), recurrent("LSTM", 4)
    arrays = [tensor(n, a) for n, a in zip("wrb", case.known, strict=True)]
    plain = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
             helper.make_node("LSTM", ["t", "w", "r", "b"], ["s"], hidden_size=3),
             helper.make_node("Transpose", ["s"], ["y"], perm=[2, 0, 1, 3])]
    turned = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=3, layout=1)]
    y = floats(2, 4, 1, 3)
    files = [written(model_of(nodes, [port("x", x)], [port("y", y)], arrays), tmp_path / f"{k}.onnx")
             for k, nodes in enumerate((plain, turned))]
    expected = runtime(files[0], x)[0]
    for path in files:
        np.testing.assert_allclose(ours(load(path), x)[0], expected, rtol=1e-5, atol=1e-6)


def test_positions_from_data(tmp_path: Path) -> None:
    """An embedding: negative positions count from the end, others are refused before a step."""
    ids = ints(2, 5, low=-6, high=6)
    made = single("Gather", [ids], [], {"axis": 0}, 18)
    made.graph.node[0].input[:] = ["table", "x0"]
    made.graph.initializer.append(tensor("table", floats(6, 3)))
    made.graph.output[0].type.tensor_type.elem_type = 1
    path = written(made, tmp_path / "embedding.onnx")
    model = load(path)
    np.testing.assert_array_equal(ours(model, ids)[0], runtime(path, ids)[0])
    assert model.trace(batch_size=2).metadata.input_range[""].high == 5
