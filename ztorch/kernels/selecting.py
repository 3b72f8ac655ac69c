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
from ztorch.kernels.scope import KernelVariable
from ztorch.kernels.tiles import Axes, LoopTensor, full, union
from ztorch.kernels.writing import neutral


def run_selection(t: ExpressionRules, s: ast.If, choice: Selection) -> None:
    """Sets the variables of a selection to the values of the best iteration, if it is better than
    the old ones."""
    a = t.arithmetic
    best = t.env[choice.best]
    over = t.parallel(best.depth)
    term = _candidates(t, choice, best)
    others = {n: a.tile(t.value(e)) for n, e in choice.others.items()}
    if term.shape or any(x.shape for x in others.values()):
        raise t.source.error(s, "the largest of several is chosen among numbers, and "
                             "this is an array", "loop over its elements")
    axes = union([term.axes, over, *(x.axes for x in others.values())])
    iterations = _Iterations(axes, over)
    terms = iterations.flat(term)
    position = _best_position(terms, choice)
    extreme = iterations.at(position, terms)
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
        new = replace(iterations.at(position, iterations.flat(x)), weak=x.weak)
        t.env[name] = replace(old, value=a.choose(better, new, old.value))


class _Iterations:
    """The iterations of the loops that a selection reduces.

    Attributes:
        axes: All loops that the values depend on.
        over: The loops that are reduced.
        kept: The other ones.
    """

    def __init__(self, axes: Axes, over: Axes):
        self.axes = axes
        self.over = over
        self.kept = tuple(v for v in axes if v not in over)

    def flat(self, x: LoopTensor) -> Any:
        """A tensor whose last axis holds all iterations."""
        order = tuple(self.axes.index(v) for v in (*self.kept, *self.over))
        count = math.prod(v.extent for v in self.over)
        return OPS.reshape(OPS.transpose(full(x, self.axes), order),
                           (*[v.extent for v in self.kept], count))

    def at(self, position: Any, value: Any) -> LoopTensor:
        """The elements of a flat tensor at a position of the last axis."""
        y = OPS.take_along_axis(value, position, axis=value.rank - 1)
        return LoopTensor(OPS.reshape(y, y.shape[:-1]), self.kept)


def _candidates(t: ExpressionRules, choice: Selection, best: KernelVariable) -> LoopTensor:
    """The numbers among which the best is chosen. Iterations that are skipped, and NaN, which never
    wins a comparison, are replaced by a number that is no better than any."""
    a = t.arithmetic
    term = a.tile(t.value(choice.term))
    d = a.common([best.value, term])
    lowest = LoopTensor(OPS.full((), neutral("maximum" if choice.largest else "minimum", d), d))
    term = a.cast(term, d)
    valid: Any = t.condition(best.masks)
    if d.is_float:
        valid = a.both(valid, a.apply("equal", term, term))
    return a.choose(valid, term, lowest)


def _best_position(terms: Any, choice: Selection) -> Any:
    """The iteration of the extreme: of equal ones the first or the last."""
    axis = terms.rank - 1
    position = OPS.argmax if choice.largest else OPS.argmin
    if not choice.last:
        return position(terms, axis=axis, keepdims=True)
    return terms.shape[axis] - 1 - position(OPS.flip(terms, axis), axis=axis, keepdims=True)
