"""Beam search as a graph function: it follows several continuations of one prompt and keeps the
best.

A row is a beam. In each iteration, every live beam proposes itself extended by each next number,
and every finished beam proposes itself. Proposals are ranked by their log-probability divided by
their length to the power of `length_penalty`. The best ones become the new rows, with the caches of
the beams they continue.
"""

from __future__ import annotations

import math
from typing import Protocol

from ztorch.dtypes import DType
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value
from ztorch.model.turns import NOTHING, Carried, goes_on, loop, written
from ztorch.ops.control import scan


class Stepping(Protocol):
    """A model that runs one position of each row, as beam search needs it of `Generation`."""

    dtype: DType  # of the numbers
    rows: int
    classes: int
    turns: int
    caches: Carried

    def logits(self, now: Carried, active: Value) -> tuple[Value, Carried]: ...


def beams_graph(model: Stepping) -> Graph:
    """The position of each beam -> its next numbers, the beams they continue, and its score."""
    rows, classes = model.rows, model.classes
    entries = {name: leaf("input", name, (rows,), dtype) for name, dtype in (
        ("x", model.dtype), ("position", "int32"), ("live", "bool"), ("score", "float32"),
        ("length", "int32"))}
    count, beams = (leaf("input", name, (1,), "int32") for name in ("count", "beams"))
    length_penalty = leaf("input", "length_penalty", (1,), "float32")
    stops = leaf("input", "stops", (classes,), "bool")

    def turn(now: Carried) -> Carried:
        go, live = now["go"], now["live"]
        active = OPS.logical_and(live, go)
        logits, caches = model.logits(now, active)
        offers = _scores(now["score"], live, OPS.cast(OPS.log_softmax(logits), "float32"))
        lengths = now["length"] + OPS.cast(live, "int32")
        power = OPS.cast(OPS.maximum(lengths, 1), "float32") ** length_penalty
        best = _best(offers / OPS.reshape(power, (-1, 1)), rows)
        parent, number = OPS.floor_divide(best, classes), OPS.remainder(best, classes)
        score = OPS.where(OPS.less(OPS.iota((rows,), 0), beams),
                          OPS.take(offers, best), -math.inf)
        grew = OPS.logical_and(OPS.take(live, parent, 0), score > -math.inf)
        parent = OPS.where(go, parent, OPS.iota((rows,), 0))
        new = {**{name: OPS.take(v, parent, 0) for name, v in caches.items()},
               "token": OPS.where(grew, OPS.cast(number, model.dtype), now["token"]),
               "position": OPS.take(now["position"], parent, 0) + OPS.cast(grew, "int32"),
               "live": OPS.logical_and(grew, OPS.logical_not(OPS.take(stops, number, 0))),
               "score": score, "length": OPS.take(lengths, parent, 0)}
        new = {name: v if name in caches else OPS.where(go, v, now[name])
               for name, v in new.items()}
        made = now["made"] + 1
        return {**new, "tokens": written(number, now["made"], now["tokens"],
                                         OPS.logical_and(grew, go)),
                "parents": written(parent, now["made"], now["parents"],
                                   OPS.broadcast_to(go, (rows,))),
                "made": made, "go": goes_on(go, made, count, new["live"])}

    made = OPS.full((1,), 0, "int32")
    nothing = OPS.full((rows, model.turns), NOTHING, "int32")
    first = {**model.caches, "token": entries.pop("x"), **entries, "tokens": nothing,
             "parents": nothing, "made": made,
             "go": goes_on(None, made, count, entries["live"])}
    last = loop(model.turns, first, turn)
    outputs = ("tokens", "parents", "score", "length", "live", "position")
    return Graph({name: last[name] for name in outputs},
                 {name: last[name] for name in model.caches})


def _scores(score: Value, live: Value, more: Value) -> Value:
    """The score of each proposal, (rows, classes): a live beam with each number, or a finished beam
    in place of the first number."""
    column = OPS.reshape(score, (-1, 1))
    as_it_is = OPS.where(OPS.equal(OPS.iota(more.shape, 1), 0), column, -math.inf)
    return OPS.where(OPS.reshape(live, (-1, 1)), column + more, as_it_is)


def _best(ranks: Value, count: int) -> Value:
    """The flat positions of the largest elements, largest first; ties in order of position."""
    flat = OPS.reshape(ranks, (-1,))

    def next_best(ranks: Value, _: None) -> tuple[Value, Value]:
        at = OPS.argmax(ranks)
        is_best = OPS.equal(OPS.iota((flat.size,), 0), at)
        return OPS.where(is_best, -math.inf, ranks), at

    return scan(next_best, flat, length=count)[1]
