"""Computes the parts of padded and concatenated values in place, so that no kernel copies them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from ztorch.graph.op import OPS, leaf
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Graph, Value, layer_scope
from ztorch.lower.cpu.left_operand import access_pattern
from ztorch.lower.insets import BORDER, INSET
from ztorch.lower.region import COPY, is_view
from ztorch.lower.tuning import INSET_RUN, INSET_SHARE

Shape = tuple[int, ...]
Place = tuple[Value, Shape]  # a whole value, and the offset of a part in it


def with_insets(graph: Graph, only_longer_rows: bool = False) -> Graph:
    """The graph with insets for values that are padded or concatenated, and then read by other
    kernels. A graph with loops is not changed, since loops place their operands and results.
    `only_longer_rows`: of copies whose rows are padded for alignment alone; nothing reads that."""
    nodes = graph.nodes()
    if any(v.op.kind == "loop" for v in nodes) or not any(map(_parts, nodes)):
        return graph
    return _Insets(graph, only_longer_rows).graph()


def with_outs_in_place(body: Graph) -> Graph:
    """The body of a loop with insets for the parts of concatenations that are its outs."""
    outs = {v for v in body.outputs.values() if v.op.name == "concat"}
    if not outs or any(v.op.kind == "loop" for v in body.nodes()):
        return body
    return _Insets(body, False, outs).graph()


class _Insets:
    def __init__(self, graph: Graph, only_longer_rows: bool, outs: Collection[Value] = ()):
        """`outs`: of a body, the only values with parts that are looked at."""
        self.old, self.outs = graph, outs
        self.readers: dict[Value, list[Value]] = {}
        for v in graph.nodes():
            for a in dict.fromkeys(v.args):
                self.readers.setdefault(a, []).append(v)
        self.roots = {*graph.roots}
        self.wholes: set[Value] = set()  # values with a buffer that is computed in parts
        self.inside: dict[Value, Place] = {}  # concatenations that are parts of larger ones
        # By the value that a kernel computes: the parts that it is, up to a reshape.
        self.parts: dict[Value, list[tuple[Value, Place]]] = {}
        for v in reversed(graph.nodes()):
            if v not in self.inside and self._is_stored(v) and (
                    not only_longer_rows or self._has_longer_rows(v)):
                self._take(v)

    def _is_stored(self, v: Value) -> bool:
        """Whether v has parts, and readers in other kernels."""
        if not _parts(v) or v in self.roots or self.outs:
            return v in self.outs
        return any(
            rearranged or bool(_parts(r)) or r.op.kind not in ("map", "reduce") or v.size != (
                r if r.op.kind == "map" else r.args[0]).size or (r.op is COPY and r in self.roots)
            for r, rearranged in self._readers_of(v))

    def _has_longer_rows(self, v: Value) -> bool:
        """Whether v is a copy with padding that no reader reads."""
        return v.op is COPY and v.args[0].op.name == "pad" and not self._border(v)

    def _readers_of(self, v: Value, rearranged: bool = False) -> Iterator[tuple[Value, bool]]:
        """The readers of v through views, and whether the views do more than reshape."""
        for r in self.readers.get(v, ()):
            if is_view(r):
                yield from self._readers_of(r, rearranged or r.op.name != "reshape")
            else:
                yield r, rearranged

    def _take(self, whole: Value) -> None:
        """Computes the parts of a value in its buffer, if that is possible for most of it."""
        inside: dict[Value, Place] = {}
        parts: list[tuple[Value, Value, Shape]] = []  # computed value, part, offset
        stack = [(whole, (0,) * whole.rank)]
        while stack:
            v, origin = stack.pop()
            for x, low in _parts(v):
                at = tuple(a + b for a, b in zip(origin, low, strict=True))
                if x.op.name == "concat" and x not in inside and self._is_stored(x):
                    inside[x] = whole, at
                    stack.append((x, at))
                else:
                    base = _without_reshapes(x)
                    parts.append((base if self._is_computed(base) else x, x, at))
        in_place = sum(x.size for base, x, _ in parts
                       if self._is_computed(base) and _run(x.shape, whole.shape) >= INSET_RUN)
        if in_place < INSET_SHARE * sum(x.size for _, x, _ in parts):
            return
        self.wholes.add(whole)
        self.inside |= inside
        for base, x, at in parts:
            self.parts.setdefault(base, []).append((x, (whole, at)))

    def _is_computed(self, v: Value) -> bool:
        """Whether v is computed by a kernel that can store it at any offset and stride."""
        return (not is_view(v) and v.op.kind in ("map", "reduce", "contract", "winograd")
                and not v.op.partial and v not in self.wholes and v not in self.inside)

    # -- the new graph ---------------------------------------------------------------------------

    def graph(self) -> Graph:
        """The graph with insets. The insets of a buffer form a chain, which fixes their order."""
        new: dict[Value, Value] = {}
        last: dict[Value, Value] = {}  # the last inset so far, by whole
        for v in self.old.nodes():
            with layer_scope(v.layer):
                if v in self.wholes:
                    new[v] = last[v]
                elif v in self.inside:
                    new[v] = _cut(last, *self.inside[v], v.shape)
                else:
                    new[v] = rebuilt(v, tuple(new[a] for a in v.args))
                parts = self.parts.get(v, [])
                for x, (whole, low) in parts:
                    before = [last[whole]] if whole in last else self._border(whole)
                    last[whole] = INSET(OPS.reshape(new[v], x.shape), *before, shape=whole.shape,
                                        low=low)
                if parts and self._may_move(v):
                    x, (whole, low) = parts[-1]
                    new[v] = OPS.reshape(_cut(last, whole, low, x.shape), v.shape)
        return self.old.with_roots(new[r] for r in self.old.roots)

    def _border(self, whole: Value) -> list[Value]:
        """The border that a buffer begins with; none if every element that is read is stored by an
        inset."""
        pad = whole.args[0] if whole.op is COPY else whole
        if pad.op.name != "pad":
            return []
        low, inner = pad.attrs["low"], pad.args[0].shape
        if all(_is_within(r, low, inner) for r in self.readers[whole]):
            return []
        fill = OPS.full((), pad.attrs["value"], pad.dtype)
        return [BORDER(fill, shape=pad.shape, low=low, inner=inner)]

    def _may_move(self, v: Value) -> bool:
        """Whether all readers of v can read it inside the whole."""
        x, (whole, low) = self.parts[v][-1]
        if v in self.roots or not self._is_computed(v):
            return False
        stand_in = leaf("input", "whole", whole.shape, v.dtype)
        moved = OPS.reshape(_cut({whole: stand_in}, whole, low, x.shape), v.shape)
        return all(_can_read(r, v, moved) for r, _ in self._readers_of(v)
                   if r not in self.wholes and r not in self.inside)


def _parts(v: Value) -> list[tuple[Value, Shape]]:
    """The parts of v with their offsets; empty if v is no padded or concatenated value."""
    if v.op is COPY:
        return _parts(v.args[0])
    if is_view(v) or not v.size:
        return []
    if v.op.name == "pad":
        low: Shape = v.attrs["low"]
        return [(v.args[0], low)] if v.args[0].size else []
    if v.op.name != "concat":
        return []
    parts, axis, start = [], v.attrs["axis"], 0
    for x in v.args:
        if x.size:
            parts.append((x, tuple(start if k == axis else 0 for k in range(v.rank))))
        start += x.shape[axis]
    return parts


def _is_within(v: Value, low: Shape, inner: Shape) -> bool:
    """Whether v is a slice that reads no element of the border."""
    if v.op.name != "slice":
        return False
    spans = zip(*(v.attrs[name] for name in ("start", "step", "size")), low, inner, strict=True)
    return all(a <= min(start, last := start + step * (size - 1)) and max(start, last) < a + n
               for start, step, size, a, n in spans)


def _cut(last: dict[Value, Value], whole: Value, low: Shape, shape: Shape) -> Value:
    return OPS.slice(last[whole], low, (1,) * len(shape), shape)


def _can_read(reader: Value, v: Value, moved: Value) -> bool:
    """Whether a kernel that reads v can read `moved` in its place, without a copy."""
    if reader.op.kind == "map":
        return not reader.op.partial
    if reader.op.kind != "contract":
        return reader.op.kind in ("reduce", "winograd")
    left, right = reader.args
    if _replaced(right, v, moved) is not right:
        return False
    before, after = access_pattern(left), access_pattern(_replaced(left, v, moved))
    return before is not None and after is not None and {*before.heights} <= {*after.heights}


def _replaced(x: Value, v: Value, by: Value) -> Value:
    """The view x with v replaced by another value."""
    if x is v:
        return by
    return rebuilt(x, tuple(_replaced(a, v, by) for a in x.args)) if is_view(x) else x


def _without_reshapes(v: Value) -> Value:
    while v.op.name == "reshape":
        [v] = v.args
    return v


def _run(part: Shape, whole: Shape) -> int:
    """The number of elements of a part that are contiguous in the whole."""
    cut = [k for k, (n, m) in enumerate(zip(part, whole, strict=True)) if n != m]
    return math.prod(part[cut[-1]:]) if cut else math.prod(part)
