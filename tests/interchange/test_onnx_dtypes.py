"""Ops in the dtypes of the standard, and results of a size that depends on the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import ztorch as zt
from tests.cases.covering import today
from tests.interchange.onnx_files import evaluated, info, layer, model_of, tensor, written
from tools import onnx_dtypes
from tools.onnx_cases import Verdict
from ztorch.errors import Unsupported
from ztorch.interchange.onnx.node import MOVES

FEW = "BitCast,CenterCropPad,Gemm,IsInf,TensorScatter"


def test_the_dtypes_of_a_few_ops(capsys: pytest.CaptureFixture[str]) -> None:
    """A third in each run; `.ci/run` tries those of all ops by itself."""
    assert onnx_dtypes.main(["--only", FEW, "--jobs", "1", "--each", "3", "--turn", str(today())]) == 0
    passed, *others = capsys.readouterr().out.split(", ")
    assert int(passed.removesuffix(" pass\n").split()[0]) > 50 and not others


def test_a_difference_is_listed_unless_it_is_explained(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(onnx_dtypes, "judge", lambda case, device: Verdict("wrong", "other numbers"))
    assert onnx_dtypes.main(["--only", "Erf", "--jobs", "1"]) == 1
    output = capsys.readouterr().out
    assert "test_erf of opset 13, float16: wrong: other numbers" in output
    assert "opset 13, double" not in output and "1 explained" in output


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_integers_are_resized_as_numbers(mode: str, tmp_path: Path) -> None:
    """They are interpolated as floats, rounded, and cut to the range of their dtype."""
    pixels = np.array([[0, 50, 8], [250, 9, 255]], np.uint8).reshape(1, 1, 2, 3)
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)
    made = model_of([node], [info("x", TensorProto.UINT8, *pixels.shape)],
                    [info("y", TensorProto.UINT8, 1, 1, 4, 6)],
                    [tensor("s", np.float32([1, 1, 2, 2]))], 19)
    graph: Any = zt.onnx.load_layer(written(made, tmp_path / "m.onnx"))
    wide = onnx.ModelProto.FromString(made.SerializeToString())
    for port in (*wide.graph.input, *wide.graph.output):
        port.type.tensor_type.elem_type = TensorProto.FLOAT
    [y] = ReferenceEvaluator(wide).run(None, {"x": pixels.astype(np.float32)})
    right = np.clip(np.round(y), 0, 255)
    assert right.min() == 0 and right.max() == 255 and len(np.unique(right)) > 9
    np.testing.assert_array_equal(np.asarray(graph([zt.tensor(pixels)])), right)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("name", ["FLOAT6E2M3", "FLOAT6E3M2"])
def test_floats_of_6_bits(name: str, raw: bool, tmp_path: Path) -> None:
    """Raw ones are adjacent, four in three bytes; others have a number each."""
    number = getattr(TensorProto, name)
    few = np.float32([0.25, -1.5, 6, 0, 2])
    stored = (tensor("c", few.astype(helper.tensor_dtype_to_np_dtype(number))) if raw else
              helper.make_tensor("c", number, [5], few))
    nodes = [helper.make_node("Cast", ["c"], ["wide"], to=TensorProto.FLOAT),
             helper.make_node("Add", ["x", "wide"], ["y"])]
    graph = layer(tmp_path, nodes, [info("x", TensorProto.FLOAT, 5)], [stored])
    np.testing.assert_array_equal(evaluated(graph, np.zeros(5, np.float32)), few)


def test_codes_are_moved_as_they_are(tmp_path: Path) -> None:
    codes = np.array([[1, 2, 3], [250, 251, 252]], np.uint8)
    nodes = [helper.make_node("Transpose", ["x"], ["t"]),
             helper.make_node("Reshape", ["t", "shape"], ["y"])]
    graph = layer(tmp_path, nodes, [info("x", TensorProto.FLOAT8E5M2, 2, 3)],
                  [tensor("shape", np.int64([6]))], info("y", TensorProto.FLOAT8E5M2, 6))
    np.testing.assert_array_equal(evaluated(graph, codes), codes.T.reshape(-1))
    assert {"Reshape", "Transpose", "Pad", "TensorScatter"} <= MOVES


@pytest.mark.parametrize("by_center", [0, 1])
@pytest.mark.parametrize("most", [2, 30])
def test_boxes_that_are_chosen_later(most: int, by_center: int, tmp_path: Path) -> None:
    random = np.random.default_rng(most)
    boxes = random.uniform(0, 1, (2, 12, 4)).astype(np.float32)
    scores = random.uniform(0, 1, (2, 3, 12)).astype(np.float32)
    scores[0, 0, 3] = scores[0, 0, 7]  # of two alike the first is better
    node = helper.make_node("NonMaxSuppression", ["b", "s", "most", "overlap", "lowest"], ["y"],
                            center_point_box=by_center)
    inputs = [info("b", TensorProto.FLOAT, 2, 12, 4), info("s", TensorProto.FLOAT, 2, 3, 12)]
    arrays = [tensor("most", np.int64([most])), tensor("overlap", np.float32([0.3])),
              tensor("lowest", np.float32([0.4]))]
    output = helper.make_tensor_value_info("y", TensorProto.INT64, [None, 3])
    known = layer(tmp_path, [node], inputs, arrays, output, constants={"b": boxes, "s": scores})
    right = evaluated(known)
    graph = layer(tmp_path, [node], inputs, arrays, output, pad_results=True)
    y = evaluated(graph, boxes, scores)
    assert y.shape == (2 * 3 * min(most, 12), 3) and y.dtype == np.int64 and len(right) > 5
    np.testing.assert_array_equal(y[:len(right)], right)
    assert (y[len(right):] == -1).all()
    with pytest.raises(Unsupported, match=r"'b'.*constants=.*pad_results=True"):
        evaluated(layer(tmp_path, [node], inputs, arrays, output), boxes, scores)
