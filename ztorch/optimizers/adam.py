"""Adam and its variants: steps scaled by running means of the gradient."""

from __future__ import annotations

import math
from typing import Any

from ztorch.config import fraction, number
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.optimizers.optimizer import Optimizer
from ztorch.optimizers.slots import Slots


class Adam(Optimizer, names=("adam",)):
    """Adam: running means of the gradient and of its square scale each step.

    As in Keras, epsilon is added to the root of the uncorrected second moment: `rate * sqrt(1 - b2
    ** t) / (1 - b1 ** t) * m / (sqrt(v) + epsilon)`. PyTorch corrects `v` first; its epsilon
    corresponds to `epsilon * sqrt(1 - b2 ** t)` here.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.001`.
        beta_1: Decay of the running mean of the gradient, from 0 to below 1. Default: `0.9`.
        beta_2: Decay of the running mean of the squared gradient, from 0 to below 1. Default:
            `0.999`.
        epsilon: Added to the square root of the second moment. Default: `1e-07`.
        amsgrad: Whether to use the largest second moment so far. Default: `False`.
        **common: Arguments of every `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> Adam(1e-3).beta_1
        0.9
    """

    def __init__(self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999,
                 epsilon: float = 1e-7, amsgrad: bool = False, **common: Any):
        super().__init__(learning_rate, **common)
        self.beta_1 = fraction(f"{type(self).__name__}(beta_1=...)", beta_1)
        self.beta_2 = fraction(f"{type(self).__name__}(beta_2=...)", beta_2)
        self.epsilon = number(f"{type(self).__name__}(epsilon=...)", epsilon, least=0)
        self.amsgrad = amsgrad

    def scaled_rate(self, rate: Value, count: Value) -> Value:
        return rate * OPS.sqrt(bias(self.beta_2, count)) / bias(self.beta_1, count)

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        m, v = slots["m"], slots["v"]
        m = slots.set("m", m + (gradient - m) * (1.0 - self.beta_1))
        v = slots.set("v", v + (gradient * gradient - v) * (1.0 - self.beta_2))
        if self.amsgrad:
            v = slots.set("v_max", OPS.maximum(slots["v_max"], v))
        return m * rate / (OPS.sqrt(v) + self.epsilon)


class AdamW(Adam, names=("adamw",)):
    """Adam with decoupled weight decay.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.001`.
        weight_decay: Before each step, `rate * weight_decay * weight` is subtracted from the
            weight. Default: `0.004`.
        beta_1: Decay of the running mean of the gradient, from 0 to below 1. Default: `0.9`.
        beta_2: Decay of the running mean of the squared gradient, from 0 to below 1. Default:
            `0.999`.
        epsilon: Added to the square root of the second moment. Default: `1e-07`.
        amsgrad: Whether to use the largest second moment so far. Default: `False`.
        **common: Arguments of every `Optimizer`: `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> AdamW().weight_decay
        0.004
    """

    def __init__(self, learning_rate: Any = 0.001, weight_decay: float | None = 0.004,
                 beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-7,
                 amsgrad: bool = False, **common: Any):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, amsgrad,
                         weight_decay=weight_decay, **common)


class Adamax(Optimizer, names=("adamax",)):
    """Adam with the largest gradient, decayed, in place of the root mean square.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.001`.
        beta_1: Decay of the running mean of the gradient, from 0 to below 1. Default: `0.9`.
        beta_2: Decay of the largest gradient, from 0 to below 1. Default: `0.999`.
        epsilon: Added to the largest gradient. Default: `1e-07`.
        **common: Arguments of every `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> Adamax().learning_rate
        0.001
    """

    def __init__(self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999,
                 epsilon: float = 1e-7, **common: Any):
        super().__init__(learning_rate, **common)
        self.beta_1 = fraction("Adamax(beta_1=...)", beta_1)
        self.beta_2 = fraction("Adamax(beta_2=...)", beta_2)
        self.epsilon = number("Adamax(epsilon=...)", epsilon, least=0)

    def scaled_rate(self, rate: Value, count: Value) -> Value:
        return rate / bias(self.beta_1, count)

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        m = slots.set("m", slots["m"] + (gradient - slots["m"]) * (1.0 - self.beta_1))
        u = slots.set("u", OPS.maximum(slots["u"] * self.beta_2, OPS.abs(gradient)))
        return m * rate / (u + self.epsilon)


class Nadam(Optimizer, names=("nadam",)):
    """Adam with Nesterov momentum.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.001`.
        beta_1: Decay of the running mean of the gradient, from 0 to below 1. Default: `0.9`.
        beta_2: Decay of the running mean of the squared gradient, from 0 to below 1. Default:
            `0.999`.
        epsilon: Added to the square root of the second moment. Default: `1e-07`.
        **common: Arguments of every `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> Nadam().beta_1
        0.9
    """

    def __init__(self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999,
                 epsilon: float = 1e-7, **common: Any):
        super().__init__(learning_rate, **common)
        self.beta_1 = fraction("Nadam(beta_1=...)", beta_1)
        self.beta_2 = fraction("Nadam(beta_2=...)", beta_2)
        self.epsilon = number("Nadam(epsilon=...)", epsilon, least=0)

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        decay, next_decay = (self.beta_1 * (1.0 - 0.5 * OPS.exp(n * math.log(0.96)))
                             for n in (slots.count, slots.count + 1.0))
        product = slots.set("product", slots.state("product", (), 1.0) * decay)
        m = slots.set("m", slots["m"] + (gradient - slots["m"]) * (1.0 - self.beta_1))
        v = slots.set("v", slots["v"] + (gradient * gradient - slots["v"]) * (1.0 - self.beta_2))
        mean = (m * (next_decay / (1.0 - product * next_decay))
                + gradient * ((1.0 - decay) / (1.0 - product)))
        return mean * rate / (OPS.sqrt(v / bias(self.beta_2, slots.count)) + self.epsilon)


def bias(beta: float, count: Value) -> Value:
    """1 - beta ** count, with expm1: the plain formula loses half of the digits in float32."""
    return -OPS.expm1(count * math.log(beta)) if beta else OPS.ones_like(count)
