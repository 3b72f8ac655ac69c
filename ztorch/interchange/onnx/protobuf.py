"""The only import of the `onnx` package, which knows the format: its dtypes, messages and ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.dtypes import ALL, DType, dtype
from ztorch.errors import ConfigError, Unsupported
from ztorch.version import __version__

MOST = 1 << 31  # bytes that a protobuf message can have

# Our dtypes by the format's numbers; the rest (strings, complex, float8) is foreign.
DTYPES = {d.onnx: d for d in ALL}

# A node to be written: op, name, inputs, outputs, attributes.
Row = tuple[str, str, list[str], list[str], Mapping[str, Any]]


@dataclass(frozen=True)
class Port:
    """An input or output of a file."""

    name: str
    dims: tuple[int | str | None, ...]  # numbers, symbols, or None for an unknown size
    dtype: DType
    format: int = 0  # number of the format whose codes these are; 0: none


@dataclass(frozen=True)
class Subgraph:
    """A graph that is an attribute of a node, such as the body of a loop. It reads tensors of the
    graph around it by their names."""

    name: str
    inputs: list[Port]
    outputs: list[Port]
    nodes: list[Row]


# Ops of ONNX Runtime that appear in files as if they were ONNX's own.
WITHOUT_DOMAIN = {"SimplifiedLayerNormalization"}


def package() -> Any:
    """The `onnx` package, or an error that says how to get it."""
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


def without_data(proto: Any) -> Any:
    """A model for the checker, which need not see large arrays: inputs take their place. It would
    open external files by itself, in any folder. Ops that ONNX Runtime writes without their domain
    get it."""
    onnx = package()
    light = onnx.ModelProto()
    light.CopyFrom(proto)
    declared = {v.name for v in light.graph.input}
    kept = []
    for tensor in light.graph.initializer:
        if len(tensor.raw_data) < 1024 and tensor.data_location != onnx.TensorProto.EXTERNAL:
            kept.append(tensor)
        elif tensor.name not in declared:
            light.graph.input.append(onnx.helper.make_tensor_value_info(
                tensor.name, tensor.data_type, tensor.dims))
    del light.graph.initializer[:]
    light.graph.initializer.extend(kept)
    for node in light.graph.node:
        if node.op_type in WITHOUT_DOMAIN and not node.domain:
            node.domain = "com.microsoft"
    return light


def need_valid(model: Any) -> None:
    """Checks a model with the package; errors about an input or output, such as a missing type,
    name it."""
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
    """Whether any version of ONNX itself has an op."""
    return op in WITHOUT_DOMAIN or bool(package().defs.has(op))


def has_definition(proto: Any, opset: int) -> bool:
    """Whether the standard defines an op by others."""
    onnx = package()
    try:
        schema = onnx.defs.get_schema(proto.op_type, opset, proto.domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: of versions beyond its integers
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def body_of(proto: Any, opset: int, types: list[tuple[int, tuple[int, ...]] | None]) -> Any:
    """The standard's function for a node, or None where it defines none.

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
    except (onnx.defs.SchemaError, TypeError):  # TypeError: of versions beyond its integers
        return None
    if schema.has_context_dependent_function:
        rows = [(onnx.TypeProto() if t is None else
                 onnx.helper.make_tensor_type_proto(*t)).SerializeToString() for t in types]
        known = schema.context_dependent_function_opset_versions
        version = max((v for v in known if v <= opset), default=min(known))
        data = schema.get_context_dependent_function_with_opset_version(
            version, proto.SerializeToString(), rows)
    elif schema.has_function:
        known = schema.function_opset_versions
        data = schema.get_function_with_opset_version(
            max((v for v in known if v <= opset), default=min(known)))
    else:
        return None
    body = onnx.FunctionProto.FromString(data)
    own = {name: a.default_value for name, a in schema.attributes.items()
           if a.default_value.type}
    own.update((a.name, a) for a in proto.attribute)
    _set_attributes(body.node, own)
    return body


def is_default(proto: Any, opset: int, name: str) -> bool:
    """Whether an attribute of a node has the value that it has when it is left out."""
    onnx = package()
    try:
        schema = onnx.defs.get_schema(proto.op_type, opset, proto.domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: of versions beyond its integers
        return False
    if name not in schema.attributes:
        return False
    default = schema.attributes[name].default_value
    [own] = [a for a in proto.attribute if a.name == name]
    return bool(default.type) and (onnx.helper.get_attribute_value(default) ==
                                   onnx.helper.get_attribute_value(own))


def _set_attributes(nodes: Any, own: Mapping[str, Any]) -> None:
    """Replaces references to attributes of the function by those attributes."""
    for node in nodes:
        kept = []
        for a in node.attribute:
            if a.ref_attr_name and a.ref_attr_name in own:
                name = a.name
                a.CopyFrom(own[a.ref_attr_name])
                a.name = name
            if not a.ref_attr_name:
                kept.append(a)
                _set_attributes(a.g.node, own)
        del node.attribute[:]
        node.attribute.extend(kept)


def packed(name: str, nodes: list[Row], inputs: list[Port], outputs: list[Port],
           arrays: Mapping[str, np.ndarray], opset: int) -> bytes:
    """The bytes of a checked model."""
    onnx = package()
    make = onnx.helper
    size = sum(a.nbytes for a in arrays.values())
    if size > MOST - (1 << 24):
        raise Unsupported(f"model {name!r} has {size / 2**30:.1f} GiB of weights; an ONNX file "
                          "holds less than 2 GiB")

    def port(p: Port) -> Any:
        return make.make_tensor_value_info(p.name, p.dtype.onnx, p.dims)

    def made(rows: list[Row]) -> list[Any]:
        return [make.make_node(op, i, o, name=n, **{
            key: make.make_graph(made(a.nodes), a.name, [port(p) for p in a.inputs],
                                 [port(p) for p in a.outputs])
            if isinstance(a, Subgraph) else a for key, a in attrs.items()})
            for op, n, i, o, attrs in rows]

    large = {n: a for n, a in arrays.items() if a.nbytes > 1024}
    graph = make.make_graph(
        made(nodes), name,
        [port(p) for p in inputs], [port(p) for p in outputs],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()
         if n not in large])
    model = make.make_model(graph, producer_name="ztorch", producer_version=__version__,
                            opset_imports=[make.make_opsetid("", opset)], ir_version=10)
    light = onnx.ModelProto()  # the checker would copy weights several times
    light.CopyFrom(model)
    light.graph.input.extend(port(Port(n, a.shape, dtype(a.dtype))) for n, a in large.items())
    onnx.checker.check_model(light, full_check=True)
    for n, array in large.items():
        model.graph.initializer.add(
            name=n, dims=array.shape, data_type=dtype(array.dtype).onnx,
            raw_data=array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return model.SerializeToString(deterministic=True)
