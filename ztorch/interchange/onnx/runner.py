"""Imports the nodes of a graph one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from ztorch.errors import ArtifactError, ShapeError, Unsupported, ZtorchError, nearest
from ztorch.graph.value import Value
from ztorch.host.processor import need_memory
from ztorch.interchange.onnx import nodes as _nodes  # noqa: F401 (fills NODES)
from ztorch.interchange.onnx.contents import InnerGraph, NodeSpec, SizeNumbers, StoredCodes
from ztorch.interchange.onnx.faults import NodesInside, UnsupportedNode, error_for
from ztorch.interchange.onnx.file import OnnxReader, versions
from ztorch.interchange.onnx.known import folded
from ztorch.interchange.onnx.node import (
    MOVES,
    NODES,
    Coded,
    LeftOut,
    MixesPositions,
    Node,
    Result,
    Tensor,
    key_of,
)
from ztorch.interchange.onnx.protobuf import (
    body_of,
    has_definition,
    is_default,
    is_standard,
    package,
)
from ztorch.layers.context import Context

_DAMAGE = (  # exceptions that importers raise for nodes of a damaged file
    ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)

_RUNTIMES = ("com.microsoft", "com.ms", "ai.onnx")  # domains of runtimes and of older standards

Tensors = Mapping[str, Tensor | LeftOut | None]  # by name; None: its node is not supported


class NoSuchOp(Unsupported):
    """An op that ztorch lacks."""


@dataclass(frozen=True)
class NodeRunner:
    """Imports the nodes of one file into one trace."""

    path: str  # of the file, for errors
    context: Context
    initial: Callable[[str, np.ndarray | StoredCodes], Tensor]  # a tensor that the file stores
    keeps_floats: bool  # whether floats have the dtypes of the file, not that of the model
    trains: bool = True  # whether training nodes train
    rows: int = 1  # of the batch; only the values of one row must fit in memory
    inside_of_node: bool = False  # whether they are in the body of a loop, or in a branch
    pads_results: bool = False  # whether results of a size that depends on the data are padded
    numbers: SizeNumbers = field(default_factory=SizeNumbers)

    def results(self, spec: NodeSpec, tensors: Tensors) -> tuple[Tensor | None, ...]:
        """The results of a node. An op that ztorch lacks, or lacks with these attributes, is
        replaced by its definition in the standard."""
        for name in spec.reads:
            if name and name not in tensors:
                raise ArtifactError(f"{self.path}: node {spec} reads {name!r}, which no node "
                                    "before it computes")
        blocked = any(name and tensors[name] is None for name in spec.reads)
        if blocked and _is_missing(spec):
            raise NoSuchOp(_unknown(spec))  # whatever its inputs are
        if blocked and (missing := _missing_inside(spec)):
            raise NodesInside(spec, missing)
        if blocked:
            return (None,) * len(spec.outputs)  # a node before it is not supported
        inputs = tuple(present(tensors[name]) if name else None for name in spec.inputs)
        try:
            results = self._import(spec, inputs, tensors)
        except Unsupported as error:
            try:
                expanded = self._expand(spec, inputs)
            except (Unsupported, ShapeError) as inner:
                raise (inner if isinstance(error, NoSuchOp) else error) from None
            if expanded is None:
                raise
            results = expanded
        for r in results:
            if isinstance(r, Value):
                self._need_real(spec, r)
                need_memory(f"{self.path}: the result of node {spec}", r.nbytes // self.rows,
                            "its shape is probably wrong")
        if all(isinstance(tensors[name], np.ndarray) for name in spec.reads if name):
            return tuple(folded(r) if isinstance(r, Value) else r for r in results)
        return results

    def _need_real(self, spec: NodeSpec, y: Value) -> None:
        """Raises an error if a node mixes padding into its result."""
        if not self.inside_of_node:
            try:
                self.context.padding.places(y)
            except Unsupported:
                raise MixesPositions(
                    f"{self.path}: node {spec} mixes positions along an open axis, or combines "
                    "tensors of different sizes along it") from None

    def inside(self, outer: NodeSpec, graph: InnerGraph, inputs: Sequence[Tensor],
               around: Tensors) -> list[Tensor]:
        """The outputs of a graph inside a node; it also reads tensors of the enclosing graph."""
        tensors = dict(around)
        tensors.update((name, self.initial(name, array)) for name, array in graph.arrays.items())
        tensors.update(zip(graph.inputs, inputs, strict=True))
        if faults := replace(self, inside_of_node=True)._import_all(graph.nodes, tensors):
            raise NodesInside(outer, faults)
        outputs = [present(tensors[name]) for name in graph.outputs]
        return [x for x in outputs if x is not None]

    def _import_all(self, nodes: Sequence[NodeSpec],
                    tensors: dict[str, Tensor | LeftOut | None]) -> list[UnsupportedNode]:
        """Imports nodes, and adds their results to `tensors`. Returns the unsupported nodes."""
        faults = []
        for spec in nodes:
            results: tuple[Tensor | None, ...] = (None,) * len(spec.outputs)
            try:
                results = self.results(spec, tensors)
            except Unsupported as error:
                faults.append(UnsupportedNode(spec, error))
            tensors |= {name: x for name, x in zip(spec.outputs, results, strict=False) if name}
        return faults

    def _import(self, spec: NodeSpec, inputs: tuple[Tensor | None, ...],
                around: Tensors) -> tuple[Tensor | None, ...]:
        if key_of(spec) not in NODES:
            raise NoSuchOp(_unknown(spec))
        form = next((x.format for x in inputs if isinstance(x, Coded)), None)
        moved = form if key_of(spec) in MOVES else None
        if moved:
            inputs = tuple(x.codes if isinstance(x, Coded) else x for x in inputs)

        def run(inner: InnerGraph, values: Sequence[Tensor]) -> list[Tensor]:
            return self.inside(spec, inner, values, around)

        node = Node(spec, inputs, self.context, self.keeps_floats, run=run, trains=self.trains,
                    inside_of_node=self.inside_of_node, define=partial(self._expand, spec),
                    pads_results=self.pads_results, numbers=self.numbers)
        result = self._call_importer(node)
        results = result if isinstance(result, tuple) else (result,)
        self._need_all_used(node, len(results))
        return tuple(y if y is None or moved is None else Coded(node.as_value(y), moved)
                     for y in results)

    def _need_all_used(self, node: Node, count: int) -> None:
        """Raises Unsupported if the importer did not read an attribute or input, or did not compute
        an output: a later version of the standard may have added it."""
        spec = node.spec
        ignored = [name for name in node.ignored if spec.op != "Constant" and not
                   is_default(spec.proto, spec.opset, name)]
        if ignored:
            raise Unsupported(f"attribute {', '.join(map(repr, ignored))}")
        if node.unread:
            raise Unsupported(f"input {node.unread[0]}")
        if any(spec.outputs[count:]):
            raise Unsupported("only its first output is computed" if count == 1 else
                              f"only its first {count} outputs are computed")

    def _call_importer(self, node: Node) -> Result:
        location = f"{self.path}: node {node.spec}"
        try:
            return NODES[key_of(node.spec)](node)
        except ShapeError as error:
            raise ShapeError(f"{location}: {error}") from None
        except MixesPositions as error:
            raise MixesPositions(f"{location}: {error}") from None
        except ZtorchError:
            raise
        except (*_DAMAGE, MemoryError) as error:
            raise ArtifactError(f"{location} is invalid: {type(error).__name__}: "
                                f"{error}") from error

    def _expand(self, spec: NodeSpec,
                inputs: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...] | None:
        """The results of the standard's definition of an op; None if it has none."""
        if spec.proto is None:
            return None
        node = Node(spec, inputs, self.context, self.keeps_floats)
        body = body_of(spec.proto, spec.opset, [
            None if x is None else (node.type_number(k), node.shape(k))
            for k, x in enumerate(inputs)])
        if body is None:
            return None
        tensors: dict[str, Tensor | LeftOut | None] = {
            name: x for name, x in zip(body.input, inputs, strict=False) if x is not None}
        for node in body.node:
            for k, name in enumerate(node.input):
                if name in body.input and name not in tensors:  # an input that is left out
                    node.input[k] = ""
        reader = OnnxReader(package(), self.path, Path(), versions(body))
        if faults := self._import_all([reader.node(n) for n in body.node], tensors):
            first = faults[0]
            raise error_for(f"{first.node} inside it: {first.error}", faults)
        return tuple(present(tensors.get(name)) for name in body.output)


