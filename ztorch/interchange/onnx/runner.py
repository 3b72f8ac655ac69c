"""Calls the importers of nodes one after another, on the tensors of a graph."""

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
from ztorch.interchange.onnx.known import known_now
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

_DAMAGE = (  # errors that nodes of a damaged file raise
    ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)

_RUNTIMES = ("com.microsoft", "com.ms", "ai.onnx")  # domains of runtimes and of older standards

Tensors = Mapping[str, Tensor | LeftOut | None]  # by name; None behind an unsupported node


class NoSuchOp(Unsupported):
    """An op that nothing here imports."""


@dataclass(frozen=True)
class NodeRunner:
    """Imports the nodes of one file into one trace."""

    path: str  # of the file, for errors
    context: Context
    initial: Callable[[str, np.ndarray | StoredCodes], Tensor]  # a tensor that the file stores
    keeps_floats: bool  # whether floats have the dtypes of the file, not that of the model
    trains: bool = True  # whether training nodes train
    rows: int = 1  # of the batch: the values of a row must fit in memory; compiling checks all
    inside_of_node: bool = False  # whether they are in the body of a loop, or in a branch
    pads_results: bool = False  # whether results of a size that depends on the data are padded
    numbers: SizeNumbers = field(default_factory=SizeNumbers)

    def results(self, spec: NodeSpec, tensors: Tensors) -> tuple[Tensor | None, ...]:
        """The results of a node. An op that is not imported, or not with these attributes, becomes
        the ops that the standard defines it by."""
        for name in spec.reads:
            if name and name not in tensors:
                raise ArtifactError(f"{self.path}: node {spec} reads {name!r}, which nothing "
                                    "before it gives")
        blocked = any(name and tensors[name] is None for name in spec.reads)
        if blocked and _is_missing(spec):
            raise NoSuchOp(_unknown(spec))  # its inputs are unknown, and would not help
        if blocked and (missing := _missing_inside(spec)):
            raise NodesInside(spec, missing)
        if blocked:
            return (None,) * len(spec.outputs)  # behind a node that is not supported
        inputs = tuple(present(tensors[name]) if name else None for name in spec.inputs)
        try:
            results = self._imported(spec, inputs, tensors)
        except Unsupported as error:
            try:
                expanded = self._by_definition(spec, inputs)
            except (Unsupported, ShapeError) as inner:
                raise (inner if isinstance(error, NoSuchOp) else error) from None
            if expanded is None:
                raise
            results = expanded
        for r in results:
            if isinstance(r, Value):
                self._need_real(spec, r)
                need_memory(f"{self.path}: the result of node {spec}", r.nbytes // self.rows,
                            "its shape is hardly meant")
        if all(isinstance(tensors[name], np.ndarray) for name in spec.reads if name):
            return tuple(known_now(r) if isinstance(r, Value) else r for r in results)
        return results

    def _need_real(self, spec: NodeSpec, y: Value) -> None:
        """Raises if a node mixes padding into its result."""
        if not self.inside_of_node:
            try:
                self.context.padding.places(y)
            except Unsupported:
                raise MixesPositions(
                    f"{self.path}: node {spec} mixes positions along an open axis, or joins "
                    "tensors whose sizes along it differ") from None

    def inside(self, outer: NodeSpec, graph: InnerGraph, inputs: Sequence[Tensor],
               around: Tensors) -> list[Tensor]:
        """The outputs of a graph within a node, which reads tensors around it."""
        known = dict(around)
        known.update((name, self.initial(name, array)) for name, array in graph.arrays.items())
        known.update(zip(graph.inputs, inputs, strict=True))
        if faults := replace(self, inside_of_node=True)._all(graph.nodes, known):
            raise NodesInside(outer, faults)
        outputs = [present(known[name]) for name in graph.outputs]
        return [x for x in outputs if x is not None]

    def _all(self, nodes: Sequence[NodeSpec],
             known: dict[str, Tensor | LeftOut | None]) -> list[UnsupportedNode]:
        """Runs nodes and records their results; returns the nodes that cannot be imported."""
        faults = []
        for spec in nodes:
            results: tuple[Tensor | None, ...] = (None,) * len(spec.outputs)
            try:
                results = self.results(spec, known)
            except Unsupported as error:
                faults.append(UnsupportedNode(spec, error))
            known.update((name, x) for name, x in zip(spec.outputs, results, strict=False) if name)
        return faults

    def _imported(self, spec: NodeSpec, inputs: tuple[Tensor | None, ...],
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
                    inside_of_node=self.inside_of_node, define=partial(self._by_definition, spec),
                    pads_results=self.pads_results, numbers=self.numbers)
        result = self._called(node)
        results = result if isinstance(result, tuple) else (result,)
        self._need_all_used(node, len(results))
        return tuple(y if y is None or moved is None else Coded(node.as_value(y), moved)
                     for y in results)

    def _need_all_used(self, node: Node, count: int) -> None:
        """Raises Unsupported where an importer overlooked a part of the node, which a later version
        of the standard may have added."""
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

    def _called(self, node: Node) -> Result:
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
            raise ArtifactError(f"{location} makes no sense: {type(error).__name__}: "
                                f"{error}") from error

    def _by_definition(self, spec: NodeSpec,
                       inputs: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...] | None:
        """The results of the function that the standard defines the op by, if it does."""
        if spec.proto is None:
            return None
        node = Node(spec, inputs, self.context, self.keeps_floats)
        body = body_of(spec.proto, spec.opset, [
            None if x is None else (node.type_number(k), node.shape(k))
            for k, x in enumerate(inputs)])
        if body is None:
            return None
        named = zip(body.input, inputs, strict=False)
        known: dict[str, Tensor | LeftOut | None] = {name: x for name, x in named if x is not None}
        for node in body.node:
            for k, name in enumerate(node.input):
                if name in body.input and name not in known:  # an input that is left out
                    node.input[k] = ""
        reader = OnnxReader(package(), self.path, Path(), versions(body))
        if faults := self._all([reader.node(n) for n in body.node], known):
            first = faults[0]
            raise error_for(f"{first.node} inside of it: {first.error}", faults)
        return tuple(present(known.get(name)) for name in body.output)


