"""Simplifies movement: chains collapse, and elementwise work moves before broadcasts.

This only changes which element is read, or how often the same number is computed.
"""

from __future__ import annotations

from collections.abc import Callable

from ztorch.graph.narrow import fewer, sooner
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import filled, rewrite, same_number
from ztorch.graph.value import Graph, Value


def simplify_movement(graph: Graph) -> Graph:
    """The graph with chains of movement collapsed, and computations moved before broadcasts.

    It must run after differentiation, since it removes nodes that only exist for their gradient.

    >>> from ztorch.graph.op import leaf
    >>> from ztorch.graph.value import show
    >>> x = leaf("input", "x", (), "float32")
    >>> print(show(simplify_movement(Graph({"y": OPS.exp(OPS.broadcast_to(x, (2, 3)))}))))
    v0  input x           float32[]
    v1  exp v0            float32[]
    v2  broadcast_to v1   float32[2, 3]
    y = v2
    """
    return rewrite(graph, _simpler)


def _simpler(v: Value) -> Value | None:
    if not v.args:
        return None
    if v.op.alias:
        return v.args[0]
    chosen = fewer(v) if v.op.movement else None
    if chosen is not None:
        return chosen
    if v.op.name in _RULES:
        return _RULES[v.op.name](v, v.args[0])
    return _below_broadcast(v) if v.op.kind == "map" and v.op.opcode else None


def _reshape(v: Value, a: Value) -> Value | None:
    if a.shape == v.shape:
        return a
    if a.op.name == "reshape":
        return OPS.reshape(a.args[0], v.shape)
    if filled(a):
        return OPS.full(v.shape, a.attrs["value"], v.dtype)
    return _one_number(v, a)


def _transpose(v: Value, a: Value) -> Value | None:
    axes = v.attrs["axes"]
    if axes == tuple(range(v.rank)):
        return a
    if a.op.name == "transpose":
        return OPS.transpose(a.args[0], tuple(a.attrs["axes"][k] for k in axes))
    moved = [k for k in axes if a.shape[k] != 1]
    if moved == sorted(moved):  # only axes of size 1 are reordered
        return OPS.reshape(a, v.shape)
    if filled(a):
        return OPS.full(v.shape, a.attrs["value"], v.dtype)
    return _one_number(v, a)


def _broadcast(v: Value, a: Value) -> Value | None:
    if a.shape == v.shape:
        return a
    if filled(a):
        return OPS.full(v.shape, a.attrs["value"], v.dtype)
    if a.op.name == "broadcast_to":
        return OPS.broadcast_to(a.args[0], v.shape)
    if a.op.name == "reshape":  # that only adds or drops leading axes of size 1
        x = a.args[0]
        if x.rank <= v.rank and _without_lead(x.shape) == _without_lead(a.shape):
            return OPS.broadcast_to(x, v.shape)
    return None


def _without_lead(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without its leading axes of size 1, which broadcasting adds anyway."""
    first = next((k for k, n in enumerate(shape) if n != 1), len(shape))
    return shape[first:]


def _slice(v: Value, a: Value) -> Value | None:
    start, step, size = v.attrs["start"], v.attrs["step"], v.attrs["size"]
    if size == a.shape and all(s == 1 or n == 1 for s, n in zip(step, size, strict=True)):
        return a
    if filled(a):
        return OPS.full(v.shape, a.attrs["value"], v.dtype)
    if a.op.name == "slice" and v.size:
        below = zip(a.attrs["start"], a.attrs["step"], strict=True)
        moves = [(s0 + s * t0, t0 * t)
                 for (s0, t0), s, t in zip(below, start, step, strict=True)]
        return OPS.slice(a.args[0], tuple(m[0] for m in moves), tuple(m[1] for m in moves), size)
    if a.op.name == "concat" and v.size:
        return _slice_of_part(v, a)
    return _one_number(v, a)


def _slice_of_part(v: Value, joined: Value) -> Value | None:
    """A slice of joined values that lies in one of them, as a slice of this one."""
    start, step, size = v.attrs["start"], v.attrs["step"], v.attrs["size"]
    axis, before = joined.attrs["axis"], 0
    last = start[axis] + step[axis] * (size[axis] - 1)
    for x in joined.args:
        low, high = sorted((start[axis] - before, last - before))
        if low >= 0 and high < x.shape[axis]:
            moved = (*start[:axis], start[axis] - before, *start[axis + 1:])
            return OPS.slice(x, moved, step, size)
        before += x.shape[axis]
    return None


def _one_number(v: Value, a: Value) -> Value | None:
    """Any arrangement of a broadcast scalar is a broadcast of it."""
    if a.op.name == "broadcast_to" and a.args[0].size == 1:
        return OPS.broadcast_to(OPS.reshape(a.args[0], ()), v.shape)
    return None


def _pad(v: Value, a: Value) -> Value | None:
    if v.shape == a.shape:
        return a
    edge = OPS.full((), v.attrs["value"], v.dtype)
    return OPS.full(v.shape, v.attrs["value"], v.dtype) if same_number(a, edge) else None


def _concat(v: Value, a: Value) -> Value | None:
    if all(same_number(x, a) for x in v.args):
        return OPS.full(v.shape, a.attrs["value"], v.dtype)
    return None


_RULES: dict[str, Callable[[Value, Value], Value | None]] = {
    "reshape": _reshape, "transpose": _transpose, "broadcast_to": _broadcast, "slice": _slice,
    "pad": _pad, "concat": _concat, "rounded_to": sooner,
}


def _below_broadcast(v: Value) -> Value | None:
    """f(broadcast a, broadcast b, 2) as broadcast f(a, b, 2), which computes fewer elements."""
    spread = [a for a in v.args if a.op.name == "broadcast_to"]
    if not spread:
        return None
    small = spread[0].args[0].shape
    if not all(filled(a) or (a.op.name == "broadcast_to" and a.args[0].shape == small)
               for a in v.args):
        return None
    args = tuple(OPS.full(small, a.attrs["value"], a.dtype) if filled(a) else a.args[0]
                 for a in v.args)
    return OPS.broadcast_to(Value(v.op, args, v.attrs, small, v.dtype), v.shape)
