"""Chooses the order of axes in which values are computed, to transpose as few tensors as possible.

A channels-first network transposes its images before each convolution, and back after it. The
elementwise ops, paddings and concatenations in between can be computed in either order. They form
*groups*: values of one rank that read one another. A group is computed in the order that transposes
the fewest elements at its edges, where it meets products and reshapes. So pairs of opposite
transposes disappear, and transposes remain only at the inputs and outputs of a network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ztorch.graph.batching import pointwise
from ztorch.graph.movement import simplify_movement
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import filled, rebuilt
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.lower.region import is_view
from ztorch.lower.tuning import PLANES_MAX

Shape = tuple[int, ...]
Order = tuple[int, ...]  # axis k of the reordered value is axis order[k] of the value


def with_fewest_transposes(graph: Graph) -> Graph:
    """The graph with each group of elementwise values in its best order of axes.

    Sums along several axes may be added in another order.

    >>> from ztorch import ops
    >>> from ztorch.graph.op import leaf
    >>> from ztorch.graph.value import show
    >>> x = leaf("input", "x", (6, 5, 4), "float32")
    >>> y = ops.exp(ops.transpose(ops.sum(x, axis=0), (1, 0)))
    >>> print(show(with_fewest_transposes(Graph({"y": ops.transpose(y, (1, 0))}))))
    v0  input x           float32[6, 5, 4]
    v1  sum(axes=(0,)) v0 float32[5, 4]
    v2  exp v1            float32[5, 4]
    y = v2
    """
    if not any(v.op.name == "transpose" for v in graph.nodes()):
        return graph
    return simplify_movement(_reordered(graph, _orders(graph)))


# -- choosing orders -------------------------------------------------------------------------------


class _Group:
    """Values of one rank that read one another, and their edges to the rest of the graph."""

    def __init__(self) -> None:
        self.members: list[Value] = []
        self.sources: dict[Value, None] = {}  # values that members read from outside
        self.exits: dict[tuple[Value, Value | None], None] = {}  # (member, reader); None: a root
        self.planes: set[tuple[Value, Value | None]] = set()  # exits that take any order

    def best_order(self) -> Order | None:
        """The order that transposes the fewest elements; None for the current order."""
        usual = tuple(range(self.members[0].rank))
        best = min((usual, *self._candidates()), key=self._transposed_elements)
        return None if best == usual else best

    def _candidates(self) -> Iterable[Order]:
        """The orders that remove a transpose at an edge of the group."""
        orders = [inverse(v.attrs["axes"]) for v in self.sources if v.op.name == "transpose"]
        orders += [reader.attrs["axes"] for _, reader in self.exits
                   if reader is not None and reader.op.name == "transpose"]
        return dict.fromkeys(orders)

    def _transposed_elements(self, order: Order) -> int:
        """The elements that are transposed at the edges if members are computed in an order."""
        back = inverse(order)
        total = sum(_size_to_enter(v, order) for v in self.sources)
        unchanged: dict[Value, None] = {}  # members that are read as they were
        for v, reader in self.exits:
            if (v, reader) in self.planes:
                continue
            if reader is not None and reader.op.name == "transpose":
                shape = tuple(v.shape[k] for k in order)
                total += _transposed_size(shape, tuple(back[k] for k in reader.attrs["axes"]))
            elif reader is not None and reader.op.kind == "reduce":
                total += _transposed_size(*_reduced_shape(reader, order))
            else:
                unchanged[v] = None
        return total + sum(_transposed_size(v.shape, order) for v in unchanged)


def _orders(graph: Graph) -> dict[Value, Order]:
    """The new order of each value whose order should change."""
    nodes, group_of = graph.nodes(), dict[Value, _Group]()
    for v in nodes:
        if not _flexible(v):
            continue
        near = {id(group_of[a]): group_of[a] for a in v.args if a in group_of}
        group, *others = sorted(near.values(), key=lambda g: -len(g.members)) or [_Group()]
        for other in others:
            group.members += other.members
            group_of.update(dict.fromkeys(other.members, group))
        group.members.append(v)
        group_of[v] = group
    for v in nodes:
        for a in v.args:
            if v in group_of and a not in group_of:
                group_of[v].sources[a] = None
            elif a in group_of and v not in group_of:
                group_of[a].exits[a, v] = None
    for r in graph.roots:
        if r in group_of:
            group_of[r].exits[r, None] = None
    readers: dict[Value, list[Value]] = {}
    for v in nodes:
        for a in v.args:
            readers.setdefault(a, []).append(v)
    for group in group_of.values():
        group.planes = {(v, reader) for v, reader in group.exits if reader is not None
                        and ((v.shape[-1] <= PLANES_MAX and _is_left_operand(reader, readers))
                             or _is_read_by_position(reader, readers))}
    orders: dict[Value, Order] = {}
    for group in {id(g): g for g in group_of.values()}.values():
        order = group.best_order()
        if order is not None:
            orders |= dict.fromkeys(group.members, order)
    return orders


def _is_left_operand(v: Value, readers: Mapping[Value, list[Value]]) -> bool:
    """Whether v is read only as the left operand of a product, through views. Such a product loads
    single elements, so the layout of an image with few channels does not matter."""
    while v.op.movement:
        if len(readers.get(v, ())) != 1:
            return False
        [reader] = readers[v]
        if reader.op.kind == "contract":
            return reader.args[0] is v
        v = reader
    return False


def _is_read_by_position(v: Value, readers: Mapping[Value, list[Value]]) -> bool:
    """Whether v is transposed for maps that read it by position, such as sums of windows."""
    return v.op.name == "transpose" and bool(readers.get(v)) and all(
        r.op.kind == "map" and not (r.op.movement or r.op.opcode or _flexible(r))
        for r in readers[v])


def _flexible(v: Value) -> bool:
    """Whether v can be computed from arguments with another order of axes."""
    if v.op.kind != "map" or not v.args or v.rank < 2 or v.op.partial:
        return False
    if v.op.reorder is not None:
        return True
    by_element = bool(v.op.opcode) or v.op.batch is pointwise
    return by_element and all(a.shape == v.shape for a in v.args)


def _transposed_size(shape: Shape, order: Order) -> int:
    """The elements that a transpose moves: 0 if only axes of size 1 change places."""
    large = [k for k in order if shape[k] != 1]
    return math.prod(shape) if large != sorted(large) else 0


def _size_to_enter(v: Value, order: Order) -> int:
    """The elements that are transposed to get v in an order."""
    if filled(v):
        return 0
    if v.op.name == "broadcast_to":
        [x] = v.args
        return _transposed_size((1,) * (v.rank - x.rank) + x.shape, order)
    if _is_transposed_buffer(v):
        axes = v.attrs["axes"]
        return _transposed_size(v.args[0].shape, tuple(axes[k] for k in order))
    return _transposed_size(v.shape, order)


def _reduced_shape(reduction: Value, order: Order) -> tuple[Shape, Order]:
    """The result of a reduction whose argument has another order: its shape, and the transpose that
    restores the original result."""
    axes = reduction.attrs["axes"]
    axes_left = [k for k in order if k not in axes]  # axes of the argument, as they come now
    shape = reduction.args[0].shape
    return tuple(shape[k] for k in axes_left), tuple(axes_left.index(k) for k in sorted(axes_left))


def inverse(order: Order) -> Order:
    """The inverse permutation.

    >>> inverse((0, 2, 3, 1))
    (0, 3, 1, 2)
    """
    return tuple(order.index(k) for k in range(len(order)))


# -- the graph in these orders ---------------------------------------------------------------------


def _reordered(graph: Graph, orders: dict[Value, Order]) -> Graph:
    """The graph with values computed in their new orders, and transposed where they are read."""
    new: dict[Value, Value] = {}  # replacements in the original order
    reordered: dict[Value, Value] = {}  # replacements of values of `orders` in their new order
    for v in graph.nodes():
        with layer_scope(v.layer):
            order = orders.get(v)
            if order is not None:
                args = tuple(reordered[a] if a in reordered else _in_order(new[a], order)
                             for a in v.args)
                attrs = v.op.reorder(order, **v.attrs) if v.op.reorder else v.attrs
                reordered[v] = Value(v.op, args, attrs, tuple(v.shape[k] for k in order), v.dtype)
                new[v] = OPS.transpose(reordered[v], inverse(order))
            else:
                new[v] = rebuilt(v, tuple(new[a] for a in v.args))
                if v.op.kind == "reduce" and (
                        v.args[0] in reordered or _is_transposed_buffer(v.args[0])):
                    new[v] = _reduced_before(new[v])
    return graph.with_roots(new[r] for r in graph.roots)


def _is_transposed_buffer(v: Value) -> bool:
    """Whether v is a transpose of a buffer, not of a view such as windows, whose axes are in the
    best order to read."""
    return v.op.name == "transpose" and not is_view(v.args[0])


def _reduced_before(v: Value) -> Value:
    """A reduction of a transposed tensor as a reduction of the tensor itself, then transposed."""
    [x] = v.args
    if x.op.name != "transpose":
        return v
    axes_order: Order = x.attrs["axes"]
    axes = tuple(sorted(axes_order[k] for k in v.attrs["axes"]))
    y = _reduced_before(v.op(x.args[0], axes=axes))
    return OPS.transpose(y, _reduced_shape(v, inverse(axes_order))[1])


def _in_order(v: Value, order: Order) -> Value:
    """v in an order. A broadcast value is transposed before the broadcast, while it is small."""
    if v.op.name != "broadcast_to":
        return OPS.transpose(v, order)
    [x] = v.args
    x = OPS.reshape(x, (1,) * (v.rank - x.rank) + x.shape)
    return OPS.broadcast_to(OPS.transpose(x, order), tuple(v.shape[k] for k in order))
