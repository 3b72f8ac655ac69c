"""Training with products of float16: gradients too small for it are scaled up, and back again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch.dtypes import f32, i32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS
from ztorch.graph.value import Value, layer_scope
from ztorch.layers.context import States

FIRST = 2.0**15
PATIENCE = 2000  # steps without an overflow after which the scale doubles

Updates = dict[Value, Value]


def scaled(loss: Value, params: Sequence[Value], states: States,
           updates: Callable[[Sequence[Value]], Updates]) -> Updates:
    """What `updates` makes of the gradients, which are computed for a multiple of the loss. Where
    one of them is infinite or NaN, weights and slots keep their values and the multiple is
    halved."""
    with layer_scope("loss_scale"):
        scale = states.leaf("optimizer/loss_scale", (), f32, lambda: FIRST, kind="counter",
                            trainable=False)
        calm = states.leaf("optimizer/calm_steps", (), i32, lambda: 0, kind="counter",
                           trainable=False)
        grads = [g / scale for g in gradients(loss * scale, params)]
        finite = reduce(OPS.bitwise_and, (OPS.all(OPS.isfinite(g)) for g in grads))
        new = {old: OPS.where(finite, value, old) for old, value in updates(grads).items()}
        longer = OPS.add(calm, 1)
        due = OPS.bitwise_and(finite, OPS.equal(longer, PATIENCE))
        grown = OPS.where(due, scale * 2.0, scale)
        new[scale] = OPS.where(finite, grown, OPS.maximum(scale * 0.5, 1.0))
        new[calm] = OPS.where(OPS.bitwise_and(finite, OPS.not_equal(longer, PATIENCE)), longer, 0)
        return new
