"""Drawing numbers by their logits, as values of the graph.

A number is drawn by adding noise of Gumbel's distribution to the logits and taking the largest one:
without noise it is the likeliest, and no sorting is needed. Top-k and top-p keep the logits above a
threshold, which is found by halving an interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ops.control import cond, scan

HALVINGS = 32  # of the interval that holds a threshold: its width ends below that of a float32
LOWEST = -88.0  # difference to the largest logit below which float32's exp is about 0
NOISE_BITS = 23  # of a random number between 0 and 1, so that it is neither
NOISE_STREAM = 1 << 30  # of random numbers, apart from those of layers


@dataclass(frozen=True)
class SamplingInputs:
    """How numbers are drawn. Tensors of one element, but for the first."""

    seeds: Value  # uint32 (2, rows): of the random numbers of each row
    temperature: Value  # the logits are divided by it; 0: take the likeliest
    top_k: Value  # int32: how many of the likeliest are kept
    top_p: Value  # keep the likeliest that together have this probability
    repetition_penalty: Value  # divides the logits of numbers that were seen, if positive


def drawn(logits: Value, seen: Value, step: Value, choices: SamplingInputs) -> Value:
    """A number for each row.

    Args:
        logits: Float tensor `(rows, classes)`.
        seen: Bool tensor `(rows, classes)`: the numbers that the repetition penalty applies to.
        step: uint32 scalar: how many numbers were drawn before.
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
        x, lambda kept: OPS.sum(OPS.cast(kept, "int32"), -1, True) >= top_k),
        lambda x: everything, logits)

    def probable(x: Value) -> Value:
        odds = OPS.where(x >= least, OPS.exp(x), 0.0)
        mass = OPS.sum(odds, -1, True) * top_p
        return OPS.maximum(least, _threshold(x, lambda kept: OPS.sum(
            OPS.where(kept, odds, 0.0), -1, True) >= mass))

    least = cond(top_p < 1.0, probable, lambda x: least, logits)
    noisy = logits + OPS.where(random, OPS.cast(_noise(logits.shape, choices.seeds, step), dtype),
                               0.0)
    return OPS.argmax(OPS.where(logits >= least, noisy, -math.inf), -1)


def _threshold(x: Value, enough: Callable[[Value], Value]) -> Value:
    """The largest number of each row so that the elements from it on are enough: (rows, 1).

    Args:
        x: Float tensor `(rows, classes)`, from LOWEST to 0.
        enough: Whether these elements, a bool tensor, are enough in each row, (rows, 1).
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
    """Numbers of Gumbel's distribution."""
    bits = OPS.shift_right(OPS.random_bits(shape, seeds, step, NOISE_STREAM), 32 - NOISE_BITS)
    uniform = (OPS.cast(bits, "float32") + 0.5) * 2.0**-NOISE_BITS
    return -OPS.log(-OPS.log(uniform))