def present(x: Tensor | LeftOut | None) -> Tensor | None:
    """A tensor, or None where it is left out."""
    return None if isinstance(x, LeftOut) else x


def _is_missing(spec: NodeSpec) -> bool:
    return key_of(spec) not in NODES and not has_definition(spec.proto, spec.opset)


def _missing_inside(spec: NodeSpec) -> list[UnsupportedNode]:
    """Nodes of the body of a loop whose ops nothing here imports; a branch may not be needed."""
    nodes = [n for graph in spec.inner for n in graph.nodes] if spec.op != "If" else []
    return [*(UnsupportedNode(n, NoSuchOp(_unknown(n))) for n in nodes if _is_missing(n)),
            *(UnsupportedNode(n, NodesInside(n, missing)) for n in nodes
              if (missing := _missing_inside(n)))]


def _unknown(spec: NodeSpec) -> str:
    """Why nothing here imports an op, and the nearest way out."""
    if not spec.domain:
        hint = "" if is_standard(spec.op) else _nearest_op(spec.op)
        return "ztorch has no such op" + (f", nor has ONNX{hint}" if hint else "")
    if spec.domain.startswith(_RUNTIMES):
        return (f"it is of the domain {spec.domain!r}, not of ONNX itself; export the model "
                "without optimisations for one runtime")
    return (f"it is of the domain {spec.domain!r}, which ztorch does not know; write it as a "
            "function of the file (custom_translation_table of torch.onnx.export), or of ops of "
            "ONNX")


@lru_cache(maxsize=64)
def _nearest_op(op: str) -> str:
    """An op to suggest for an unknown one; a deep file may have a thousand of the same."""
    return nearest(op, NODES)
