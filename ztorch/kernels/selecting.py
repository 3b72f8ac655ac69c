"""Translates selections, the extreme over loops with its position: `if x > best: best, at = x, i`.
"""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import Any

from ztorch.graph.op import OPS
from ztorch.kernels.expressions import ExpressionRules
from ztorch.kernels.patterns import Selection
from ztorch.kernels.tiles import LoopTensor, full, union
from ztorch.kernels.writing import neutral


def run_selection(t: ExpressionRules, s: ast.If, choice: Selection) -> None:
    """Sets the variables of a selection to the values of the best iteration, if it is better than
    the old ones."""
    a = t.arithmetic
    best = t.env[choice.best]
    over = t.parallel(best.depth)
    term = a.tile(t.value(choice.term))
    d = a.common([best.value, term])
    reduction = "maximum" if choice.largest else "minimum"
    lowest = LoopTensor(OPS.full((), neutral(reduction, d), d))
    term = a.cast(term, d)
    valid: Any = t.condition(best.masks)
    if d.is_float:  # NaN never wins a comparison
        valid = a.both(valid, a.apply("equal", term, term))
    term = a.choose(valid, term, lowest)
    others = {n: a.tile(t.value(e)) for n, e in choice.others.items()}
    axes = union([term.axes, over, *(x.axes for x in others.values())])
    kept = tuple(v for v in axes if v not in over)
    if term.shape or any(x.shape for x in others.values()):
        raise t.source.error(s, "the largest of several is chosen among numbers, and "
                             "this is an array", "loop over its elements")

    def flat(x: LoopTensor) -> Any:
        """A tensor whose last axis holds all iterations."""
        value = OPS.transpose(full(x, axes), tuple(axes.index(v) for v in (*kept, *over)))
        return OPS.reshape(value, (*[v.extent for v in kept], math.prod(v.extent for v in over)))

    terms = flat(term)
    last = terms.rank - 1
    if choice.last:
        terms = OPS.flip(terms, last)
    place = (OPS.argmax if choice.largest else OPS.argmin)(terms, axis=last, keepdims=True)
    if choice.last:
        place = terms.shape[last] - 1 - place
        terms = OPS.flip(terms, last)

    def at_place(value: Any) -> LoopTensor:
        y = OPS.take_along_axis(value, place, axis=last)
        return LoopTensor(OPS.reshape(y, y.shape[:-1]), kept)

    extreme = at_place(terms)
    op: ast.cmpop = ast.Gt() if choice.largest else ast.Lt()
    if choice.last:
        op = ast.GtE() if choice.largest else ast.LtE()
    better = a.compare(op, extreme, best.value)
    t.env[choice.best] = replace(best, value=a.choose(better, extreme, best.value))
    for name, x in others.items():
        if name not in t.env:
            raise t.source.error(s, f"{name} is set only where an iteration is chosen",
                                 "set it before the loop")
        old = t.env[name]
        t.env[name] = replace(old, value=a.choose(better, replace(at_place(flat(x)), weak=x.weak),
                                                  old.value))
