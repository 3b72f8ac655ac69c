"""Whether rows may be filled up along open axes: two traces of a graph, for two sizes, tell.

Nodes hide the padding of tensors that they know to be padded. Other values that follow the sizes
of a trace must not reach results either: a number such as 1 / n, and sums over tables of n rows.
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

# Attributes that follow from shapes, or are checked by the rules of padding.
_OF_SHAPES = {"chunks", "counts", "high", "lengths", "n", "name", "shape", "size"}
OTHERS = "its nodes compute other things for other sizes"


@dataclass(frozen=True)
class NodeTrace:
    """The results of nodes for inputs of some sizes."""

    outputs: list[Value]
    padding: Padding
    tensors: Mapping[str, Any]  # results of nodes, by name
    nodes: Sequence[NodeSpec]

    @property
    def numbers(self) -> dict[str, np.ndarray]:
        """Integers that are known while importing."""
        return {name: x for name, x in self.tensors.items()
                if isinstance(x, np.ndarray) and x.dtype.kind == "i"}

    def hiding(self) -> dict[Value, Sequence[str]]:
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


def fault(small: NodeTrace, large: NodeTrace) -> str:
    """Why rows may not be filled up along open axes; empty where they may."""
    hiding = small.hiding()
    pairs = _pairs(small, large, hiding)
    if pairs is None:
        return OTHERS
    unknown: dict[Value, Padded] = {}
    results = {x for x in small.tensors.values() if isinstance(x, Value)}
    for k, (v, w) in enumerate(pairs):
        if v in hiding:
            unknown[v] = {}
            continue
        if not _alike(v, w):
            return f"{_named(pairs[k:], small)} computes with a number that depends on the size"
        begins = v in results or v.op.kind == "leaf"
        own = _unknown(v, w, small.padding, unknown, begins)
        if own is None:
            return (f"{_named(pairs[k:], small)} combines positions of a table that is as long as "
                    "an open axis")
        unknown[v] = own
    for y, z in zip(small.outputs, large.outputs, strict=True):
        padded = small.padding.of(y)
        if any(n != m and k not in padded for k, (n, m) in enumerate(
                zip(y.shape, z.shape, strict=True))):
            return "the size of an output depends on an open axis in an unknown way"
    return ""


_PARTS = ("slice", "pad")  # ops that are left out where there is nothing to do


def _pairs(small: NodeTrace, large: NodeTrace,
           hiding: Mapping[Value, Sequence[str]]) -> list[tuple[Value, Value]] | None:
    """Nodes of both traces that compute the same, each after its arguments; None if they differ.
    The masking of padding is left out."""
    pairs: dict[Value, Value] = {}
    rest = [(v, w, False) for v, w in zip(small.outputs, large.outputs, strict=True)]
    while rest:
        v, w, is_done = rest.pop()
        if v in pairs:
            continue
        if is_done:
            pairs[v] = w
        elif v in hiding:
            both = [(small.tensors.get(name), large.tensors.get(name)) for name in hiding[v]]
            rest += [(v, w, True), *((a, b, False) for a, b in both
                                     if isinstance(a, Value) and isinstance(b, Value))]
        elif v.op.name == w.op.name and len(v.args) == len(w.args) and v.rank == w.rank:
            rest += [(v, w, True), *((a, b, False) for a, b in zip(v.args, w.args, strict=True))]
        elif v.op.name in _PARTS:
            rest.append((v.args[0], w, False))
        elif w.op.name in _PARTS:
            rest.append((v, w.args[0], False))
        else:
            return None
    return list(pairs.items())


def _named(pairs: Sequence[tuple[Value, Value]], trace: NodeTrace) -> str:
    """The name of the first of these nodes for users: the next tensor of the file that is made."""
    names = {x: label for label, x in trace.tensors.items()
             if isinstance(x, Value) and x.args}
    name = next((names[v] for v, _ in pairs if v in names), None)
    return f"what makes {name!r}" if name else f"op {pairs[0][0].op.name}"


def _alike(v: Value, w: Value) -> bool:
    """Whether two nodes compute the same, as far as the shorter one reaches."""
    a, b = v.attrs.get("data"), w.attrs.get("data")
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b[tuple(slice(n) for n in a.shape)], equal_nan=a.dtype.kind == "f")
    if v.op.name == "slice" and min(v.attrs["step"], default=1) < 0:  # backwards, from the end
        ends = [[at - n if step < 0 else at for at, n, step in zip(
            x.attrs["start"], x.args[0].shape, x.attrs["step"], strict=True)] for x in (v, w)]
        return ends[0] == ends[1] and v.attrs["step"] == w.attrs["step"]
    return all(_same(x, w.attrs.get(name)) for name, x in v.attrs.items() if name not in _OF_SHAPES)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Body) and isinstance(b, Body):
        pairs = zip(topological(a.roots), topological(b.roots), strict=False)
        return all(v.op.name == w.op.name and _alike(v, w) for v, w in pairs)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    return bool(callable(a) or a == b)


def _unknown(v: Value, w: Value, padding: Padding, before: dict[Value, Padded],
             begins: bool) -> Padded | None:
    """The axes of a value that follow sizes and are not known to be filled up, for they begin at
    constants or results of nodes: masks that only say where these are. None where they are mixed.
    """
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
        known = {before for _, before in padding.places(v)}
    except Unsupported:  # a part of something whose padding is declared
        return {}
    return {at: mask for at, mask in padded.items()
            if not any(at[1] <= before < at[1] * mask.size for before in known)}
