"""Scores of attention without their scale, which exponentials take, and without their mask."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ztorch.graph.value import Value
from ztorch.lower.attention import Softened, filled, hidden_by


@dataclass(frozen=True)
class BareScores:
    """Scores as products with a common factor: the largest score is the factor times the largest
    raw product."""

    bare: Value
    shown: Value  # the same where no mask hides it
    factor: float  # positive


def bare_scores(a: Softened) -> BareScores:
    """Scores without a factor that all of them have."""
    hidden = hidden_by(a.score) is not None
    shown, factor = a.score.args[1] if hidden else a.score, 1.0
    if shown.op.opcode == "mul" and a.scores in shown.args:
        [other] = [x for x in shown.args if x is not a.scores] or [a.scores]
        number = filled(other)
        if number is not None and 0.0 < number < math.inf:
            shown, factor = a.scores, number
    if not hidden:
        return BareScores(shown, shown, factor)
    s = a.score
    bare = Value(s.op, (s.args[0], shown, s.args[2]), s.attrs, s.shape, s.dtype)
    return BareScores(bare, shown, factor)
