"""Products whose columns are read in groups, such as those of the gates of a recurrent layer.

They become a product for each group. One kernel computes these together with what is made of them,
because their elements then meet at one position: no sum is stored, and workers meet once less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.ir.limits import Limits
from ztorch.lower.tuning import COLUMN_GROUP_ROWS, L2_SHARE, TILE_PRODUCTS_MAX


def with_column_groups(graph: Graph, limits: Limits) -> Graph:
    """The graph with small products, and elementwise values of them, divided by their readers."""
    readers = _Readers(graph)
    groups: dict[Value, list[Value]] = {}  # by the slice that reads a group: the values it divides
    for v in graph.nodes():
        if v.op.kind == "contract" and is_small(v, limits):
            cone, slices_read = readers.groups(v)
            groups |= dict.fromkeys(slices_read, cone)
    if not groups:
        return graph
    new: dict[Value, Value] = {}
    slices: dict[tuple[Value, int], Value] = {}  # of operands, which several products may share
    for v in graph.nodes():
        new[v] = _divided(v, groups[v], new, slices) if v in groups else rebuilt(
            v, tuple(new[a] for a in v.args))
    return graph.with_roots(new[r] for r in graph.roots)


def is_small(product: Value, limits: Limits) -> bool:
    """Whether a product of matrices has few rows, and a right operand that the L2 cache holds."""
    left, right = product.args
    return (left.rank == right.rank == 2 and product.shape[0] <= COLUMN_GROUP_ROWS
            and right.nbytes <= limits.processor.l2_bytes * L2_SHARE)


class _Readers:
    """The readers of the values of a graph."""

    def __init__(self, graph: Graph):
        self.roots, nodes = {*graph.roots}, graph.nodes()
        self.order = {v: k for k, v in enumerate(nodes)}
        self.of: dict[Value, list[Value]] = {}
        for v in nodes:
            for a in dict.fromkeys(v.args):
                self.of.setdefault(a, []).append(v)

    def groups(self, product: Value) -> tuple[list[Value], list[Value]]:
        """The product and the elementwise values of it in order, and the slices that read a group
        of their columns each; no slices if something else reads them, too."""
        cone, groups, pending = [product], [], [product]
        while pending:
            v = pending.pop()
            if v in self.roots:
                return cone, []
            for r in self.of.get(v, ()):
                if r.op.name == "slice":
                    groups.append(r)
                elif r.op.kind != "map" or not r.op.opcode or r.shape != product.shape:
                    return cone, []
                elif r not in cone:
                    cone.append(r)
                    pending.append(r)
        rows, columns = product.shape
        width = groups[0].shape[1] if groups else 0
        count = columns // width if width else 0
        fits = count * width == columns and 1 < count <= TILE_PRODUCTS_MAX and all(
            g.shape == (rows, width) and g.attrs["step"] == (1, 1) and g.attrs["start"][1] % width
            == 0 for g in groups)
        cone.sort(key=lambda v: self.order[v])
        return cone, groups if fits and self._meet(groups) else []

    def _meet(self, groups: list[Value]) -> bool:
        """Whether some value is computed from elements of all groups at one position."""
        first, *others = {g.attrs["start"]: g for g in groups}.values()
        return bool({*self._made_of(first)}.intersection(*map(self._made_of, others)))

    def _made_of(self, v: Value) -> Iterator[Value]:
        """The elementwise values that are made of elements of v."""
        visited, pending = {v}, [v]
        while pending:
            for r in self.of.get(pending.pop(), ()):
                if r not in visited and r.shape == v.shape and r.op.kind == "map" and (
                        not r.op.movement):
                    visited.add(r)
                    pending.append(r)
                    yield r


def _divided(group: Value, cone: Sequence[Value], new: Mapping[Value, Value],
             slices: dict[tuple[Value, int], Value]) -> Value:
    """What a slice reads, computed for its columns alone. `cone` are the product and the
    elementwise values of it in order, of which later ones may depend on the slice; `new` are the
    replacements of all others."""
    first, width = group.attrs["start"][1], group.shape[1]

    def part(v: Value) -> Value:
        v = new[v]
        if (v, first) not in slices:
            with layer_scope(v.layer):
                slices[v, first] = OPS.slice(v, (0, first), (1, 1), (v.shape[0], width))
        return slices[v, first]

    parts: dict[Value, Value] = {}
    for v in cone[:cone.index(group.args[0]) + 1]:
        args = tuple(parts[a] if a in parts else part(a) for a in v.args
                     ) if v.op.kind != "contract" else (new[v.args[0]], part(v.args[1]))
        parts[v] = Value(v.op, args, v.attrs, (v.shape[0], width), v.dtype, v.layer)
    return parts[group.args[0]]
