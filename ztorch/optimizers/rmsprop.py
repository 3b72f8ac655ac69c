"""Optimizers that divide each step by the root of accumulated squared gradients."""

from __future__ import annotations

from typing import Any

from ztorch.config import fraction, number
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.optimizers.optimizer import Optimizer
from ztorch.optimizers.slots import Slots


class RMSprop(Optimizer, names=("rmsprop",)):
    """Divides each step by the root of a running mean of the squared gradient.

    As in Keras, epsilon is added inside the root; PyTorch adds it outside.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.001`.
        rho: Decay of the running mean, from 0 to below 1. Default: `0.9`.
        momentum: Fraction of the last step that is kept, from 0 to 1. Default: `0.0`.
        epsilon: Added to the running mean. Default: `1e-07`.
        centered: Whether to subtract the square of the mean gradient, which leaves its variance.
            Default: `False`.
        **common: Arguments of every `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> RMSprop(rho=0.95).rho
        0.95
    """

    def __init__(self, learning_rate: Any = 0.001, rho: float = 0.9, momentum: float = 0.0,
                 epsilon: float = 1e-7, centered: bool = False, **common: Any):
        super().__init__(learning_rate, **common)
        self.rho = fraction("RMSprop(rho=...)", rho)
        self.momentum = fraction("RMSprop(momentum=...)", momentum, below_one=False)
        self.epsilon = number("RMSprop(epsilon=...)", epsilon, least=0)
        self.centered = centered

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        def running(name: str, x: Value) -> Value:
            return slots.set(name, slots[name] * self.rho + x * (1.0 - self.rho))

        spread = running("velocity", gradient * gradient)
        if self.centered:
            spread = spread - OPS.square(running("average_gradient", gradient))
        down = gradient * rate / OPS.sqrt(spread + self.epsilon)
        if not self.momentum:
            return down
        return slots.set("momentum", slots["momentum"] * self.momentum + down)


class Adagrad(Optimizer, names=("adagrad",)):
    """Divides each step by the root of the sum of all squared gradients so far.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.001`.
        initial_accumulator_value: Initial value of the sum, 0 or more. Default: `0.1`.
        epsilon: Added to the sum. Default: `1e-07`.
        **common: Arguments of every `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> Adagrad().initial_accumulator_value
        0.1
    """

    def __init__(self, learning_rate: Any = 0.001, initial_accumulator_value: float = 0.1,
                 epsilon: float = 1e-7, **common: Any):
        super().__init__(learning_rate, **common)
        self.initial_accumulator_value = number("Adagrad(initial_accumulator_value=...)",
                                                initial_accumulator_value, least=0)
        self.epsilon = number("Adagrad(epsilon=...)", epsilon, least=0)

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        before = slots.state("accumulator", weight.shape, self.initial_accumulator_value)
        total = slots.set("accumulator", before + gradient * gradient)
        return gradient * rate / OPS.sqrt(total + self.epsilon)
