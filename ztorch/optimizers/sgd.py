"""Optimizers that step along the gradient, or along its sign."""

from __future__ import annotations

from typing import Any

from ztorch.config import fraction
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.optimizers.optimizer import Optimizer
from ztorch.optimizers.slots import Slots


class SGD(Optimizer, names=("sgd",)):
    """Gradient descent, with optional momentum.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.01`.
        momentum: Fraction of the last step that is kept, from 0 to 1. Default: `0.0`.
        nesterov: Whether to use Nesterov momentum. Default: `False`.
        **common: Arguments of every `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> SGD(0.1, momentum=0.9).momentum
        0.9
    """

    def __init__(self, learning_rate: Any = 0.01, momentum: float = 0.0, nesterov: bool = False,
                 **common: Any):
        super().__init__(learning_rate, **common)
        self.momentum = fraction("SGD(momentum=...)", momentum, below_one=False)
        self.nesterov = nesterov

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        down = gradient * rate
        if not self.momentum:
            return down
        velocity = slots.set("momentum", slots["momentum"] * self.momentum - down)
        return down - velocity * self.momentum if self.nesterov else -velocity


class Lion(Optimizer, names=("lion",)):
    """Steps of the size of the learning rate, in the direction of the sign of the mean gradient.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.001`.
        beta_1: Weight of the running mean in the sign, from 0 to below 1. Default: `0.9`.
        beta_2: Decay of the running mean, from 0 to below 1. Default: `0.99`.
        **common: Arguments of every `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> Lion(1e-4).beta_2
        0.99
    """

    def __init__(self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.99,
                 **common: Any):
        super().__init__(learning_rate, **common)
        self.beta_1 = fraction("Lion(beta_1=...)", beta_1)
        self.beta_2 = fraction("Lion(beta_2=...)", beta_2)

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        m = slots["m"]
        slots.set("m", m * self.beta_2 + gradient * (1.0 - self.beta_2))
        return OPS.sign(m * self.beta_1 + gradient * (1.0 - self.beta_1)) * rate
