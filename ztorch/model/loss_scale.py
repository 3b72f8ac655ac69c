"""Loss scaling: training with products in float16, or as an optimizer asks for.

Gradients may be too small for float16. So the loss is multiplied by a scale, and the gradients are
divided by it. The scale is halved after an overflow, and doubled after many steps without one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch.dtypes import f32, i32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS
from ztorch.graph.value import Value, layer_scope
from ztorch.layers.context import States

FIRST_SCALE = 2.0**15
STEPS_TO_DOUBLE = 2000  # steps without an overflow after which the scale doubles

Updates = dict[Value, Value]  # a state -> its new value


def scaled_updates(loss: Value, weights: Sequence[Value], states: States,
                   updates: Callable[[Sequence[Value]], Updates],
                   first_scale: float | None = None,
                   steps_to_double: int | None = None) -> Updates:
    """The updates of a training step with loss scaling.

    Where a gradient is infinite or NaN, weights and slots keep their values.

    Args:
        loss: The loss that training minimises.
        weights: The trainable weights.
        states: Holds the scale, and the count of steps since the last overflow.
        updates: The optimizer: gradients -> new values of weights and slots.
        first_scale: The scale of the first step; None: `FIRST_SCALE`.
        steps_to_double: Steps without an overflow after which the scale doubles; None:
            `STEPS_TO_DOUBLE`.
    """
    first = FIRST_SCALE if first_scale is None else first_scale
    doubling = STEPS_TO_DOUBLE if steps_to_double is None else steps_to_double
    with layer_scope("loss_scale"):
        scale = states.leaf("optimizer/loss_scale", (), f32, lambda: first, kind="counter",
                            trainable=False)
        calm_steps = states.leaf("optimizer/calm_steps", (), i32, lambda: 0, kind="counter",
                                 trainable=False)
        grads = [g / scale for g in gradients(loss * scale, weights)]
        finite = reduce(OPS.bitwise_and, (OPS.all(OPS.isfinite(g)) for g in grads))
        new = {old: OPS.where(finite, value, old) for old, value in updates(grads).items()}
        count = OPS.add(calm_steps, 1)
        doubles = OPS.bitwise_and(finite, OPS.equal(count, doubling))
        grown = OPS.where(doubles, scale * 2.0, scale)
        new[scale] = OPS.where(finite, grown, OPS.maximum(scale * 0.5, 1.0))
        goes_on = OPS.bitwise_and(finite, OPS.not_equal(count, doubling))
        new[calm_steps] = OPS.where(goes_on, count, 0)
        return new
