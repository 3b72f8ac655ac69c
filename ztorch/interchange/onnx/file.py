"""Reads ONNX files as plain data, and checks every size before it is used."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ztorch.dtypes import to_storage
from ztorch.errors import ArtifactError, Unsupported
from ztorch.files.parsing import parsing
from ztorch.interchange.onnx.contents import (
    Foreign,
    InnerGraph,
    NodeSpec,
    OnnxFile,
    StoredCodes,
)
from ztorch.interchange.onnx.formats import FORMATS
from ztorch.interchange.onnx.order import order_of
from ztorch.interchange.onnx.protobuf import (
    DTYPES,
    MOST,
    Port,
    is_standard,
    need_valid,
    package,
    without_data,
)
from ztorch.interchange.onnx.wire import parsed

OPSETS = range(6, 29)  # versions of ONNX's ops that are read
_MOST_NODES = 1_000_000  # more than any model has


def read(path: str | os.PathLike[str]) -> OnnxFile:
    """The graph of a file; raises an error if the file is invalid."""
    onnx, source = package(), os.fspath(path)
    try:
        if os.path.getsize(path) > MOST:
            raise ArtifactError(f"{source} is larger than 2 GiB, which no ONNX file can be; keep "
                                "its weights as external data")
        data = Path(path).read_bytes()
    except OSError as error:
        raise ArtifactError(f"cannot read {source}: {error.strerror or error}; "
                            "check the path") from None
    with parsing(source, ArtifactError, "is not an ONNX file",
                 "it may be truncated or of another kind"):
        proto = parsed(onnx, data)
    return contents_of(proto, source, Path(os.path.realpath(path)).parent)


def contents_of(proto: Any, source: str, folder: Path) -> OnnxFile:
    """The graph of a model that is in memory; `source` names it in errors, and its external data
    are in the folder."""
    with parsing(source, ArtifactError, "is not a valid ONNX file", "write it again"):
        return OnnxReader(package(), source, folder).file(proto)


@dataclass(frozen=True)
class OnnxReader:
    """Turns the messages of a file into data."""

    onnx: Any
    source: str
    folder: Path
    opsets: dict[str, int] = field(default_factory=dict)  # of each domain

    def file(self, proto: Any) -> OnnxFile:
        if not proto.graph.node and not proto.graph.output:
            raise ArtifactError(f"{self.source} is not an ONNX file: it holds no graph")
        self.opsets.update(versions(proto))
        opset = self.opsets.get("")
        if opset is not None and opset not in OPSETS:
            raise Unsupported(
                f"{self.source} has opset {opset}; ztorch reads {OPSETS[0]} to {OPSETS[-1]}: "
                "onnx.version_converter.convert_version(model, 18) converts a file")
        if proto.functions:
            if (count := self._checked(lambda: _inlined(proto))) > _MOST_NODES:
                raise ArtifactError(f"{self.source} has functions that expand to {count:,} nodes; "
                                    "no real model has as many, so do not trust this file")
            proto = self._checked(lambda: self.onnx.inliner.inline_local_functions(proto))
        graph, arrays = proto.graph, self.initializers(proto.graph)
        in_file = [self.node(n) for n in graph.node]
        order = order_of(self.source, in_file, {*arrays, *(v.name for v in graph.input)})
        nodes = tuple(in_file[k] for k in order)
        if not graph.output:
            raise ArtifactError(f"{self.source} has no outputs, so nothing of it is computed; "
                                "export the model again")
        light = without_data(proto, order)
        if all(n.domain or is_standard(n.op) for n in nodes):  # else the importer names all others
            self._checked(lambda: need_valid(light))
        return OnnxFile(
            self.source, self.opsets,
            tuple(self.port(v) for v in graph.input if v.name not in arrays),
            tuple(self.port(v) for v in graph.output),
            nodes, arrays, cache(lambda: self._inferred(light)))

    def initializers(self, graph: Any) -> dict[str, np.ndarray | StoredCodes]:
        """The numbers of a graph, by name."""
        arrays: dict[str, np.ndarray | StoredCodes] = {}
        for tensor in graph.initializer:
            if tensor.name in arrays:
                raise ArtifactError(f"{self.source} has two initializers named {tensor.name!r}")
            arrays[tensor.name] = self.array(tensor, f"initializer {tensor.name!r}")
        if graph.sparse_initializer:
            raise Unsupported(f"{self.source} has sparse initializers; store them densely")
        return arrays

    def _checked(self, step: Any) -> Any:
        """Calls the package onnx, and reports its exceptions as errors of the file."""
        try:
            return step()
        except Exception as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise ArtifactError(f"{self.source} is not a valid ONNX file: "
                                f"{' '.join(lines[:3]) or type(error).__name__}") from None

    def _inferred(self, light: Any) -> dict[str, Port]:
        """Shapes of inner tensors. Called only while an error message is written, because the
        package aborts the process on some impossible shapes."""
        try:
            graph = self.onnx.shape_inference.infer_shapes(light).graph
            return {v.name: self.port(v) for v in graph.value_info
                    if v.type.HasField("tensor_type")
                    and v.type.tensor_type.HasField("shape")
                    and v.type.tensor_type.elem_type in DTYPES}
        except Exception:  # error messages do without shapes then
            return {}

    def port(self, info: Any) -> Port:
        """An input or output, with its declared shape."""
        kind, type_proto = info.type.WhichOneof("value"), info.type
        if kind == "optional_type":
            type_proto = info.type.optional_type.elem_type
            kind = type_proto.WhichOneof("value")
        if kind != "tensor_type":
            raise Unsupported(f"{self.source}: {info.name!r} is a {kind or 'value without a type'}"
                              ", not a tensor")
        t = type_proto.tensor_type
        if t.elem_type not in DTYPES and t.elem_type not in FORMATS:
            raise Unsupported(f"{self.source}: {info.name!r} has dtype "
                              f"{self.type_name(t.elem_type)}, which ztorch does not compute with")
        dims = tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or None)
                     for d in t.shape.dim)
        if any(isinstance(n, int) and n < 0 for n in dims):
            raise ArtifactError(f"{self.source}: {info.name!r} has the impossible shape {dims}")
        form = FORMATS.get(t.elem_type)
        return Port(info.name, dims, form.holds if form else DTYPES[t.elem_type],
                    form.number if form else 0)

    def type_name(self, number: int) -> str:
        """The format's name of a dtype."""
        return {v: k for k, v in self.onnx.TensorProto.DataType.items()}.get(number, str(number))

    def node(self, proto: Any) -> NodeSpec:
        names = (proto.op_type, proto.domain, proto.name, *proto.input, *proto.output,
                 *(a.name for a in proto.attribute))
        if not all(isinstance(name, str) for name in names):  # bytes that are not UTF-8
            raise ArtifactError(f"{self.source}: node {proto.name!r} of op {proto.op_type!r} has a "
                                "name that is not text; export the model again")
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        spec = NodeSpec(proto.op_type, domain, proto.name, {}, tuple(proto.input),
                        tuple(proto.output), self.opsets.get(domain, 0), proto)
        for a in proto.attribute:
            spec.attrs[a.name] = self.attribute(a, spec)
        return spec

    def attribute(self, proto: Any, spec: NodeSpec) -> Any:
        """The value of an attribute: a number, a string, a list of them, an array or a graph."""
        if proto.type == proto.TENSOR:
            return self.array(proto.t, f"attribute {proto.name!r} of node {spec}")
        if proto.type == proto.GRAPH:
            return InnerGraph(tuple(v.name for v in proto.g.input),
                              tuple(v.name for v in proto.g.output),
                              tuple(map(self.node, proto.g.node)), self.initializers(proto.g))
        if proto.type not in (proto.FLOAT, proto.INT, proto.STRING, proto.FLOATS, proto.INTS,
                              proto.STRINGS):
            return Foreign(proto.name)
        value = self._checked(lambda: self.onnx.helper.get_attribute_value(proto))
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if proto.type == proto.STRINGS:
            return [v.decode("utf-8", "replace") for v in value]
        return list(value) if proto.type in (proto.FLOATS, proto.INTS) else value

    # -- arrays ------------------------------------------------------------------------------------

    def array(self, tensor: Any, label: str) -> np.ndarray | StoredCodes:
        """The numbers of a tensor. Raises if the file does not hold as many as its shape needs."""
        if tensor.data_type in FORMATS:
            return self.codes(tensor, label)
        if tensor.data_type not in DTYPES:
            raise Unsupported(f"{self.source}: {label} has dtype "
                              f"{self.type_name(tensor.data_type)}, which ztorch does not compute "
                              "with")
        d = DTYPES[tensor.data_type]
        dims = tuple(tensor.dims)
        if any(n < 0 for n in dims):
            raise ArtifactError(f"{self.source}: {label} has the impossible shape {dims}")
        count = math.prod(dims)
        if tensor.data_location == self.onnx.TensorProto.EXTERNAL:
            raw = self.external(tensor, count * d.bytes, label)
        elif tensor.HasField("raw_data"):
            raw = tensor.raw_data
        else:
            stored_count = max(map(len, (tensor.float_data, tensor.int32_data, tensor.int64_data,
                                         tensor.double_data, tensor.uint64_data)))
            if stored_count != count:
                raise ArtifactError(f"{self.source}: {label} of shape {dims} holds {stored_count} "
                                    f"numbers, not {count}")
            numbers = self._checked(lambda: self.onnx.numpy_helper.to_array(tensor))
            return np.array(numbers) if d.in_numpy else StoredCodes(
                to_storage(d, numbers.astype(np.float32)), d)
        if len(raw) != count * d.bytes:
            raise ArtifactError(f"{self.source}: {label} of shape {dims} holds {len(raw)} bytes, "
                                f"not {count * d.bytes}")
        stored = np.frombuffer(raw, d.numpy.newbyteorder("<")).reshape(dims)
        return stored.astype(stored.dtype.newbyteorder("=")) if d.in_numpy else StoredCodes(
            np.array(stored), d)

    def codes(self, tensor: Any, label: str) -> StoredCodes:
        """The codes of a tensor in a format that NumPy lacks. They are packed, the first code in
        the lowest bits; but 6-bit codes that are not raw data take one int32 each."""
        form, dims = FORMATS[tensor.data_type], tuple(tensor.dims)
        if any(n < 0 for n in dims):
            raise ArtifactError(f"{self.source}: {label} has the impossible shape {dims}")
        count, unpacked = math.prod(dims), form.bits == 6 and len(tensor.int32_data) > 0
        size = count if unpacked else -(-count * form.bits // 8)
        if tensor.data_location == self.onnx.TensorProto.EXTERNAL:
            raw = self.external(tensor, size, label)
        else:
            raw = tensor.raw_data or bytes(n & 0xFF for n in tensor.int32_data)
        if len(raw) != size:
            raise ArtifactError(f"{self.source}: {label} of shape {dims} holds {len(raw)} bytes, "
                                f"not {size}")
        bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
        rows = bits.reshape(-1, 8) if unpacked else bits[:count * form.bits].reshape(-1, form.bits)
        worth = 1 << np.arange(form.bits, dtype=np.int16)
        codes = (rows[:, :form.bits].astype(np.int16) @ worth).reshape(dims)
        if form.lowest < 0:
            codes = np.where(codes > form.highest, codes - 2 ** form.bits, codes)
        return StoredCodes(codes.astype(form.holds.numpy), form)

    def external(self, tensor: Any, size: int, label: str) -> bytes:
        """The bytes of a tensor in another file, which must be in the folder of the model."""
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        try:
            offset = int(entries.get("offset") or 0)
            length = int(entries.get("length") or size)
            beside = Path(os.path.realpath(self.folder / location))
        except ValueError as error:
            raise ArtifactError(f"{self.source}: {label} has an invalid location of its "
                                f"external data: {error}") from None
        if os.path.isabs(location) or not location or not beside.is_relative_to(self.folder):
            raise ArtifactError(f"{self.source}: the data of {label} are in {location!r}, "
                                "outside the model's folder; put the file beside the model")
        if offset < 0 or length != size:
            raise ArtifactError(f"{self.source}: {label} needs {size} bytes, but its external "
                                f"data are {length} bytes at {offset}")
        try:
            if not beside.is_file() or beside.stat().st_size < offset + length:
                raise ArtifactError(f"{self.source}: the data of {label} are not in {location!r}; "
                                    "copy the whole file beside the model")
            with open(beside, "rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            raise ArtifactError(f"cannot read {beside}: {error.strerror or error}") from None


def versions(proto: Any) -> dict[str, int]:
    """The version of each domain that a model or function imports."""
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}


def _inlined(proto: Any) -> int:
    """The number of nodes after all functions are inlined. A small file can have more than fit in
    memory: ten functions, each of which calls the next one ten times."""
    bodies = {(f.domain, f.name): f.node for f in proto.functions}
    counts: dict[tuple[str, str], int] = {}

    def count(nodes: Any) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            if key in bodies and key not in counts:
                counts[key] = 0  # if it calls itself, which the onnx package refuses
                counts[key] = count(bodies[key])
            total += counts.get(key, 1) + sum(
                count(g.node) for a in node.attribute for g in (a.g, *a.graphs))
        return total

    return count(proto.graph.node)
