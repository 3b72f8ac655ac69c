"""Finds large intermediates: matrices larger than the caches, such as the scores of attention, that
are computed and read row by row, so that only a block of rows needs to exist at a time.

The rules are general. A product with few steps along k produces a large intermediate; elementwise
work and reductions along its rows follow; the results are small: products that sum along rows or
over rows, and one number per row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ztorch.graph.body import SHARED
from ztorch.graph.value import Graph, Value
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import flatten
from ztorch.lower.region import traced


@dataclass(frozen=True)
class LargeShape:
    """The shape of large intermediates."""

    batch: tuple[int, ...]  # leading axes; there is one matrix for each of their elements
    rows: int
    columns: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return (*self.batch, self.rows, self.columns)

    def is_row(self, v: Value) -> bool:
        """Whether a value has one number for each row."""
        return v.shape in ((*self.batch, self.rows), (*self.batch, self.rows, 1))


@dataclass(eq=False)
class Group:
    """Results that are computed by one loop over blocks of rows."""

    shape: LargeShape
    results: list[Value]
    inner: set[Value] = field(default_factory=set)  # values computed block by block
    derived: set[Value] = field(default_factory=set)  # those that depend on a large product
    inputs: dict[Value, None] = field(default_factory=dict)  # values computed before the loop

    def large_side(self, result: Value) -> int:
        """Which operand of a product is large, or the transpose of a large value."""
        return next(k for k, a in enumerate(result.args) if a in self.derived or (
            a not in self.inputs and len(a.args) == 1 and a.args[0] in self.derived))


def groups(graph: Graph, shape: LargeShape) -> tuple[list[Group], list[Value]]:
    """The results that can be computed block by block, in groups, and all nodes of the graph in an
    order in which the operands of a group come before its first result."""
    nodes = graph.nodes()
    derived = _Derived(graph, nodes, shape)
    levels: dict[Value, int] = {}  # groups that must run before
    members: dict[tuple[Value, int], Group] = {}
    for v in nodes:
        levels[v] = max((levels[a] for a in v.args), default=0)
        if v in derived.results:
            inner, inputs = _cone(v, derived)
            levels[v] = 1 + max((levels[x] for x in inputs), default=0)
            key = derived.component(v), levels[v]
            group = members.setdefault(key, Group(shape, []))
            group.results.append(v)
            group.inner |= inner
            group.derived |= inner & derived.values
            group.inputs.update(inputs)
    number = {v: k for k, v in enumerate(nodes)}
    return list(members.values()), sorted(nodes, key=lambda v: (levels[v], number[v]))


class _Derived:
    """The values derived from large products whose uses can all be computed block by block."""

    def __init__(self, graph: Graph, nodes: list[Value], shape: LargeShape):
        self.shape = shape
        self.values: set[Value] = set()  # large intermediates, and rows derived from them
        self.results: dict[Value, Value] = {}  # by result: a value that it is computed from
        self._parents: dict[Value, Value] = {}
        for v in nodes:
            if self._is_derived(v):
                self.values.add(v)
                for a in v.args:
                    if a in self.values:
                        self._parents[self._root(a)] = self._root(v)
        self._find_results(graph, nodes)

    def component(self, result: Value) -> Value:
        """The representative of the connected component that a result belongs to."""
        return self._root(self.results[result])

    def _root(self, v: Value) -> Value:
        while (up := self._parents.get(v, v)) is not v:
            v = up
        return v

    def _is_derived(self, v: Value) -> bool:
        shape, inside = self.shape, [a in self.values for a in v.args]
        if v.shape == shape.sizes and v.op.kind == "contract":
            return not any(inside) and not any(_transposed(a) in self.values for a in v.args)
        if not any(inside):
            return False
        if v.op.kind == "reduce":
            return v.args[0].shape == shape.sizes and v.attrs["axes"] == (len(shape.sizes) - 1,)
        if shape.is_row(v) and len(v.args) == 1 and shape.is_row(v.args[0]):
            return _keeps_order(v) if v.op.movement else pointwise(v)
        if v.shape == shape.sizes and is_broadcast(v):
            return shape.is_row(v.args[0]) and v.args[0].rank == v.rank
        return (v.shape == shape.sizes or shape.is_row(v)) and pointwise(v)

    def _find_results(self, graph: Graph, nodes: list[Value]) -> None:
        """Finds the results. A large value that is needed whole excludes its whole component."""
        large = {v for v in self.values if v.shape == self.shape.sizes}
        needed: set[Value] = set()
        for r in graph.roots:
            if r in large:
                needed.add(self._root(r))
            elif r in self.values:
                self.results[r] = r
        transposes = {}
        for v in nodes:
            if v in self.values:
                continue
            if (source := _transposed(v)) in large and v not in graph.roots:
                transposes[v] = source
                continue
            for k, a in enumerate(v.args):
                if a in transposes or a in large:
                    base = transposes.get(a, a)
                    others = [x for x in v.args if x is not a]
                    if v.op.kind == "contract" and len(others) == 1 and (
                            not self.values.union(transposes).intersection(others)) and (
                            k == 0 or a in large):
                        self.results[v] = base
                    else:
                        needed.add(self._root(base))
                elif a in self.values:
                    self.results[a] = a
        self.results = {v: base for v, base in self.results.items()
                        if self._root(base) not in needed}


def _cone(result: Value, derived: _Derived) -> tuple[set[Value], dict[Value, None]]:
    """The values of a block from which a result is computed, and the inputs that they read."""
    inner: set[Value] = set()
    inputs: dict[Value, None] = {}
    if result in derived.values:
        stack = [result]
    else:
        stack = []
        for a in result.args:
            base = a if a in derived.values else _transposed(a)
            if base in derived.values:
                stack.append(base)
            else:
                inputs[a] = None
    while stack:
        v = stack.pop()
        if v in inner:
            continue
        inner.add(v)
        for a in v.args:
            if v.op.kind != "contract" and (
                    a in derived.values or _made_inside(a, derived.shape)):
                stack.append(a)
            else:
                inputs[a] = None
    return inner, inputs


def _made_inside(v: Value, shape: LargeShape) -> bool:
    """Whether a value that does not depend on a large product is computed in each block anyway:
    large values would not fit, and fills cost nothing."""
    if v.shape == shape.sizes:
        return _fills(v) or pointwise(v) or is_broadcast(v)
    return shape.is_row(v) and _fills(v) and "axis" not in v.attrs


def _fills(v: Value) -> bool:
    """Whether v is a fill or a range of numbers."""
    return v.op.kind == "map" and not v.args and "shape" in v.attrs


def is_broadcast(v: Value) -> bool:
    """Whether v broadcasts its argument along axes."""
    if not v.op.movement or set(v.attrs) != {"shape"}:
        return False
    shape = v.args[0].shape
    return len(shape) <= v.rank and all(
        n in (1, m) for n, m in zip(reversed(shape), reversed(v.shape), strict=False))


def _transposed(v: Value) -> Value | None:
    """The matrix that v is the transpose of."""
    if not v.op.movement or len(v.args) != 1 or v.rank < 2 or v.args[0].rank != v.rank:
        return None
    *batch, row, column = (Index.of(Var(f"p{k}", n)) for k, n in enumerate(v.shape))
    trace = traced(v, (*batch, row, column))
    swapped = not trace.computed and trace.reads == [(v.args[0], (*batch, column, row))]
    return v.args[0] if swapped else None


def _keeps_order(v: Value) -> bool:
    """Whether a movement only reshapes its argument."""
    [x] = v.args
    index = tuple(Index.of(Var(f"p{k}", n)) for k, n in enumerate(v.shape))
    trace = traced(v, index)
    return not trace.computed and [(a, flatten(at, a.shape)) for a, at in trace.reads] == [
        (x, flatten(index, v.shape))]


def pointwise(v: Value) -> bool:
    """Whether each element of v depends only on the elements at its position in the arguments."""
    if v.op.kind != "map" or v.op.movement or v.op.partial or not v.args or any(
            a.shape != v.shape for a in v.args):
        return False
    if v.op.opcode:
        return True
    index = tuple(Index.of(Var(f"p{k}", n)) for k, n in enumerate(v.shape))
    trace = traced(v, index)
    return not trace.computed and all(at == index for _, at in trace.reads)


def large_shapes(graph: Graph, ratio: float, most_steps: int) -> list[LargeShape]:
    """The shapes of large products. Products with weights do not count: their weights are packed,
    and read once for all rows.

    Args:
        graph: The graph.
        ratio: The least ratio of columns to steps along k.
        most_steps: The most steps along k: each block reads the right operand again.
    """
    shapes: dict[LargeShape, None] = {}
    fixed: set[Value] = set()  # values of weights alone; in loops, also of shared values
    for v in graph.nodes():
        if v.attrs.get("role") in ("state", "constant", SHARED) or (
                v.args and fixed.issuperset(v.args)):
            fixed.add(v)
        if v.op.kind != "contract" or not v.size or v.args[1] in fixed:
            continue
        steps, columns = v.args[1].shape[-2:]
        if columns >= ratio * steps and steps <= most_steps:
            shapes[LargeShape(v.shape[:-2], v.shape[-2], columns)] = None
    return list(shapes)
