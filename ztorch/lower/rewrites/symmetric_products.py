"""Products that are symmetric: blocks above the diagonal are those below it, transposed.

    x @ x.T = [ a    c.T ]    a, c and d: half of the rows times half of the columns
              [ c    d   ]

So are products of a matrix with its own transpose, and of a symmetric matrix with itself, such as
those of Muon's steps. Each sum adds the same numbers in the same order.
"""

from __future__ import annotations

from ztorch.graph.op import OPS
from ztorch.graph.rewrite import filled, rebuilt
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.lower.tuning import SYMMETRIC_DEPTH, SYMMETRIC_ROWS

_BY_ELEMENT = ("add", "sub", "mul", "div", "neg")


def with_symmetric_products(graph: Graph) -> Graph:
    """The graph with large symmetric products in blocks.

    >>> from ztorch.graph.op import leaf
    >>> x = leaf("input", "x", (400, 600), "float32")
    >>> y = OPS.matmul(x, OPS.transpose(x))
    >>> graph = with_symmetric_products(Graph({"y": y}))
    >>> [v.shape for v in graph.nodes() if v.op.kind == "contract"]
    [(200, 200), (200, 200), (200, 200)]
    """
    if not any(_is_large(v) for v in graph.nodes()):
        return graph
    new: dict[Value, Value] = {}
    symmetric: set[Value] = set()
    for v in graph.nodes():
        with layer_scope(v.layer):
            new[v] = rebuilt(v, tuple(new[a] for a in v.args))
            if _is_symmetric(v, symmetric):
                symmetric.add(v)
                if _is_large(v):
                    new[v] = _in_blocks(new[v], *new[v].args)
    return graph.with_roots(new[r] for r in graph.roots)


def _is_large(v: Value) -> bool:
    """Whether blocks pay for a product, if it is symmetric."""
    return v.op.kind == "contract" and not v.attrs and v.rank == 2 and (
        v.shape[0] >= SYMMETRIC_ROWS and v.args[0].shape[1] >= SYMMETRIC_DEPTH)


def _is_symmetric(v: Value, known: set[Value]) -> bool:
    """Whether a value is a symmetric matrix, given those among the values that it reads."""
    if v.op.kind == "contract" and v.rank == 2 and not v.attrs:
        a, b = v.args
        return (a is b and a in known) or any(
            x.op.name == "transpose" and x.args[0] is y for x, y in ((a, b), (b, a)))
    return v.op.opcode in _BY_ELEMENT and v.rank == 2 and any(a in known for a in v.args) and all(
        a in known or filled(a) or _is_one_number(a) for a in v.args)


def _is_one_number(v: Value) -> bool:
    return v.op.name == "broadcast_to" and v.args[0].size == 1


def _in_blocks(v: Value, a: Value, b: Value) -> Value:
    """A symmetric product of a and b in blocks, if it is large."""
    if v.shape[0] < SYMMETRIC_ROWS:
        return v
    half = v.shape[0] // 2
    above, below = a[:half], a[half:]
    left, right = b[:, :half], b[:, half:]
    corner = OPS.matmul(below, left)
    first = _in_blocks(OPS.matmul(above, left), above, left)
    last = _in_blocks(OPS.matmul(below, right), below, right)
    top = OPS.concat(first, OPS.transpose(corner), axis=1)
    return OPS.concat(top, OPS.concat(corner, last, axis=1), axis=0)
