"""Converts files that we wrote to other opsets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.interchange.onnx.protobuf import package

# Ops whose older versions mean the same; the checker finds attributes, inputs and dtypes that they
# lack. The converter of the package onnx cannot downgrade some of them, so they are moved to a
# domain that it does not touch.
_SAME = {"Add", "BatchNormalization", "ConstantOfShape", "Div", "Identity", "Mul", "Pad", "Pow",
         "Relu", "Reshape", "Shape", "Sub"}
_SAME_DOMAIN = "ztorch.same"
_SHAPE_SLICES = 15  # the first opset in which Shape has `start` and `end`
# What the converter says of an op that it cannot downgrade.
_REFUSED = re.compile(r"(?:No Adapter (?:From|To) Version \$\d+ for |No schema registered for '|"
                      r"\[ShapeInferenceError\] \(op_type:)(\w+)")
_BFLOAT16 = 13  # in this opset most ops got bfloat16, and changed in nothing else


def _move(graph: Any, old: str, new: str, ops: Collection[str] | None = None) -> None:
    """Moves the nodes of some ops, or of all, in a graph, and in its inner graphs, to another
    domain."""
    for node in graph.node:
        if node.domain == old and (ops is None or node.op_type in ops):
            node.domain = new
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _move(attribute.g, old, new, ops)


def _form(onnx: Any, op: str, opset: int) -> Any:
    """The inputs and attributes of an op in an opset."""
    schema = onnx.defs.get_schema(op, opset)
    return len(schema.inputs), {name: (a.type, str(a.default_value))
                                for name, a in schema.attributes.items()}


def converted(data: bytes, opset: int, label: str) -> bytes:
    """The bytes of a file in another opset, by the converter of the package onnx. Ops that the
    opset lacks are replaced by their definitions in the standard."""
    onnx = package()
    try:
        model = _without_newer(onnx, onnx.load_from_string(data), opset)
        model = _by_steps(onnx, model, max(opset, _BFLOAT16), _SAME)
        if opset < _BFLOAT16:
            same = {op for op in _ops(model.graph)
                    if _form(onnx, op, opset) == _form(onnx, op, _BFLOAT16)}
            model = _by_steps(onnx, model, opset, _SAME | {"Constant"} | same)
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        reason = str(error).splitlines()[0].rpartition("failed: ")[2]
        op = _REFUSED.match(reason)
        raise Unsupported(f"{label} cannot be written with opset {opset}: "
                          f"{f'its op {op[1]} changed since' if op else reason}; choose a later "
                          "opset") from None
    return bytes(model.SerializeToString())


def _by_steps(onnx: Any, model: Any, opset: int, same: Collection[str]) -> Any:
    """A model in another opset, by the converter, where some ops mean the same in both."""
    _move(model.graph, "", _SAME_DOMAIN, same)
    model.opset_import.add(domain=_SAME_DOMAIN, version=1)
    model = onnx.version_converter.convert_version(model, opset)
    _move(model.graph, _SAME_DOMAIN, "")
    del model.opset_import[1]
    return model


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
    if opset < _SHAPE_SLICES:
        _without_shape_slices(onnx, model.graph)
    return model


def _without_shape_slices(onnx: Any, graph: Any) -> None:
    """Replaces each Shape of some axes by a Shape and a Slice."""
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        ends = {a.name: a.i for a in node.attribute}
        if node.op_type == "Shape" and ends:
            [y] = node.output
            full, start, end = (f"{y}/{name}" for name in ("full", "start", "end"))
            graph.node.extend([
                onnx.helper.make_node("Shape", node.input, [full]),
                onnx.helper.make_node("Slice", [full, start, end], [y])])
            graph.initializer.extend([
                onnx.numpy_helper.from_array(np.array([ends.get("start", 0)]), start),
                onnx.numpy_helper.from_array(np.array([ends.get("end", 1 << 31)]), end)])
        else:
            graph.node.append(node)


def _ops(graph: Any) -> Iterator[str]:
    """The ops of a graph and of its inner graphs."""
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
