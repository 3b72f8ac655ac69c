"""The passes over a finished graph: each takes a graph and gives another with the same meaning.

No pass is needed for a right answer, and any selection in any order gives the same one within
rounding: each pass is exact, but which values become one kernel decides the order in which a sum
is added. They run after differentiation, for then nothing has to be kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ztorch.errors import unknown
from ztorch.graph.fold import fold
from ztorch.graph.movement import simplify_movement
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, attribute_key

# Opcodes whose operands may trade places without changing a bit (not min and max: of 0.0 and -0.0
# they may give either).
_COMMUTATIVE = frozenset({"add", "mul", "eq", "ne", "and", "or", "xor"})


def cse(graph: Graph) -> Graph:
    """Equal nodes become one. Leaves are what they are; every other op is a pure function."""
    new: dict[Value, Value] = {}
    first: dict[tuple, Value] = {}
    for old in graph.nodes():
        node = rebuilt(old, tuple(new[a] for a in old.args))
        new[old] = node if node.op.kind == "leaf" else first.setdefault(_key(node), node)
    return graph.with_roots(new[r] for r in graph.roots)


def _key(v: Value) -> tuple:
    args = sorted(map(id, v.args)) if v.op.opcode in _COMMUTATIVE and v.op.kind == "map" else map(
        id, v.args)
    return id(v.op), *args, v.dtype.name, attribute_key(v.attrs)


def prune(graph: Graph) -> Graph:
    """Without updates that give a state its own old value. (Nodes that nothing needs are not part
    of a graph to begin with: it is what can be reached from its outputs and updates.)"""

    def changes(name: str, v: Value) -> bool:
        return not (v.attrs.get("role") == "state" and v.attrs["name"] == name)

    return Graph(graph.outputs, {n: v for n, v in graph.updates.items() if changes(n, v)})


PASSES: dict[str, Callable[[Graph], Graph]] = {
    "fold": fold,
    "movement": simplify_movement,
    "cse": cse,
    "prune": prune,
}
DEFAULT = ("fold", "movement", "fold", "cse", "prune")  # movement uncovers constants


def run(graph: Graph, names: Sequence[str] = DEFAULT) -> Graph:
    """The graph after the passes, in order.

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
        graph = PASSES[name](graph)
    return graph
