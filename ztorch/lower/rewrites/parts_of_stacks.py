"""Elementwise work on a stack, done on its parts.

    x * c + reshape(stack(-odd, even)) * s       a rotation of neighboring features

A kernel of the stack would store it for another one that reads it again. As a stack of such sums
for each part, one kernel computes all and stores them in turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.lower.region import is_view
from ztorch.lower.rewrites.interleaves import stacked


def with_work_on_parts(graph: Graph) -> Graph:
    """The graph with stacks along a last axis after the elementwise ops that read them."""
    nodes = graph.nodes()
    if not any(map(_is_stack, nodes)):
        return graph
    return _Parts(graph, nodes).graph()


class _Parts:
    """The values of a graph that are known in parts, with the shape of `_shape`."""

    def __init__(self, graph: Graph, nodes: Sequence[Value]):
        self.old, self.nodes = graph, nodes
        self.readers: dict[Value, set[Value]] = {r: {r} for r in graph.roots}  # an output: itself
        for v in nodes:
            for a in v.args:
                self.readers.setdefault(a, set()).add(v)
        self.parts: dict[Value, list[Value]] = {}
        self.new: dict[Value, Value] = {}

    def graph(self) -> Graph:
        """The new graph."""
        for v in self.nodes:
            args = tuple(self.new[a] for a in v.args)
            with layer_scope(v.layer):
                self.new[v] = rebuilt(v, args)
                if _is_stack(v):
                    self.parts[v] = stacked(v, args)
                elif v.op.name == "reshape" and self._is_known(v.args[0], v):
                    self.parts[v] = self.parts[v.args[0]]
                elif _is_elementwise(v) and any(self._is_known(a, v) for a in v.args):
                    count = next(len(self.parts[a]) for a in v.args if self._is_known(a, v))
                    if v.shape[-1] % count == 0 and self._may_be_cut(v, v, count):
                        self.parts[v] = [self._computed(v, k, count) for k in range(count)]
                        stack = OPS.concat(*self.parts[v], axis=v.rank)
                        self.new[v] = OPS.reshape(stack, v.shape)
        return self.old.with_roots(self.new[r] for r in self.old.roots)

    def _is_known(self, v: Value, reader: Value) -> bool:
        """Whether v is known in parts, and nothing but the reader needs the whole."""
        return v in self.parts and self.readers[v] == {reader}

    def _may_be_cut(self, v: Value, reader: Value, count: int) -> bool:
        """Whether the parts of v are known, or cost no more than v: it is in memory anyway, or
        elementwise itself."""
        if self._is_known(v, reader):
            return len(self.parts[v]) == count
        if is_view(v) or v.op.kind == "leaf":
            return True
        if v is not reader and len(self.readers[v]) > 1:
            return True
        return _is_elementwise(v) and all(self._may_be_cut(a, v, count) for a in v.args)

    def _part(self, v: Value, reader: Value, k: int, count: int) -> Value:
        shape = _shape(v, count)
        if self._is_known(v, reader) and len(self.parts[v]) == count:
            return OPS.reshape(self.parts[v][k], shape)
        if _is_elementwise(v) and self.readers[v] == {reader}:
            return self._computed(v, k, count)
        if v.op.name == "full":
            return OPS.full(shape, v.attrs["value"], v.dtype)
        if v.op.name == "broadcast_to" and v.args[0].shape[-1:] == v.shape[-1:]:
            return OPS.broadcast_to(self._part(v.args[0], v, k, count), shape)
        periods, origin = OPS.reshape(self.new[v], (*shape[:-1], count)), (0,) * v.rank
        return OPS.slice(periods, (*origin, k), (1,) * periods.rank, shape)

    def _computed(self, v: Value, k: int, count: int) -> Value:
        args = tuple(self._part(a, v, k, count) for a in v.args)
        return Value(v.op, args, v.attrs, _shape(v, count), v.dtype)


def _shape(v: Value, count: int) -> tuple[int, ...]:
    """The shape of one of so many parts."""
    return (*v.shape[:-1], v.shape[-1] // count, 1)


def _is_stack(v: Value) -> bool:
    return v.op.name == "concat" and len(stacked(v, v.args)) > 1


def _is_elementwise(v: Value) -> bool:
    return v.op.kind == "map" and bool(v.op.opcode) and all(a.shape == v.shape for a in v.args)
