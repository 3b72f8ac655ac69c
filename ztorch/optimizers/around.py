"""The work around the step of any optimizer: clipping by norm, moving averages of weights, and
accumulation of gradients over several batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Protocol

import numpy as np

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Value
from ztorch.optimizers.slots import Slots

Updates = dict[Value, Value]  # a state -> its new value


class Averaging(Protocol):
    """The parts of an optimizer that moving averages of weights need."""

    ema_momentum: float
    ema_overwrite_frequency: int | None


def averaged(new: Value, step: Value, slots: Slots, optimizer: Averaging) -> Value:
    """Updates the moving average of a weight. Returns the new value of the weight, which is the
    average in every `ema_overwrite_frequency`-th step."""
    momentum = OPS.where(OPS.equal(step, 0), 0.0, OPS.full((), optimizer.ema_momentum, new.dtype))
    mean = slots.set(slots.AVERAGE, slots[slots.AVERAGE] * momentum + new * (1.0 - momentum))
    every = optimizer.ema_overwrite_frequency
    if every is None:
        return new
    return OPS.where(OPS.equal(OPS.remainder(OPS.add(step, 1), every), 0), mean, new)


def accumulated(params: Sequence[Value], grads: Sequence[Value], step: Value, batches: int,
                updates: Callable[..., Updates], written: Mapping[Value, Value]) -> Updates:
    """The updates of a step that accumulates gradients, and applies them every `batches`-th time.

    Args:
        params: The weights, as state leaves of the graph.
        grads: Gradient of each weight for this batch.
        step: The state that counts batches.
        batches: Number of batches whose gradients are averaged.
        updates: The optimizer's step: (weights, gradients, step number, weights that layers wrote)
            -> updates.
        written: New values that layers have assigned to weights in this step.
    """
    uses = OPS.equal(OPS.remainder(OPS.add(step, 1), batches), 0)
    sums = [leaf("state", f"optimizer/{w.attrs['name']}/gradients", w.shape, w.dtype,
                 np.zeros(w.shape, w.dtype.working), trainable=False, kind="slot") for w in params]
    totals = [total + g for total, g in zip(sums, grads, strict=True)]
    new = updates(params, [total * (1.0 / batches) for total in totals],
                  OPS.floor_divide(step, batches), written)
    values = {state: OPS.where(uses, value, written.get(state, state))
            for state, value in new.items()}
    return values | {state: OPS.where(uses, 0.0, total)
                   for state, total in zip(sums, totals, strict=True)}


def shrunk(grads: Sequence[Value], norm: float) -> list[Value]:
    """Gradients scaled so that their common norm is at most `norm`.

    They are first scaled to at most 1, so that no square overflows.
    """
    largest = reduce(OPS.maximum, (OPS.max(OPS.abs(g)) for g in grads))
    scale = OPS.maximum(largest, norm)
    parts = [g / scale for g in grads]
    length = OPS.sqrt(reduce(OPS.add, (OPS.sum(p * p) for p in parts)))  # in units of `scale`
    allowed = norm / scale
    shrink = norm / OPS.maximum(length, allowed)
    return [OPS.where(length > allowed, p * shrink, g) for p, g in zip(parts, grads, strict=True)]
