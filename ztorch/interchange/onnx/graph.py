"""An ONNX graph as a layer: float initializers are weights, nodes are called in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.errors import ArtifactError, ConfigError, ShapeError, Unsupported, ZtorchError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import Value, topological
from ztorch.host.processor import need_memory
from ztorch.interchange.onnx import nodes as _nodes  # noqa: F401 (fills NODES)
from ztorch.interchange.onnx.contents import InnerGraph, NodeSpec, OnnxFile
from ztorch.interchange.onnx.node import LIMIT, NODES, FloatInitializer, Node, Result, Tensor
from ztorch.interchange.onnx.protobuf import Port
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.symbol import leaves
from ztorch.layers.weight import Weight

_DAMAGE = (  # what nodes of a damaged file raise
    ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class UnsupportedNode:
    """A node that cannot be imported."""

    node: NodeSpec
    reason: str


class OnnxGraph(Layer):
    """The nodes of a file between its inputs and outputs.

    Float initializers with at least one axis are weights, named as in the file. Integers,
    single numbers, and arrays with infinities or NaN are constants.
    """

    takes_many = True

    def __init__(self, file: OnnxFile, outputs: Sequence[str], sizes: Mapping[str, int],
                 **common: Any):
        super().__init__(**common)
        self.file = file
        self.outputs = tuple(outputs)
        self.sizes = dict(sizes)
        self.fixed = batch_of(file, sizes)
        self.nodes = _needed(file.nodes, outputs)
        self.stored: dict[str, Weight] = {}

    def call(self, x: Any, context: Context) -> Any:
        """The output; a dict where there are several."""
        inputs = leaves(x)
        if self.fixed is None or inputs[0].shape[0] == self.fixed:
            results = self.run(inputs, context)
        elif inputs[0].shape[0] != 1 or context.states.data:
            raise ConfigError(f"{self.file.path} is made for batches of {self.fixed}, not "
                              f"{inputs[0].shape[0]}: compile(batch_size={self.fixed}), or export "
                              "it again with a dynamic batch axis")
        else:  # the model is built with one example: only shapes matter
            full_batch = [leaf("input", "x", (self.fixed, *v.shape[1:]), v.dtype) for v in inputs]
            results = [leaf("input", "y", (1, *y.shape[1:]), y.dtype)
                       for y in self.run(full_batch, context)]
        return results[0] if len(results) == 1 else dict(
            zip(map(plain, self.outputs), results, strict=True))

    def run(self, x: Sequence[Value], context: Context,
            faults: list[UnsupportedNode] | None = None) -> list[Value]:
        """The outputs for a batch. With a list as `faults`, nodes that cannot be imported are added
        to it; without, the first one raises."""
        results: tuple[Tensor | None, ...]
        tensors: dict[str, Tensor | None] = {
            name: self._initial(name, array, context) for name, array in self.file.arrays.items()}
        tensors.update((port.name, v) for port, v in zip(self.file.inputs, x, strict=True))
        for spec in self.nodes:
            try:
                results = self._result(spec, tensors, context)
            except Unsupported as error:
                if faults is None:
                    raise Unsupported(f"{self.file.path}: node {spec}: {error}") from None
                faults.append(UnsupportedNode(spec, str(error)))
                results = tuple(self._expected(name, x[0].shape[0]) for name in spec.outputs)
            for name, result in zip(spec.outputs, results, strict=False):
                if name:
                    tensors[name] = result
        if faults:
            return []
        for name in self.outputs:
            if tensors.get(name) is None:
                raise ArtifactError(f"{self.file.path}: no node gives the output {name!r}")
        ends = Node(NodeSpec("", "", "", {}, (), ()), tuple(tensors[name] for name in self.outputs),
                    0, context)
        return ends.values()

    def _initial(self, name: str, array: np.ndarray, context: Context) -> Tensor:
        if array.dtype.kind != "f" or array.ndim == 0 or not np.isfinite(array).all():
            return array

        def read(trainable: bool) -> Value:
            if name not in self.stored:
                weight = self.stored[name] = self.add_weight(name, array.shape, "zeros", trainable)
                weight.value = array
            self.stored[name].trainable &= trainable
            return context.read(self.stored[name])

        return FloatInitializer(name, array, read)

    def _result(self, spec: NodeSpec, tensors: dict[str, Tensor | None],
                context: Context) -> tuple[Tensor | None, ...]:
        if spec.domain:
            raise Unsupported(f"it is of the domain {spec.domain!r}, not of ONNX itself")
        if spec.op not in NODES:
            raise Unsupported("ztorch has no such op")
        for name in spec.reads:
            if name and name not in tensors:
                raise ArtifactError(f"{self.file.path}: node {spec} reads {name!r}, which nothing "
                                    "before it gives")
        inputs = tuple(tensors[name] if name else None for name in spec.inputs)
        if any(name and tensors[name] is None for name in spec.reads):
            return (None,) * len(spec.outputs)  # behind a node that is not supported

        def run(inner: InnerGraph, values: Sequence[Tensor]) -> list[Tensor]:
            return self._inside(inner, values, tensors, context)

        node = Node(spec, inputs, self.file.opset, context, run)
        result = self._run_node(node)
        results = result if isinstance(result, tuple) else (result,)
        for r in results:
            if isinstance(r, Value):
                need_memory(f"{self.file.path}: the result of node {spec}", r.nbytes,
                            "its shape is hardly meant")
        if all(isinstance(tensors[name], np.ndarray) for name in spec.reads if name):
            return tuple(_known(r) for r in results)
        return results

    def _inside(self, graph: InnerGraph, inputs: Sequence[Tensor],
                tensors: Mapping[str, Tensor | None], context: Context) -> list[Tensor]:
        """The outputs of a graph within the graph, which reads tensors around it."""
        known = {**tensors, **{name: self._initial(name, array, context)
                               for name, array in graph.arrays.items()}}
        known.update(zip(graph.inputs, inputs, strict=True))
        for spec in graph.nodes:
            try:
                results = self._result(spec, known, context)
            except Unsupported as error:
                raise Unsupported(f"{spec} inside of it: {error}") from None
            known.update((name, x) for name, x in zip(spec.outputs, results, strict=False) if name)
        outputs = [known[name] for name in graph.outputs]
        return [x for x in outputs if x is not None]

    def _run_node(self, node: Node) -> Result:
        location = f"{self.file.path}: node {node.spec}"
        try:
            return NODES[node.op](node)
        except ShapeError as error:
            raise ShapeError(f"{location}: {error}") from None
        except ZtorchError:
            raise
        except (*_DAMAGE, MemoryError) as error:
            raise ArtifactError(f"{location} makes no sense: {type(error).__name__}: "
                                f"{error}") from error

    def _expected(self, name: str, batch: int) -> Tensor | None:
        """A placeholder for the output of a node that is not supported, so that later nodes can be
        examined; None where its shape is not known."""
        port = self.file.inferred.get(name)
        if port is None:
            return None
        first = {p.dims[0]: batch for p in self.file.inputs if isinstance(p.dims[0], str)}
        dims = _shape(port, {**first, **self.sizes})
        return None if dims is None else leaf("input", name, dims, port.dtype)

    def get_config(self) -> dict[str, Any]:
        raise ConfigError(f"layer {self.name!r} is an ONNX graph, which cannot be written to a "
                          "config; keep the file, and load its weights by load_weights")

    def __repr__(self) -> str:
        return f"<OnnxGraph {self.name!r} of {len(self.nodes)} nodes>"


def batch_of(file: OnnxFile, sizes: Mapping[str, int]) -> int | None:
    """The batch size that a file fixes, or None."""
    sizes_found = {}
    for port in file.inputs:
        if not port.dims:
            raise Unsupported(f"{file.path}: the input {port.name!r} has no axes, so it has no "
                              "batch")
        first = port.dims[0]
        size = first if isinstance(first, int) else sizes.get(first or "")
        if size is not None:
            sizes_found[port.name] = size
    if len(set(sizes_found.values())) > 1:
        raise Unsupported(f"{file.path}: the first axis of every input must be the batch; here "
                          f"they are {sizes_found}")
    return next(iter(sizes_found.values()), None)


def plain(name: str) -> str:
    """A name in the file as a name here, where '/' separates layers."""
    return name.replace("/", "_")


def _shape(port: Port, known: Mapping[str, int]) -> tuple[int, ...] | None:
    """A shape in numbers, if all its symbols are known."""
    dims = [n if isinstance(n, int) else known.get(n or "") for n in port.dims]
    return None if None in dims else tuple(n for n in dims if n is not None)


def _needed(specs: tuple[NodeSpec, ...], outputs: Sequence[str]) -> tuple[NodeSpec, ...]:
    """The nodes that the outputs need, in order."""
    names, needed = set(outputs), []
    for spec in reversed(specs):
        if any(name in names for name in spec.outputs if name):
            names.update(spec.reads)
            needed.append(spec)
    return tuple(reversed(needed))


def _known(x: Tensor) -> Tensor:
    """A value that depends on constants alone, computed now unless it is large."""
    if not isinstance(x, Value) or any(v.size > LIMIT for v in topological([x])):
        return x
    [array] = evaluate([x], {})
    return array
