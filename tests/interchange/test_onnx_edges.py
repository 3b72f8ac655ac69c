"""Edges of ONNX ops: numbers and shapes that the suite of ONNX does not try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import ztorch as zt
from tests.interchange.onnx_files import evaluated, info, model_of, runtime, tensor, written
from ztorch import layers as L
from ztorch.errors import Unsupported
from ztorch.interchange.onnx.graph import OnnxGraph
from ztorch.interchange.onnx.save import encode

INF = np.inf
BYTES = np.array([5, 4, 250], np.uint8)
EMPTY = [np.ones((2, 3, 8, 9), np.float32), np.zeros((0, 4), np.float32), np.zeros(0, np.int64)]
NO_BOXES = np.zeros((0, 3, 2, 1), np.float32)
# op, attributes, inputs, constant inputs, the result
EDGES: dict[str, tuple[str, dict[str, Any], list[Any], list[Any], Any]] = {
    "no infinity counts": ("IsInf", {"detect_positive": 0, "detect_negative": 0}, [np.array([np.inf, -np.inf], np.float32)],
                           [], np.array([False, False])),
    "the sign of NaN": ("Sign", {}, [np.array([np.nan, -0.0, -np.inf, 2], np.float32)], [], np.array([np.nan, 0, -1, 1], np.float32)),
    "0 to a large power": ("Pow", {}, [np.array([0, -1, 1, 0, 2], np.int64), np.array([64, 65, 64, 0, 3], np.int64)], [],
                           np.array([0, -1, 1, 1, 8], np.int64)),
    "more classes than a byte counts": ("OneHot", {}, [BYTES], [np.int64(300), np.array([0, 1], np.float32)],
                                        np.eye(300, dtype=np.float32)[BYTES]),
    "labels that count from the end": ("OneHot", {}, [np.array([-3], np.int8)], [np.int64(200), np.array([0, 1], np.float32)],
                                       np.eye(200, dtype=np.float32)[[197]]),
    "no regions": ("RoiAlign", {"output_height": 2}, EMPTY, [], NO_BOXES),
    "no regions of fixed samples": ("RoiAlign", {"output_height": 2, "sampling_ratio": 2}, EMPTY, [], NO_BOXES),
    "a slice backwards from before the start": ("Slice", {}, [np.arange(3, dtype=np.float32)], [
        np.array([-5]), np.array([-9]), np.array([0]), np.array([-2])], np.zeros(1, np.float32)),
    "a crop that stays inside": ("Resize", {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear",
                                            "extrapolation_value": 9.0},
                                 [np.arange(5, dtype=np.float32)], [np.array([0, 0.5], np.float32), np.zeros(0, np.float32),
                                                                    np.array([3])], np.array([0, 1, 2], np.float32)),
    "positions in a number without axes": ("NonZero", {}, [], [np.float32(5)], np.zeros((0, 1), np.int64)),
    "a number without axes": ("Pad", {}, [np.float32(3)], [np.zeros(0, np.int64)], np.float32(3)),
    "the code of NaN is the lowest": ("QuantizeLinear", {}, [np.array([np.nan, -9e30, 9e30, 2.5, 3.5, -INF], np.float32)], [
        np.float32(1), np.uint8(7)], np.array([0, 0, 255, 9, 11, 0], np.uint8)),
    "zeros made bytes": ("DynamicQuantizeLinear", {}, [np.zeros(2, np.float32)], [], np.array([0, 0], np.uint8)),
}


@pytest.mark.cheap
@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str, tmp_path: Path) -> None:
    op, attrs, x, constants, expected = EDGES[name]
    inputs = [info(f"x{k}", helper.np_dtype_to_tensor_dtype(a.dtype), *a.shape) for k, a in enumerate(x)]
    arrays = [tensor(f"k{k}", a) for k, a in enumerate(constants)]
    outputs = ["y", "scale", "zero"] if op == "DynamicQuantizeLinear" else ["y"]
    node = helper.make_node(op, [*(i.name for i in inputs), *(a.name for a in arrays)], outputs, **attrs)
    kind = helper.np_dtype_to_tensor_dtype(expected.dtype)
    graph = zt.onnx.load_layer(written(model_of([node], inputs, [info("y", kind, *expected.shape)], arrays, 20),
                                       tmp_path / "m.onnx"))
    assert isinstance(graph, OnnxGraph)
    y = evaluated(graph, *x)
    assert y.dtype == expected.dtype
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("op", ["logaddexp", "remainder", "floor_divide", "hypot"])
def test_files_compute_with_infinities_and_large_quotients(op: str) -> None:
    a = np.array([[INF, -INF, INF, 1, 5, -5, 5, 1e6, -1e6, -7.5, 1, -1, 0, 3e30, 1e-30]], np.float32)
    b = np.array([[INF, -INF, -INF, INF, INF, INF, -3, 0.3, 0.7, 2.5, 1e-4, 0, 0, 4e30, 1e-30]], np.float32)
    x, y = L.Input((15,)), L.Input((15,))
    file = encode(zt.Model([x, y], getattr(zt.ops, op)(x, y)))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(runtime(file, a, b)[0], getattr(np, op)(a, b), rtol=1e-6)


@pytest.mark.parametrize("op", ["expm1", "log1p"])
def test_files_compute_small_numbers(op: str) -> None:
    a = np.array([[0, -0.0, 1e-8, -1e-8, 1e-4, -0.3, 0.9, 7, 1e10, INF, -1]], np.float32)
    with np.errstate(all="ignore"):
        [y] = runtime(encode(zt.Model(x := L.Input((11,)), getattr(zt.ops, op)(x))), a)
        np.testing.assert_allclose(y, getattr(np, op)(a), rtol=1e-6)


def test_files_reduce_no_axes() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    [y] = runtime(encode(zt.Model(i := L.Input((2, 3)), zt.ops.mean(i, axis=()))), x)
    np.testing.assert_array_equal(y, x)


def test_a_table_of_packed_codes_must_be_known(tmp_path: Path) -> None:
    """It was read as one code a byte where it is an input."""
    inputs = [info("table", TensorProto.UINT8, 4, 8), info("x", TensorProto.INT64, 2), info("s", TensorProto.FLOAT, 4, 1)]
    node = helper.make_node("GatherBlockQuantized", ["table", "x", "s"], ["y"], domain="com.microsoft", block_size=16,
                            bits=4)
    made = model_of([node], inputs, [info("y", TensorProto.FLOAT, 2, 16)], opset=21)
    made.opset_import.add(domain="com.microsoft", version=1)
    table, x = np.arange(32, dtype=np.uint8).reshape(4, 8) * 7, np.array([3, 1])
    scales, path = np.array([[0.5], [1], [2], [4]], np.float32), written(made, tmp_path / "m.onnx")
    graph: Any = zt.onnx.load_layer(path)
    with pytest.raises(Unsupported, match="input 0 depends on the data, on 'table'"):
        evaluated(graph, table, x, scales)
    fixed: Any = zt.onnx.load_layer(path, constants={"table": table})
    np.testing.assert_array_equal(evaluated(fixed, x, scales), runtime(path, table, x, scales)[0])