def present(x: Tensor | LeftOut | None) -> Tensor | None:
    """A tensor, or None where it is left out."""
    return None if isinstance(x, LeftOut) else x


def _is_missing(spec: NodeSpec) -> bool:
    return key_of(spec) not in NODES and not has_definition(spec.proto, spec.opset)


def _missing_inside(spec: NodeSpec) -> list[UnsupportedNode]:
    """Nodes in the bodies of loops whose ops ztorch lacks. Branches may not be needed."""
    nodes = [n for graph in spec.inner for n in graph.nodes] if spec.op != "If" else []
    return [*(UnsupportedNode(n, NoSuchOp(_unknown(n))) for n in nodes if _is_missing(n)),
            *(UnsupportedNode(n, NodesInside(n, missing)) for n in nodes
              if (missing := _missing_inside(n)))]


def _unknown(spec: NodeSpec) -> str:
    """Why an op cannot be imported, and what to do."""
    if not spec.domain:
        hint = "" if is_standard(spec.op) else _nearest_op(spec.op)
        return "ztorch has no such op" + (f", nor has ONNX{hint}" if hint else "")
    if spec.domain.startswith(_RUNTIMES):
        return (f"it is of the domain {spec.domain!r}, not of ONNX itself; export the model "
                "without optimizations for one runtime")
    return (f"it is of the domain {spec.domain!r}, which ztorch does not know; export it as a "
            "function of the file (custom_translation_table of torch.onnx.export), or as ops of "
            "ONNX")


@lru_cache(maxsize=64)
def _nearest_op(op: str) -> str:
    """The op to suggest for an unknown one. Cached: a file may have a thousand nodes of it."""
    return nearest(op, NODES)
