"""The only module that imports the package onnx: dtypes, messages and ops of the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.dtypes import ALL, DType, dtype
from ztorch.errors import ConfigError, Unsupported
from ztorch.version import __version__

MOST = 1 << 31  # bytes of a protobuf message

# Our dtypes by their numbers in the format. Ours lack strings and complex numbers.
DTYPES = {d.onnx: d for d in ALL}

# A node to be written: op, name, inputs, outputs, attributes.
Row = tuple[str, str, list[str], list[str], Mapping[str, Any]]


@dataclass(frozen=True)
class Port:
    """An input or output of a file."""

    name: str
    dims: tuple[int | str | None, ...]  # numbers, symbols, or None for an unknown size
    dtype: DType
    format: int = 0  # number of the format of codes; 0: these are not codes


@dataclass(frozen=True)
class Subgraph:
    """A graph to be written as an attribute of a node, such as the body of a loop. It reads tensors
    of the enclosing graph by their names."""

    name: str
    inputs: list[Port]
    outputs: list[Port]
    nodes: list[Row]


# Ops of ONNX Runtime that files have without its domain, as if they were ONNX's own.
WITHOUT_DOMAIN = {"SimplifiedLayerNormalization"}


def package() -> Any:
    """The package onnx. Raises an error that says how to install it."""
    try:
        import onnx
        import onnx.checker
        import onnx.defs
        import onnx.external_data_helper
        import onnx.helper
        import onnx.inliner
        import onnx.numpy_helper
        import onnx.shape_inference
        import onnx.version_converter
    except ImportError:
        raise ConfigError("ONNX files need the package onnx: pip install ztorch[onnx]") from None
    return onnx


def without_data(proto: Any, order: Sequence[int]) -> Any:
    """A copy of a model for the checker, with nodes in this order, and with inputs in place of
    large and external arrays.

    The checker does not need their numbers, and would open external files in any folder. Ops that
    ONNX Runtime writes without their domain get it.
    """
    onnx = package()
    light = onnx.ModelProto()
    light.CopyFrom(proto)
    input_names = {v.name for v in light.graph.input}
    small = []
    for tensor in light.graph.initializer:
        if len(tensor.raw_data) < 1024 and tensor.data_location != onnx.TensorProto.EXTERNAL:
            small.append(tensor)
        elif tensor.name not in input_names:
            light.graph.input.append(onnx.helper.make_tensor_value_info(
                tensor.name, tensor.data_type, tensor.dims))
    del light.graph.initializer[:]
    light.graph.initializer.extend(small)
    nodes = list(light.graph.node)
    del light.graph.node[:]
    light.graph.node.extend([nodes[k] for k in order])
    for node in light.graph.node:
        if node.op_type in WITHOUT_DOMAIN and not node.domain:
            node.domain = "com.microsoft"
    return light


def need_valid(model: Any) -> None:
    """Checks a model with the package onnx. Errors about an input, an output or a tensor, such as a
    missing type, name it."""
    onnx = package()
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        graph = model.graph
        ports = [("input", k, v) for k, v in enumerate(graph.input)] + [
            ("output", k, v) for k, v in enumerate(graph.output)] + [
            ("tensor", k, v) for k, v in enumerate(graph.value_info)]
        for noun, k, port in ports:
            try:
                onnx.checker.check_value_info(port)
            except onnx.checker.ValidationError:
                raise ValueError(f"{noun} {repr(port.name) if port.name else k}: {error}") from None
        raise
    except UnicodeDecodeError as error:  # the message holds a name that is not text
        raise ValueError(error.object.decode("utf-8", "replace")) from None


def is_standard(op: str) -> bool:
    """Whether any version of ONNX has this op."""
    return op in WITHOUT_DOMAIN or bool(package().defs.has(op))


def has_definition(proto: Any, opset: int) -> bool:
    """Whether the standard defines the op of a node by other ops."""
    onnx = package()
    try:
        schema = onnx.defs.get_schema(proto.op_type, opset, proto.domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: versions beyond its integers
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def body_of(proto: Any, opset: int, types: list[tuple[int, tuple[int, ...]] | None]) -> Any:
    """The function by which the standard defines the op of a node; None where there is none.

    Args:
        proto: The node.
        opset: The version of its domain.
        types: The number of the dtype and the shape of each input; None where it is left out.

    Returns:
        A FunctionProto. Attributes that it refers to are those of the node, or their defaults.
    """
    onnx = package()
    try:
        schema = onnx.defs.get_schema(proto.op_type, opset, proto.domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: versions beyond its integers
        return None
    if schema.has_context_dependent_function:
        rows = [(onnx.TypeProto() if t is None else
                 onnx.helper.make_tensor_type_proto(*t)).SerializeToString() for t in types]
        versions = schema.context_dependent_function_opset_versions
        version = max((v for v in versions if v <= opset), default=min(versions))
        data = schema.get_context_dependent_function_with_opset_version(
            version, proto.SerializeToString(), rows)
    elif schema.has_function:
        versions = schema.function_opset_versions
        data = schema.get_function_with_opset_version(
            max((v for v in versions if v <= opset), default=min(versions)))
    else:
        return None
    body = onnx.FunctionProto.FromString(data)
    attributes = {name: a.default_value for name, a in schema.attributes.items()
                  if a.default_value.type}
    attributes.update((a.name, a) for a in proto.attribute)
    _set_attributes(body.node, attributes)
    return body


def is_default(proto: Any, opset: int, name: str) -> bool:
    """Whether an attribute of a node has its default value."""
    onnx = package()
    try:
        schema = onnx.defs.get_schema(proto.op_type, opset, proto.domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: versions beyond its integers
        return False
    if name not in schema.attributes:
        return False
    default = schema.attributes[name].default_value
    [attribute] = [a for a in proto.attribute if a.name == name]
    return bool(default.type) and (onnx.helper.get_attribute_value(default) ==
                                   onnx.helper.get_attribute_value(attribute))


def _set_attributes(nodes: Any, attributes: Mapping[str, Any]) -> None:
    """Replaces references to attributes of a function by the attributes, in place."""
    for node in nodes:
        remaining = []
        for a in node.attribute:
            if a.ref_attr_name and a.ref_attr_name in attributes:
                name = a.name
                a.CopyFrom(attributes[a.ref_attr_name])
                a.name = name
            if not a.ref_attr_name:
                remaining.append(a)
                _set_attributes(a.g.node, attributes)
        del node.attribute[:]
        node.attribute.extend(remaining)


def packed(name: str, nodes: list[Row], inputs: list[Port], outputs: list[Port],
           arrays: Mapping[str, np.ndarray], opset: int) -> bytes:
    """The bytes of a checked model."""
    onnx = package()
    make = onnx.helper
    size = sum(a.nbytes for a in arrays.values())
    if size > MOST - (1 << 24):
        raise Unsupported(f"model {name!r} has {size / 2**30:.1f} GiB of weights; an ONNX file "
                          "holds less than 2 GiB")
    large = {n: a for n, a in arrays.items() if a.nbytes > 1024}
    graph = make.make_graph(
        _messages(nodes), name, [_value_info(p) for p in inputs], [_value_info(p) for p in outputs],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()
         if n not in large])
    model = make.make_model(graph, producer_name="ztorch", producer_version=__version__,
                            opset_imports=[make.make_opsetid("", opset)], ir_version=10)
    light = onnx.ModelProto()  # the checker would copy large weights several times
    light.CopyFrom(model)
    light.graph.input.extend(
        _value_info(Port(n, a.shape, dtype(a.dtype))) for n, a in large.items())
    onnx.checker.check_model(light, full_check=True)
    for n, array in large.items():
        model.graph.initializer.add(
            name=n, dims=array.shape, data_type=dtype(array.dtype).onnx,
            raw_data=array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return model.SerializeToString(deterministic=True)


def _value_info(port: Port) -> Any:
    """An input or output as a message."""
    return package().helper.make_tensor_value_info(port.name, port.dtype.onnx, port.dims)


def _messages(rows: list[Row]) -> list[Any]:
    """Nodes as messages, including the graphs among their attributes."""
    make = package().helper
    return [make.make_node(op, inputs, outputs, name=name, **{
        key: make.make_graph(_messages(a.nodes), a.name, [_value_info(p) for p in a.inputs],
                             [_value_info(p) for p in a.outputs])
        if isinstance(a, Subgraph) else a for key, a in attrs.items()})
        for op, name, inputs, outputs, attrs in rows]
