"""Finds ops that combine the rows of a batch, such as a mean over axis 0, or count them.

Rows of padding would change the results of such an op, so its batches are never padded. The batch
is followed through the graph from the inputs, by its place (`layers/axis_movement.py`). Where it
cannot be followed, rows count as independent.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from ztorch.graph.body import Body, arguments
from ztorch.graph.value import Graph, Value
from ztorch.layers.axis_movement import keeps_places, moved_place, movement, place
from ztorch.model.size_effects import SizeEffects

Lost = None  # the place of a batch that cannot be followed
Place = int | None


class _Mixed(Exception):
    """An op combines rows."""


def mixing_op(graph: Graph, inputs: Iterable[Value], rows: int,
              hiding: Collection[str] = (), larger: Graph | None = None) -> Value | None:
    """The first op that combines rows of a batch, or depends on their number; None if there is
    none.

    Args:
        graph: The outputs of a model.
        inputs: The inputs whose first axis is the batch.
        rows: The size of the batch. A batch of one row is never padded.
        hiding: Layers that hide rows of padding, and may combine the others. Default: `()`.
        larger: The same graph for one more row, which shows effects of the size of the batch.
            Default: `None`.

    Examples:
        >>> from ztorch.graph.op import OPS, leaf
        >>> x = leaf("input", "x", (8, 3), "float32")
        >>> mixing_op(Graph({"y": OPS.exp(x)}), [x], 8)
        >>> mixing_op(Graph({"y": x - OPS.mean(x, axis=0)}), [x], 8).op.name
        'sum'
    """
    if rows == 1:
        return None
    effects = SizeEffects(rows)
    if larger is not None:
        counting = effects.first(graph.nodes(), larger.nodes())
        if counting is not None and counting.layer not in hiding:
            return counting
    return _Rows(rows, hiding, effects.places, effects.even).mixing(
        graph.nodes(), dict.fromkeys(inputs, 1) | effects.places)


class _Rows:
    """Follows a batch of rows through graphs and the bodies of their loops."""

    def __init__(self, rows: int, hiding: Collection[str], begins: dict[Value, int],
                 even: Collection[Value]):
        self.rows, self.hiding = rows, hiding
        self.begins = begins  # the places of values that no argument gives rows
        self.even = even  # those of them that are the same in each row
        self.results: dict[Value, list[Place]] = {}  # of loops

    def mixing(self, nodes: Iterable[Value], places: dict[Value, int]) -> Value | None:
        """The first op that combines rows. The places of values before it are added to `places`."""
        for v in nodes:
            known = {k: places[a] for k, a in enumerate(v.args) if a in places}
            known = {k: at for k, at in known.items() if v.args[k] not in self.even} or known
            if v.op.kind == "result" and v.args[0] in self.results:
                at = self.results[v.args[0]][v.attrs["index"]]
            elif not known or v in places:
                continue
            elif v.op.kind == "loop":
                mixed = self._in_loop(v, known)
                if mixed is not None:
                    return mixed
                continue
            else:
                try:
                    at = _place(v, known, self.rows)
                except _Mixed:
                    if v.layer in self.hiding:
                        continue
                    return v
            if at is not Lost:
                places[v] = at
        return None

    def _in_loop(self, loop: Value, known: dict[int, int]) -> Value | None:
        """The same for the body of a loop, which carries rows from one iteration to the next."""
        body: Body = loop.attrs["body"]
        leaves = {leaf: known[k] for k, leaf in enumerate(body.leaves) if k in known}
        for leaf, x in zip(body.slices, arguments(body, loop.args)[1], strict=True):
            if leaf in leaves and place(x, leaves[leaf], self.rows)[0] == 0:
                if body.carries:  # it iterates over rows
                    return loop
                del leaves[leaf]
            elif leaf in leaves:
                leaves[leaf] //= body.trip_count
        while True:
            places = self.begins | leaves
            mixed = self.mixing(body.nodes, places)
            if mixed is not None:
                return mixed
            states = {c: places[new] for c, new in zip(body.carries, body.news, strict=True)
                      if new in places}
            if states.keys() <= leaves.keys():
                break
            leaves = states | leaves  # a state that began as zeros
        ends = [states.get(c) if leaves.get(c) == states.get(c) else Lost for c in body.carries]
        self.results[loop] = [*ends, *(places[v] * body.trip_count if v in places else Lost
                                       for v in body.outs)]
        return None


def _place(v: Value, known: dict[int, int], rows: int) -> Place:
    if v.size == 0:
        return Lost
    places = {_place_by(v, k, before, rows) for k, before in known.items()}
    if Lost in places:
        return Lost
    if len(places) > 1:  # each row meets all others
        raise _Mixed
    return places.pop()


def _place_by(v: Value, k: int, before: int, rows: int) -> Place:
    """The place in a value, from that in argument k."""
    x, move = v.args[k], movement(v, k)
    if v.op.name == "reshape":
        return _reshape(v, x, before, rows)
    if v.op.name == "take_along_axis":
        return before if k == 1 else _looked_up(v, before, rows)
    if move is None:
        return before if keeps_places(v) else _other(v, x, before, rows)
    axis = place(x, before, rows)[0]
    if axis in move.summed:
        raise _Mixed
    if axis not in move.changed:
        return moved_place(v, x, before, rows, move.axis_of)
    # Two batches as one, as twin networks do, are rows as before.
    return Lost if v.op.name == "concat" else _lost_rows(x, before, rows)


def _reshape(v: Value, x: Value, before: int, rows: int) -> Place:
    """The order of elements stays. A batch in several groups is not a batch of rows."""
    for axis, n in enumerate(v.shape):
        outer = math.prod(v.shape[:axis])
        if before % outer == 0 and outer * n % (before * rows) == 0:
            return before
    return _lost_rows(x, before, rows)


def _looked_up(v: Value, before: int, rows: int) -> Place:
    """From the table of `take_along_axis`, whose sizes are those of v but along the axis."""
    axis, n = v.attrs["axis"], v.attrs["n"]
    outer = math.prod(v.shape[:axis])
    if outer % (before * rows) == 0:
        return before
    if before % (outer * n) == 0:
        return before // n * v.shape[axis]
    if n == rows and before == outer:
        raise _Mixed
    return Lost


def _lost_rows(x: Value, before: int, rows: int) -> Place:
    """The batch is an axis by itself, which changes; a part of an axis cannot be followed."""
    if x.shape[place(x, before, rows)[0]] == rows:
        raise _Mixed
    return Lost


def _other(v: Value, x: Value, before: int, rows: int) -> Place:
    """Of an op that is known by its axes alone: a batch that comes first stays first. Only its size
    tells which axis of the result it is."""
    axis = place(x, before, rows)[0]
    if v.rank == x.rank and v.attrs.get("axis") in (axis, axis - x.rank):
        raise _Mixed
    first = before == 1 and v.rank == x.rank and x.shape[0] == rows == v.shape[0]
    alone = v.shape.count(rows) == x.shape.count(rows) == 1
    return 1 if first and alone and v.op.kind == "map" else Lost
