"""Drawing numbers by their logits, as graph values.

A number is drawn by adding Gumbel noise to the logits and taking the largest. Without noise it is
the most likely number, and no sorting is needed. Top-k and top-p keep the logits above a threshold,
which is found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ops.control import cond, scan

HALVINGS = 32  # bisections: the interval then is narrower than a float32 can resolve
LOWEST = -88.0  # difference to the largest logit below which exp is about 0 in float32
NOISE_BITS = 23  # of a random number between 0 and 1, so that it is never 0 or 1
NOISE_STREAM = 1 << 30  # separate from those of layers


@dataclass(frozen=True)
class SamplingInputs:
    """How numbers are drawn. All tensors except the first have one element."""

    seeds: Value  # uint32 (2, rows): seed of each row
    temperature: Value  # divides the logits; 0: take the most likely
    top_k: Value  # int32: number of the most likely candidates to keep
    top_p: Value  # keep the most likely candidates with this total probability
    repetition_penalty: Value  # divides positive logits of numbers that were seen


def drawn(logits: Value, seen: Value, step: Value, choices: SamplingInputs) -> Value:
    """A number for each row.

    Args:
        logits: Float tensor `(rows, classes)`.
        seen: Bool tensor `(rows, classes)`: the numbers that the repetition penalty applies to.
        step: uint32 scalar: number of numbers drawn before.
        choices: How to draw.

    Returns:
        An int32 tensor `(rows,)`.
    """
    dtype = logits.dtype
    temperature, top_p, penalty = (OPS.reshape(OPS.cast(x, dtype), (1, 1)) for x in (
        choices.temperature, choices.top_p, choices.repetition_penalty))
    top_k = OPS.reshape(choices.top_k, (1, 1))
    penalized = OPS.where(logits > 0.0, logits / penalty, logits * penalty)
    logits = OPS.where(seen, penalized, logits)
    random = temperature > 0.0
    logits = logits - OPS.max(logits, -1, True)
    logits = OPS.maximum(logits / OPS.where(random, temperature, 1.0), LOWEST)
    everything = OPS.full((logits.shape[0], 1), LOWEST, dtype)
    least = cond(OPS.less(top_k, logits.shape[1]), lambda x: _threshold(
        x, lambda selected: OPS.sum(OPS.cast(selected, "int32"), -1, True) >= top_k),
        lambda x: everything, logits)

    def probable(x: Value) -> Value:
        odds = OPS.where(x >= least, OPS.exp(x), 0.0)
        mass = OPS.sum(odds, -1, True) * top_p
        return OPS.maximum(least, _threshold(x, lambda selected: OPS.sum(
            OPS.where(selected, odds, 0.0), -1, True) >= mass))

    least = cond(top_p < 1.0, probable, lambda x: least, logits)
    noisy = logits + OPS.where(random, OPS.cast(_noise(logits.shape, choices.seeds, step), dtype),
                               0.0)
    return OPS.argmax(OPS.where(logits >= least, noisy, -math.inf), -1)


def _threshold(x: Value, enough: Callable[[Value], Value]) -> Value:
    """The largest threshold of each row for which the elements above it are enough: (rows, 1).

    Args:
        x: Float tensor `(rows, classes)`, from LOWEST to 0.
        enough: Whether selected elements, a bool tensor, are enough in each row, (rows, 1).
    """

    def halve(bounds: tuple[Value, Value], _: None) -> tuple[tuple[Value, Value], None]:
        low, high = bounds
        middle = (low + high) * 0.5
        inside = enough(x >= middle)
        return (OPS.where(inside, middle, low), OPS.where(inside, high, middle)), None

    first = (OPS.full((x.shape[0], 1), LOWEST, x.dtype), OPS.full((x.shape[0], 1), 1.0, x.dtype))
    (low, _), _ = scan(halve, first, length=HALVINGS)
    return low


def _noise(shape: tuple[int, ...], seeds: Value, step: Value) -> Value:
    """Samples of the Gumbel distribution."""
    bits = OPS.shift_right(OPS.random_bits(shape, seeds, step, NOISE_STREAM), 32 - NOISE_BITS)
    uniform = (OPS.cast(bits, "float32") + 0.5) * 2.0**-NOISE_BITS
    return -OPS.log(-OPS.log(uniform))
