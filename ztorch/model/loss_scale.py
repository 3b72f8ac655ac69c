"""Loss scaling: for training with float16 products, or as an optimizer requests.

Gradients may be too small for float16. So the loss is multiplied by a scale, and the gradients are
divided by it. An overflow halves the scale; many steps without one double it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch.dtypes import f16, f32, i32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS
from ztorch.graph.value import Value, layer_scope
from ztorch.layers.context import States
from ztorch.optimizers import Optimizer

FIRST_SCALE = 2.0**15  # Keras' default; too large a scale is halved within some steps
STEPS_TO_DOUBLE = 2000  # steps without an overflow after which the scale doubles

Updates = dict[Value, Value]  # a state -> its new value


class LossScale:
    """The scale of a training step: fixed, or adjusted to overflows.

    Args:
        states: Holds the scale, and the number of steps since the last overflow.
        optimizer: The optimizer of `compile`; None: nothing is scaled.
    """

    def __init__(self, states: States, optimizer: Optimizer | None):
        self._fixed = None if optimizer is None else optimizer.loss_scale_factor
        self._finite: list[Value] = []  # of each application: whether all gradients are finite
        self._states: tuple[Value, Value] | None = None
        if optimizer is None or self._fixed is not None or not (
                states.rounding.uses(f16) or optimizer.dynamic_scale is not None):
            return
        first, self._doubling = optimizer.dynamic_scale or (FIRST_SCALE, STEPS_TO_DOUBLE)
        with layer_scope("loss_scale"):
            self._states = (
                states.leaf("optimizer/loss_scale", (), f32, lambda: first, kind="counter",
                            trainable=False),
                states.leaf("optimizer/calm_steps", (), i32, lambda: 0, kind="counter",
                            trainable=False))

    def gradients(self, loss: Value, of: Sequence[Value]) -> list[Value]:
        """The gradients of a loss, computed from the scaled loss."""
        scale = self._fixed if self._states is None else self._states[0]
        if scale is None:
            return gradients(loss, of)
        with layer_scope("loss_scale"):
            return [g / scale for g in gradients(loss * scale, of)]

    def if_finite(self, updates: Updates, slopes: Sequence[Value],
             before: Mapping[Value, Value]) -> Updates:
        """An optimizer's new states; or, if a gradient is not finite, their old values. `before`
        holds those that the step has already changed."""
        if self._states is None:
            return updates
        with layer_scope("loss_scale"):
            finite = reduce(OPS.bitwise_and, (OPS.all(OPS.isfinite(g)) for g in slopes))
            self._finite.append(finite)
            return {old: OPS.where(finite, new, before.get(old, old))
                    for old, new in updates.items()}

    def updates(self) -> Updates:
        """The next scale, once all gradients of the step are known."""
        if self._states is None or not self._finite:
            return {}
        scale, calm_steps = self._states
        with layer_scope("loss_scale"):
            finite, count = reduce(OPS.bitwise_and, self._finite), OPS.add(calm_steps, 1)
            doubles = OPS.bitwise_and(finite, OPS.equal(count, self._doubling))
            grown = OPS.where(doubles, scale * 2.0, scale)
            goes_on = OPS.bitwise_and(finite, OPS.not_equal(count, self._doubling))
            return {scale: OPS.where(finite, grown, OPS.maximum(scale * 0.5, 1.0)),
                    calm_steps: OPS.where(goes_on, count, 0)}
