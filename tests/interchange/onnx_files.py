"""Tiny ONNX files, and both ways to run one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import ztorch as zt
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import first_value, leaf
from ztorch.graph.value import Value
from ztorch.interchange.onnx.graph import OnnxGraph
from ztorch.interchange.onnx.save import encode
from ztorch.layers.context import Context
from ztorch.model.model import Model


def tensor(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def port(name: str, array: np.ndarray, batch: Any = "batch") -> onnx.ValueInfoProto:
    """An input like this array, for any batch."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                         [batch, *array.shape[1:]])


def model_of(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto],
             outputs: list[onnx.ValueInfoProto], arrays: list[onnx.TensorProto] | None = None,
             opset: int = 18) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, arrays or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


X = np.ones((2, 4), np.float32)
KERNEL = np.arange(12, dtype=np.float32).reshape(4, 3)


def dense() -> onnx.ModelProto:
    """relu(x @ w + b)."""
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="gemm"),
             helper.make_node("Relu", ["h"], ["y"], name="relu")]
    return model_of(nodes, [port("x", X)], [port("y", np.ones((2, 3), np.float32))],
                    [tensor("w", KERNEL), tensor("b", np.ones(3, np.float32))])


def broken(change: Callable[[onnx.ModelProto], None], path: Path) -> Path:
    made = dense()
    change(made)
    return written(made, path / "model.onnx")


def anything(name: str) -> onnx.ValueInfoProto:
    """An output of which nothing is said; shape inference finds its type."""
    return onnx.ValueInfoProto(name=name)


def single(op: str, data: list[np.ndarray], known: list[Any], attrs: dict[str, Any],
           opset: int, count: int = 1, fixed: bool = False) -> onnx.ModelProto:
    """A file of one node: data are inputs, known arrays are initializers, None is absent. With
    `fixed`, it is for batches of one size."""
    names = [f"x{k}" for k in range(len(data))]
    used = [*names, *("" if a is None else f"k{k}" for k, a in enumerate(known))]
    outputs = [f"y{k}" for k in range(count)]
    node = helper.make_node(op, used, outputs, name=op, **attrs)
    made = model_of([node], [
        port(n, a, len(a) if fixed else "batch") for n, a in zip(names, data, strict=True)], [],
                    [tensor(f"k{k}", a) for k, a in enumerate(known) if a is not None], opset)
    for name in outputs:
        made.graph.output.append(anything(name))
    inferred = onnx.shape_inference.infer_shapes(made)
    del made.graph.output[:]
    for result in inferred.graph.output:
        kind = result.type.tensor_type.elem_type
        rank = len(result.type.tensor_type.shape.dim)
        if not kind:  # of functions made of other ops, whose result is like their input
            kind, rank = helper.np_dtype_to_tensor_dtype(data[0].dtype), data[0].ndim
        made.graph.output.append(helper.make_tensor_value_info(result.name, kind, [None] * rank))
    return made


def written(made: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(made.SerializeToString())
    return path


def runtime(file: Path | bytes, *x: np.ndarray) -> list[np.ndarray]:
    """The results of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # more of them spin while they wait
    session = onnxruntime.InferenceSession(file if isinstance(file, bytes) else str(file), options)
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, x, strict=True)))


def ours(model: Model, *x: np.ndarray) -> list[np.ndarray]:
    """The results of the model's graph, by NumPy."""
    graph = model.trace(batch_size=len(x[0])).functions["predict"]
    feeds = dict(zip(graph.leaves("input"), x, strict=True))
    return evaluate(list(graph.outputs.values()), feeds)


# Those without a word in ONNX, by the op of the graph that is missing.
UNWRITABLE = {"mulhi", "place", "cut", "put", "shift_left", "shift_right", "random_bits", "bitcast",
              "atan2", "copysign", "signbit", "nextafter"}


def kinds(data: bytes) -> dict[str, int]:
    """How many nodes of each op a file holds."""
    return dict(Counter(n.op_type for n in onnx.load_from_string(data).graph.node))


def rows(model: Model, count: int) -> list[np.ndarray]:
    """Random inputs that the model takes."""
    random = np.random.default_rng(3)
    metadata = model.trace(batch_size=count).metadata
    out = []
    for name, one in model.inputs_by_name.items():
        ids = metadata.input_range[name]
        shape = (count, *one.row_shape)
        if one.dtype and "int" in one.dtype:
            out.append(random.integers(ids.low if ids else 0, ids.high + 1 if ids else 200,
                                       shape).astype(one.dtype))
        else:
            out.append(random.normal(size=shape).astype(np.float32))
    return out


def agrees(model: Model, tolerance: float = 2e-5) -> bytes:
    """The file, for batches of several sizes, after a check that it computes the same as the model."""
    data = encode(model)
    for count in (1, 3):
        x = rows(model, count)
        for a, b in zip(ours(model, *x), runtime(data, *x), strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)
    return data


def info(name: str, kind: int, *shape: int) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def layer(path: Path, nodes: list[Any], inputs: list[Any], arrays: list[Any] | None = None,
          output: Any = None, **options: Any) -> OnnxGraph:
    made = model_of(nodes, inputs, [output or info("y", TensorProto.FLOAT)], arrays, 22)
    loaded = zt.onnx.load_layer(written(made, path / "m.onnx"), **options)
    assert isinstance(loaded, OnnxGraph)
    return loaded


def evaluated(graph: OnnxGraph, *x: np.ndarray) -> np.ndarray:
    """The results of the graph, by NumPy."""
    values = [leaf("input", p.name, a.shape, p.dtype)
              for p, a in zip(graph.file.inputs, x, strict=True)]
    context = Context()
    feeds: dict[Value, Any] = dict(zip(values, x, strict=True))
    [result] = graph.run(values, context)
    feeds.update((s, first_value(s)) for s in context.states.leaves.values())
    return evaluate([result], feeds)[0]
