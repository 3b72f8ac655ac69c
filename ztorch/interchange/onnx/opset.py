"""Our files in other versions of ONNX's ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.interchange.onnx.protobuf import package

# The checker sees attributes, inputs and dtypes that older versions of these ops lack: all else
# means the same. The converter of the package onnx has no way back from some of their versions, so
# meanwhile they are of a domain that it leaves alone.
_SAME = {"Add", "BatchNormalization", "ConstantOfShape", "Div", "Identity", "Mul", "Pad", "Pow",
         "Relu", "Reshape", "Shape", "Sub"}
_SAME_DOMAIN = "ztorch.same"
_PARTS_OF_SHAPES = 15  # the opset from which on Shape has `start` and `end`


def _move(graph: Any, old: str, new: str) -> None:
    """Gives such nodes of a graph, and of those in it, another domain."""
    for node in graph.node:
        if node.op_type in _SAME and node.domain == old:
            node.domain = new
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _move(attribute.g, old, new)


def converted(data: bytes, opset: int, label: str) -> bytes:
    """The bytes of a file in another version of the ops, by the converter of the package onnx. Ops
    that this version lacks become those that the standard defines them by."""
    onnx = package()
    try:
        model = _without_newer(onnx, onnx.load_from_string(data), opset)
        _move(model.graph, "", _SAME_DOMAIN)
        model.opset_import.add(domain=_SAME_DOMAIN, version=1)
        model = onnx.version_converter.convert_version(model, opset)
        _move(model.graph, _SAME_DOMAIN, "")
        del model.opset_import[1]
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        reason = str(error).splitlines()[0].rpartition("failed: ")[2]
        raise Unsupported(f"{label} cannot be written with opset {opset}: {reason}; an op of it is "
                          "newer. Take a later opset") from None
    return bytes(model.SerializeToString())


def _without_newer(onnx: Any, model: Any, opset: int) -> Any:
    """A model whose newer ops are replaced by their definitions in the standard, repeatedly until
    none are left."""
    before: set[str] = set()
    while (newer := {op for op in _ops(model.graph) if not _has(onnx, op, opset)}) - before:
        before |= newer
        typed = [onnx.helper.make_tensor_value_info(a.name, a.data_type, a.dims)
                 for a in model.graph.initializer]  # definitions may depend on types
        model.graph.value_info.extend(typed)
        model = onnx.inliner.inline_selected_functions(
            model, [("", op) for op in sorted(newer)], inline_schema_functions=True)
        del model.graph.value_info[:]
    if opset < _PARTS_OF_SHAPES:
        _whole_shapes(onnx, model.graph)
    return model


def _whole_shapes(onnx: Any, graph: Any) -> None:
    """Slices the shapes of which definitions read some axes."""
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        ends = {a.name: a.i for a in node.attribute}
        if node.op_type == "Shape" and ends:
            [y] = node.output
            whole, start, end = (f"{y}/{name}" for name in ("whole", "start", "end"))
            graph.node.extend([
                onnx.helper.make_node("Shape", node.input, [whole]),
                onnx.helper.make_node("Slice", [whole, start, end], [y])])
            graph.initializer.extend([
                onnx.numpy_helper.from_array(np.array([ends.get("start", 0)]), start),
                onnx.numpy_helper.from_array(np.array([ends.get("end", 1 << 31)]), end)])
        else:
            graph.node.append(node)


def _ops(graph: Any) -> Iterator[str]:
    """The ops of a graph and of those in it."""
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _ops(attribute.g)


def _has(onnx: Any, op: str, opset: int) -> bool:
    try:
        return not onnx.defs.get_schema(op, opset).deprecated
    except onnx.defs.SchemaError:
        return False
