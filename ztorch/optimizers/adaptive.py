"""Optimizers that adapt the step of each weight in other ways than Adam."""

from __future__ import annotations

from typing import Any

from ztorch.config import fraction, number
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.optimizers.optimizer import Optimizer
from ztorch.optimizers.slots import Slots
from ztorch.schedules import LearningRateSchedule


class Adadelta(Optimizer, names=("adadelta",)):
    """Scales steps by the ratio of running means: squared earlier steps over squared gradients.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.001`.
        rho: Decay of the running means, from 0 to below 1. Default: `0.95`.
        epsilon: Added to both means. Default: `1e-07`.
        **common: Arguments of every `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> Adadelta(1.0).rho
        0.95
    """

    def __init__(self, learning_rate: Any = 0.001, rho: float = 0.95, epsilon: float = 1e-7,
                 **common: Any):
        super().__init__(learning_rate, **common)
        self.rho = fraction("Adadelta(rho=...)", rho)
        self.epsilon = number("Adadelta(epsilon=...)", epsilon, least=0)

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        def running(name: str, x: Value) -> Value:
            return slots.set(name, slots[name] * self.rho + x * x * (1.0 - self.rho))

        before = slots["accumulated_delta_var"]
        squares = running("accumulated_grad", gradient)
        down = gradient * OPS.sqrt(before + self.epsilon) / OPS.sqrt(squares + self.epsilon)
        running("accumulated_delta_var", down)
        return down * rate


class Ftrl(Optimizer, names=("ftrl",)):
    """Follow the regularized leader: for sparse linear models, with many weights exactly 0.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.001`.
        learning_rate_power: Exponent by which the rate decays with the sum of squared gradients; 0
            or less, and 0 keeps the rate constant. Default: `-0.5`.
        initial_accumulator_value: Initial sum of squared gradients, 0 or more. Default: `0.1`.
        l1_regularization_strength: Weight of the sum of absolute weights. Default: `0.0`.
        l2_regularization_strength: Weight of the sum of squared weights. Default: `0.0`.
        l2_shrinkage_regularization_strength: Weight of the sum of squared weights, applied only in
            the gradient. Default: `0.0`.
        beta: Added to the square roots of the sums. Default: `0.0`.
        **common: Arguments of every `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> Ftrl(l1_regularization_strength=0.1).learning_rate_power
        -0.5
    """

    def __init__(self, learning_rate: Any = 0.001, learning_rate_power: float = -0.5,
                 initial_accumulator_value: float = 0.1, l1_regularization_strength: float = 0.0,
                 l2_regularization_strength: float = 0.0,
                 l2_shrinkage_regularization_strength: float = 0.0, beta: float = 0.0,
                 **common: Any):
        super().__init__(learning_rate, **common)
        self.learning_rate_power = number("Ftrl(learning_rate_power=...)", learning_rate_power)
        if self.learning_rate_power > 0:
            raise ConfigError(f"Ftrl(learning_rate_power={learning_rate_power!r}) must be at most "
                              "0")
        self.initial_accumulator_value = number("Ftrl(initial_accumulator_value=...)",
                                                initial_accumulator_value, least=0)
        self.l1_regularization_strength = number("Ftrl(l1_regularization_strength=...)",
                                                 l1_regularization_strength, least=0)
        self.l2_regularization_strength = number("Ftrl(l2_regularization_strength=...)",
                                                 l2_regularization_strength, least=0)
        self.l2_shrinkage_regularization_strength = number(
            "Ftrl(l2_shrinkage_regularization_strength=...)",
            l2_shrinkage_regularization_strength, least=0)
        self.beta = number("Ftrl(beta=...)", beta, least=0)

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        power = -self.learning_rate_power
        squares = slots.state("accumulator", weight.shape, self.initial_accumulator_value)
        linear = slots["linear"]
        grown = slots.set("accumulator", squares + gradient * gradient)
        slope = gradient + weight * (2.0 * self.l2_shrinkage_regularization_strength)
        change = (OPS.power(grown, power) - OPS.power(squares, power)) / rate
        linear = slots.set("linear", linear + slope - change * weight)
        square_weight = (OPS.power(grown, power) + self.beta) / rate + (
            2.0 * self.l2_regularization_strength)
        most = self.l1_regularization_strength
        return weight - (OPS.clip(linear, -most, most) - linear) / square_weight


class Adafactor(Optimizer, names=("adafactor",)):
    """Adam with little memory: keeps squared gradients of a matrix as sums over rows and columns.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.001`.
        beta_2_decay: Exponent of the decay of squared gradients over steps. Default: `-0.8`.
        epsilon_1: Added to squared gradients. Default: `1e-30`.
        epsilon_2: Smallest weight norm that scales steps. Default: `0.001`.
        clip_threshold: Largest root mean square of a step. Default: `1.0`.
        relative_step: Whether a constant rate decreases with the square root of the step number.
            Default: `True`.
        **common: Arguments of every `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> Adafactor().beta_2_decay
        -0.8
    """

    def __init__(self, learning_rate: Any = 0.001, beta_2_decay: float = -0.8,
                 epsilon_1: float = 1e-30, epsilon_2: float = 1e-3, clip_threshold: float = 1.0,
                 relative_step: bool = True, **common: Any):
        super().__init__(learning_rate, **common)
        self.beta_2_decay = number("Adafactor(beta_2_decay=...)", beta_2_decay)
        self.epsilon_1 = number("Adafactor(epsilon_1=...)", epsilon_1, least=0)
        self.epsilon_2 = number("Adafactor(epsilon_2=...)", epsilon_2, least=0)
        self.clip_threshold = number("Adafactor(clip_threshold=...)", clip_threshold, above=0)
        self.relative_step = relative_step

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        falling = OPS.minimum(rate, 1.0 / OPS.sqrt(slots.count))
        size = OPS.maximum(_root_mean_square(weight), self.epsilon_2) * falling
        squares = gradient * gradient + self.epsilon_1
        new = OPS.power(slots.count, self.beta_2_decay)  # weight of the newest gradient

        def running(name: str, x: Value) -> Value:
            return slots.set(name, slots.state(name, x.shape) * (1.0 - new) + x * new)

        if weight.rank < 2:
            spread = running("velocity", squares)
        else:
            rows = running("rows", OPS.mean(squares, axis=-1))
            columns = running("columns", OPS.mean(squares, axis=-2))
            share = rows / OPS.mean(rows, axis=-1, keepdims=True)
            spread = OPS.expand_dims(share, -1) * OPS.expand_dims(columns, -2)
        down = gradient / OPS.sqrt(spread)
        limit = OPS.maximum(_root_mean_square(down) / self.clip_threshold, 1.0)
        return down / limit * size

    def scaled_rate(self, rate: Value, count: Value) -> Value:
        if self.relative_step and not isinstance(self.learning_rate, LearningRateSchedule):
            return OPS.minimum(rate, 1.0 / OPS.sqrt(count))
        return rate


def _root_mean_square(x: Value) -> Value:
    return OPS.sqrt(OPS.mean(x * x))
