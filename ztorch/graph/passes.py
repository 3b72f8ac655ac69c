"""The passes over a finished graph. Each returns a graph with the same meaning.

All passes are optional, and any selection in any order gives the same results within rounding: each
pass is exact, but which values become one kernel decides the order in which a sum is added. They
run after differentiation, so they need not keep anything for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ztorch.errors import unknown
from ztorch.graph.body import Body
from ztorch.graph.fold import fold
from ztorch.graph.hoisting import products_first
from ztorch.graph.merging import merged
from ztorch.graph.movement import simplify_movement
from ztorch.graph.rewrite import rebuilt, rewrite
from ztorch.graph.sparse_stacks import sparse_stacks
from ztorch.graph.value import Graph, Value, attribute_key

# Opcodes whose operands may be swapped without changing a bit. Not min and max: of 0.0 and -0.0
# they may return either.
_COMMUTATIVE = frozenset({"add", "mul", "eq", "ne", "and", "or", "xor"})

SMALL_CONSTANT = 1 << 16  # bytes of a constant that is compared with others; larger ones take long


def cse(graph: Graph) -> Graph:
    """The graph with equal nodes merged. All ops are pure; of leaves, constants may be equal."""
    new: dict[Value, Value] = {}
    first: dict[tuple, Value] = {}
    for old in graph.nodes():
        node = rebuilt(old, tuple(new[a] for a in old.args))
        key = _key_of_leaf(node) if node.op.kind == "leaf" else _key(node)
        new[old] = node if key is None else first.setdefault(key, node)
    return graph.with_roots(new[r] for r in graph.roots)


def _key_of_leaf(v: Value) -> tuple | None:
    """Ops make the same small constants each time that they are called."""
    if v.attrs["role"] != "constant" or v.attrs["data"].nbytes > SMALL_CONSTANT:
        return None
    return v.shape, v.dtype.name, attribute_key({"data": v.attrs["data"]})


def _key(v: Value) -> tuple:
    args = sorted(map(id, v.args)) if v.op.opcode in _COMMUTATIVE and v.op.kind == "map" else map(
        id, v.args)
    return id(v.op), *args, v.dtype.name, attribute_key(v.attrs)


def prune(graph: Graph) -> Graph:
    """The graph without updates that set a state to its own old value.

    Nodes that nothing depends on need no removal: a graph is all that its outputs and updates
    reach.
    """

    def changes(name: str, v: Value) -> bool:
        return not (v.attrs.get("role") == "state" and v.attrs["name"] == name)

    return replace(graph, updates={n: v for n, v in graph.updates.items() if changes(n, v)})


PASSES: dict[str, Callable[[Graph], Graph]] = {
    "fold": fold,
    "movement": simplify_movement,
    "cse": cse,
    "prune": prune,
}
DEFAULT = ("fold", "movement", "fold", "cse", "prune")  # movement exposes constants to fold


def run(graph: Graph, names: Sequence[str] = DEFAULT) -> Graph:
    """The graph after these passes, in this order.

    >>> from ztorch import ops
    >>> from ztorch.graph.op import leaf
    >>> x = leaf("input", "x", (2, 3), "float32")
    >>> y = ops.transpose(ops.transpose(x)) * 1.0 + ops.exp(x) * ops.exp(x)
    >>> [v.op.name for v in run(Graph({"y": y})).nodes()]
    ['leaf', 'exp', 'mul', 'add']
    """
    for name in names:
        if name not in PASSES:
            raise unknown("pass", name, PASSES)
    graph = products_first(_inside_loops(sparse_stacks(merged(graph)), names))
    for name in names:
        graph = PASSES[name](graph)
    return graph


def _inside_loops(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph after the passes over the bodies of its loops."""
    bodies: dict[Body, Body] = {}

    def smaller(v: Value) -> Value | None:
        if v.op.kind != "loop" or v.attrs["body"] in bodies.values():
            return None
        body: Body = v.attrs["body"]
        if body not in bodies:
            inside = run(Graph({str(k): r for k, r in enumerate(body.roots)}), names)
            bodies[body] = body.with_roots(inside.roots)
        return Value(v.op, v.args, {"body": bodies[body]}, v.shape, v.dtype, v.layer)

    return rewrite(graph, smaller) if any(v.op.kind == "loop" for v in graph.nodes()) else graph
