"""`zt.onnx.load_layer`: graphs without a batch, in the dtypes of the file; and random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import ztorch as zt
from tests.interchange.onnx_files import evaluated, info, layer, model_of, runtime, tensor, written
from ztorch.errors import ConfigError, Unsupported
from ztorch.interchange.onnx.graph import OnnxGraph
from ztorch.interchange.onnx.node import NODES


def test_it_needs_no_batch_and_trains(tmp_path: Path) -> None:
    kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
    graph = layer(tmp_path, [helper.make_node("MatMul", ["x", "w"], ["p"]),
                             helper.make_node("ReduceSum", ["p"], ["y"], keepdims=0)],
                  [info("x", TensorProto.FLOAT, 2)], [tensor("w", kernel)])
    x = np.float32([2, -1])
    assert float(graph([zt.tensor(x)])) == (x @ kernel).sum()
    assert [w.name for w in graph.trainable_weights] == ["w"]
    gradient = zt.grad(lambda w: graph.stateless_call([w], [], [zt.tensor(x)])[0])(
        zt.tensor(kernel))
    np.testing.assert_array_equal(np.asarray(gradient), [[2, 2, 2], [-1, -1, -1]])


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_floats_keep_their_dtype(dtype: str, tmp_path: Path) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = layer(tmp_path, [helper.make_node("Add", ["x", "b"], ["y"])],
                  [info("x", kind, 2)], [tensor("b", np.array([0.1, 0.2], dtype))],
                  info("y", kind, 2))
    y = np.asarray(graph([zt.tensor(np.array([1, 2], dtype))]))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, np.array([1, 2], dtype) + np.array([0.1, 0.2], dtype))


def test_inputs_that_shapes_depend_on(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    inputs = [info("x", TensorProto.FLOAT, 2, 3), info("shape", TensorProto.INT64, 2)]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    fixed = layer(tmp_path, nodes, inputs, constants={"shape": np.array([3, 2])})
    np.testing.assert_array_equal(evaluated(fixed, x), x.reshape(3, 2))
    with pytest.raises(Unsupported, match=r"Reshape 'y': input 1 depends on the data.* 'shape'"):
        evaluated(layer(tmp_path, nodes, inputs), x, np.array([3, 2]))
    with pytest.raises(ConfigError, match=r"unknown input 'shapes'.*shape"):
        layer(tmp_path, nodes, inputs, constants={"shapes": np.array([3, 2])})


def test_unknown_attributes_are_refused(tmp_path: Path,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """A later opset may give an op an attribute that changes its result."""
    graph = layer(tmp_path, [helper.make_node("LpNormalization", ["x"], ["y"], p=1)],
                  [info("x", TensorProto.FLOAT, 2)])
    assert evaluated(graph, np.float32([3, -1])).tolist() == [0.75, -0.25]
    monkeypatch.setitem(NODES, "LpNormalization", lambda n: n.value(0))
    with pytest.raises(Unsupported, match="LpNormalization 'y': attribute 'p'"):
        evaluated(graph, np.float32([3, -1]))


def test_ops_are_expanded_by_their_standard_definition(tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    graph = layer(tmp_path, [helper.make_node("Elu", ["x"], ["y"], alpha=2.0)],
                  [info("x", TensorProto.FLOAT, 2)])
    monkeypatch.delitem(NODES, "Elu")
    y = evaluated(graph, np.float32([-1, 3]))
    np.testing.assert_allclose(y, [2 * np.expm1(-1), 3], rtol=1e-6)


def test_optional_inputs_are_decided_while_importing(tmp_path: Path) -> None:
    def branch(name: str, *nodes: Any) -> Any:
        return helper.make_graph([*nodes], name, [], [info(f"{name}_y", TensorProto.FLOAT, 2)])

    nodes = [helper.make_node("OptionalHasElement", ["b"], ["is_there"]),
             helper.make_node("If", ["is_there"], ["y"],
                              then_branch=branch("some", helper.make_node("Add", ["x", "b"], [
                                  "some_y"])),
                              else_branch=branch("none", helper.make_node("Neg", ["x"], [
                                  "none_y"])))]
    inputs, x = [info("x", TensorProto.FLOAT, 2), info("b", TensorProto.FLOAT, 2)], np.float32([1, 2])
    assert evaluated(layer(tmp_path, nodes, inputs), x, x).tolist() == [2, 4]
    without = layer(tmp_path, nodes, inputs, constants={"b": None})
    assert evaluated(without, x).tolist() == [-1, -2]
    kept = [helper.make_node("Optional", ["x"], ["o"]),
            helper.make_node("OptionalGetElement", ["o"], ["y"])]
    assert evaluated(layer(tmp_path, kept, inputs[:1]), x).tolist() == [1, 2]


MANY = (200, 100)
RANDOM = {  # attributes, inputs, mean and deviation
    "RandomUniform": ({"shape": MANY, "low": -1.0, "high": 3.0}, [], 1.0, 4 / 12 ** 0.5),
    "RandomNormal": ({"shape": MANY, "mean": 2.0, "scale": 0.5, "seed": 1.0}, [], 2.0, 0.5),
    "RandomUniformLike": ({}, [np.zeros(MANY, np.float32)], 0.5, 1 / 12 ** 0.5),
    "RandomNormalLike": ({}, [np.zeros(MANY, np.float32)], 0.0, 1.0),
    "Bernoulli": ({}, [np.full(MANY, 0.2, np.float32)], 0.2, 0.4),
    "Multinomial": ({"sample_size": 100, "dtype": 1},
                    [np.log(np.tile(np.float32([0.5, 0.25, 0.25]), (200, 1)))], 0.75, 0.829),
    "Dropout": ({}, [np.ones(MANY, np.float32), np.float32(0.25), np.array(True)],
                1.0, (0.25 / 0.75) ** 0.5),
}


@pytest.mark.parametrize("op", RANDOM)
def test_random_numbers(op: str, tmp_path: Path) -> None:
    attrs, x, mean, deviation = RANDOM[op]
    arrays = [tensor(f"x{k}", a) for k, a in enumerate(x)][1:]
    graph = layer(tmp_path, [helper.make_node(op, [f"x{k}" for k in range(len(x))], ["y"], **attrs)],
                  [info("x0", TensorProto.FLOAT, *x[0].shape)] if x else [], arrays)
    y = evaluated(graph, *x[:1])
    assert y.shape == MANY
    assert y.mean() == pytest.approx(mean, abs=0.03) and y.std() == pytest.approx(deviation, abs=0.03)


def test_eight_bit_floats_are_codes(tmp_path: Path) -> None:
    """1.0, the largest number, one too large, NaN, minus zero, and a tie that goes to even."""
    kinds = {TensorProto.FLOAT8E4M3FN: [0x38, 0x7E, 0x7E, 0x7F, 0x80, 0x38],
             TensorProto.FLOAT8E5M2: [0x3C, 0x5F, 0x64, 0x7E, 0x80, 0x3C]}
    x = np.float32([1, 448, 1000, np.nan, -0.0, 1.0625])
    for kind, codes in kinds.items():
        graph = layer(tmp_path, [helper.make_node("Cast", ["x"], ["y"], to=kind)],
                      [info("x", TensorProto.FLOAT, 6)], output=info("y", kind, 6))
        assert evaluated(graph, x).tolist() == codes


DTYPES = {  # op, attributes and inputs of several dtypes, dtype of the result
    "mean of integers": ("ReduceMean", {"keepdims": 0}, [np.int32([-3, -2, 0])], np.int32(-1)),
    "norm of integers": ("ReduceL2", {"keepdims": 0}, [np.uint32([3, 3])], np.uint32(4)),
    "shrunk integers": ("Shrink", {"lambd": 2.0, "bias": 1.0}, [np.uint8([1, 2, 3])], np.uint8([0, 0, 2])),
    "values of another dtype": ("Attention", {}, [
        np.ones((1, 1, 1, 2), np.float16)] * 2 + [np.float32([[[[3, 5]]]])], np.float16([[[[3, 5]]]])),
    "halves beside floats": ("BatchNormalization", {"epsilon": 0.0}, [
        np.float16([[3], [5]]), *np.float32([[2], [1], [4], [0.25]])], np.float16([[-3], [5]]))}


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_of_the_standard(name: str, tmp_path: Path) -> None:
    op, attrs, x, expected = DTYPES[name]
    inputs = [info(f"x{k}", helper.np_dtype_to_tensor_dtype(a.dtype), *a.shape) for k, a in enumerate(x)]
    made = model_of([helper.make_node(op, [i.name for i in inputs], ["y"], **attrs)], inputs,
                    [info("y", helper.np_dtype_to_tensor_dtype(expected.dtype), *expected.shape)],
                    opset=23)
    graph = zt.onnx.load_layer(written(made, tmp_path / "m.onnx"))
    assert isinstance(graph, OnnxGraph)
    y = evaluated(graph, *x)
    assert y.dtype == expected.dtype
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_the_largest_of_regions(scale: float, tmp_path: Path) -> None:
    """Regions beyond the image are cut off, and empty bins are 0."""
    x = np.random.default_rng(0).normal(size=(2, 3, 9, 8)).astype(np.float32)
    rois = np.float32([[0, 0, 0, 5, 6], [1, 2, 1, 7, 8], [1, 4, 4, 4, 4], [0, -3, 2, 30, 5],
                       [0, 7, 7, 3, 3], [1, 40, 40, 50, 50]])
    node = helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[3, 2], spatial_scale=scale)
    made = model_of([node], [info("x", TensorProto.FLOAT, *x.shape),
                             info("r", TensorProto.FLOAT, *rois.shape)],
                    [info("y", TensorProto.FLOAT, 6, 3, 3, 2)])
    graph: Any = zt.onnx.load_layer(path := written(made, tmp_path / "m.onnx"))
    np.testing.assert_array_equal(np.asarray(graph([zt.tensor(x), zt.tensor(rois)])),
                                  runtime(path, x, rois)[0])


def test_deformed_windows_of_other_axes(tmp_path: Path) -> None:
    """One axis is what two are of which one has a single element; three without shifts are plain
    windows."""
    random = np.random.default_rng(0)

    def given(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    def result(attrs: dict[str, Any], *x: np.ndarray, op: str = "DeformConv") -> np.ndarray:
        names = ["x", "w", "offset"][:len(x)]
        graph = layer(tmp_path, [helper.make_node(op, names, ["y"], **attrs)],
                      [info(n, TensorProto.FLOAT, *a.shape) for n, a in zip(names, x, strict=True)])
        return evaluated(graph, *x)

    x, w, shifts = given(2, 3, 9), given(4, 3, 3), given(2, 3, 4)
    both = np.stack([np.zeros_like(shifts), shifts], 2).reshape(2, 6, 1, 4)
    line = result({"strides": [2], "pads": [1, 0]}, x, w, shifts)
    wide = result({"strides": [1, 2], "pads": [0, 1, 0, 0]}, x[:, :, None], w[:, :, None], both)
    np.testing.assert_allclose(line, wide[:, :, 0], rtol=1e-5, atol=1e-6)
    solid, kernel = given(1, 2, 5, 4, 6), given(3, 2, 2, 3, 2)
    np.testing.assert_allclose(
        result({"dilations": [2, 1, 1]}, solid, kernel, np.zeros((1, 36, 3, 2, 5), np.float32)),
        result({"dilations": [2, 1, 1]}, solid, kernel, op="Conv"), rtol=1e-4, atol=1e-5)
