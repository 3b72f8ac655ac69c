"""Attention scores without their scale, which the exponential applies, and without their mask."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ztorch.graph.value import Value
from ztorch.lower.rewrites.attention import filled, hidden_by
from ztorch.lower.rewrites.softened import Softened


@dataclass(frozen=True)
class BareScores:
    """Scores with a common factor taken out: the largest score is the factor times the largest bare
    score."""

    bare: Value  # a score without the factor
    unmasked: Value  # the same without the mask, for blocks in which nothing is masked
    factor: float  # positive


def bare_scores(a: Softened) -> BareScores:
    """The scores without their common factor."""
    is_masked = hidden_by(a.score) is not None
    unmasked, factor = a.score.args[1] if is_masked else a.score, 1.0
    if unmasked.op.opcode == "mul" and a.scores in unmasked.args:
        [other] = [x for x in unmasked.args if x is not a.scores] or [a.scores]
        number = filled(other)
        if number is not None and 0.0 < number < math.inf:
            unmasked, factor = a.scores, number
    if not is_masked:
        return BareScores(unmasked, unmasked, factor)
    s = a.score
    bare = Value(s.op, (s.args[0], unmasked, s.args[2]), s.attrs, s.shape, s.dtype)
    return BareScores(bare, unmasked, factor)
