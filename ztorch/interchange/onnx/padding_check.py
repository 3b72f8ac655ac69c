"""Decides whether rows may be padded along open axes, by comparing traces for two sizes.

Nodes mask the padding of tensors that are declared as padded. Other values that depend on the size
of a trace must not reach results either, such as a constant 1 / n, or a sum over a table of n rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.errors import Unsupported
from ztorch.graph.body import Body
from ztorch.graph.op import leaf
from ztorch.graph.value import Value, topological
from ztorch.interchange.onnx.contents import NodeSpec
from ztorch.layers.padded_axes import Mask, Padded, moved_axes
from ztorch.layers.real_positions import LENGTHS, Padding

# Attributes that follow from shapes, or that the rules of padding check.
_OF_SHAPES = {"chunks", "counts", "high", "lengths", "n", "name", "shape", "size"}
_PARTS = ("slice", "pad")  # ops that a trace lacks where they would change nothing
OTHER_NODES = "its nodes differ between sizes"


@dataclass(frozen=True)
class NodeTrace:
    """The results of nodes for inputs of some sizes."""

    outputs: list[Value]
    padding: Padding
    tensors: Mapping[str, Any]  # results of nodes, by name
    nodes: Sequence[NodeSpec]

    @property
    def numbers(self) -> dict[str, np.ndarray]:
        """The integer constants among the tensors."""
        return {name: x for name, x in self.tensors.items()
                if isinstance(x, np.ndarray) and x.dtype.kind == "i"}

    def masked_results(self) -> dict[Value, Sequence[str]]:
        """Results of nodes that mask padding, with the names of their operands."""
        results: dict[Value, Sequence[str]] = {}
        for spec in self.nodes:
            inputs = {x for name in spec.reads if isinstance(x := self.tensors.get(name), Value)}
            for name in spec.outputs:
                y = self.tensors.get(name)
                if isinstance(y, Value) and y not in inputs and y not in results and any(
                        v in self.padding.declared
                        for v in {*topological([y], inputs)} - inputs):
                    results[y] = spec.reads
        return results


def padding_fault(small: NodeTrace, large: NodeTrace) -> str:
    """Why rows may not be padded along open axes; empty where they may."""
    masked = small.masked_results()
    pairs = _pairs(small, large, masked)
    if pairs is None:
        return OTHER_NODES
    unmasked: dict[Value, Padded] = {}
    results = {x for x in small.tensors.values() if isinstance(x, Value)}
    for k, (v, w) in enumerate(pairs):
        if v in masked:
            unmasked[v] = {}
            continue
        if not _same_computation(v, w):
            return f"{_label(pairs[k:], small)} computes with a number that depends on the size"
        is_start = v in results or v.op.kind == "leaf"
        unmasked_axes = _unmasked_axes(v, w, small.padding, unmasked, is_start)
        if unmasked_axes is None:
            return (f"{_label(pairs[k:], small)} combines positions of a table that is as long as "
                    "an open axis")
        unmasked[v] = unmasked_axes
    for y, z in zip(small.outputs, large.outputs, strict=True):
        padded = small.padding.of(y)
        if any(n != m and k not in padded for k, (n, m) in enumerate(
                zip(y.shape, z.shape, strict=True))):
            return "the size of an output depends on an open axis in an unknown way"
    return ""


def _pairs(small: NodeTrace, large: NodeTrace,
           masked: Mapping[Value, Sequence[str]]) -> list[tuple[Value, Value]] | None:
    """Corresponding nodes of both traces, each after its arguments; None if the traces differ.
    Nodes that mask padding are skipped."""
    pairs: dict[Value, Value] = {}
    stack = [(v, w, False) for v, w in zip(small.outputs, large.outputs, strict=True)]
    while stack:
        v, w, is_done = stack.pop()
        if v in pairs:
            continue
        if is_done:
            pairs[v] = w
        elif v in masked:
            operands = [(small.tensors.get(name), large.tensors.get(name)) for name in masked[v]]
            stack += [(v, w, True), *((a, b, False) for a, b in operands
                                      if isinstance(a, Value) and isinstance(b, Value))]
        elif v.op.name == w.op.name and len(v.args) == len(w.args) and v.rank == w.rank:
            stack += [(v, w, True), *((a, b, False) for a, b in zip(v.args, w.args, strict=True))]
        elif v.op.name in _PARTS:
            stack.append((v.args[0], w, False))
        elif w.op.name in _PARTS:
            stack.append((v, w.args[0], False))
        else:
            return None
    return list(pairs.items())


def _label(pairs: Sequence[tuple[Value, Value]], trace: NodeTrace) -> str:
    """The first of these nodes for messages: named by the next tensor of the file after it."""
    names = {x: label for label, x in trace.tensors.items()
             if isinstance(x, Value) and x.args}
    name = next((names[v] for v, _ in pairs if v in names), None)
    return f"the node of {name!r}" if name else f"op {pairs[0][0].op.name}"


def _same_computation(v: Value, w: Value) -> bool:
    """Whether two nodes compute the same, up to the size of the smaller one."""
    a, b = v.attrs.get("data"), w.attrs.get("data")
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b[tuple(slice(n) for n in a.shape)], equal_nan=a.dtype.kind == "f")
    if v.op.name == "slice" and min(v.attrs["step"], default=1) < 0:  # backwards, from the end
        ends = [[at - n if step < 0 else at for at, n, step in zip(
            x.attrs["start"], x.args[0].shape, x.attrs["step"], strict=True)] for x in (v, w)]
        return ends[0] == ends[1] and v.attrs["step"] == w.attrs["step"]
    return all(_same_attribute(x, w.attrs.get(name)) for name, x in v.attrs.items()
               if name not in _OF_SHAPES)


def _same_attribute(a: Any, b: Any) -> bool:
    if isinstance(a, Body) and isinstance(b, Body):
        pairs = zip(topological(a.roots), topological(b.roots), strict=False)
        return all(v.op.name == w.op.name and _same_computation(v, w) for v, w in pairs)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    return bool(callable(a) or a == b)


def _unmasked_axes(v: Value, w: Value, padding: Padding, before: dict[Value, Padded],
                   begins: bool) -> Padded | None:
    """The axes of a value that depend on the size but are not declared as padded, because they
    start at a constant or a result of a node. None if the value combines positions along one."""
    if v in padding.declared or padding.owns(v) or v.attrs.get("name", "").startswith(LENGTHS):
        return {}
    args = [before.get(a, {}) for a in v.args]
    moved = moved_axes(v, args)
    if moved is None:
        return None
    padded = {at: mask for part in moved for at, mask in part.items()}
    outer = 1
    for n, m in zip(v.shape, w.shape, strict=True) if begins else ():
        if n != m and not any(outer <= before < outer * n for _, before in padded):
            padded[1, outer] = Mask("", leaf("input", "", (1, n), "bool"))
        outer *= n
    try:
        declared_inner = {before for _, before in padding.places(v)}
    except Unsupported:  # a part of something whose padding is declared
        return {}
    return {at: mask for at, mask in padded.items()
            if not any(at[1] <= before < at[1] * mask.size for before in declared_inner)}
