"""AdamW without a learning-rate schedule."""

from __future__ import annotations

import re
from typing import Any

from ztorch.config import fraction, number, whole
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.optimizers.adam import bias
from ztorch.optimizers.optimizer import Optimizer
from ztorch.optimizers.slots import Slots


class ScheduleFreeAdamW(Optimizer, names=("schedule_free_adamw",)):
    """Adam whose weights interpolate between the latest iterate and the mean of all iterates, which
    replaces a decaying learning rate.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.0025`.
        beta_1: Weight of the mean in the interpolation, above 0 and below 1. Default: `0.9`.
        beta_2: Decay of the running mean of the squared gradient, from 0 to below 1. Default:
            `0.999`.
        epsilon: Added to the square root of the second moment. Default: `1e-08`.
        warmup_steps: Number of steps in which the rate grows from 0. Default: `0`.
        **common: Arguments of every `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> ScheduleFreeAdamW(warmup_steps=10).warmup_steps
        10
    """

    def __init__(self, learning_rate: Any = 0.0025, beta_1: float = 0.9, beta_2: float = 0.999,
                 epsilon: float = 1e-8, warmup_steps: int = 0, **common: Any):
        super().__init__(learning_rate, **common)
        self.beta_1 = fraction("ScheduleFreeAdamW(beta_1=...)", beta_1)
        if self.beta_1 == 0:
            raise ConfigError("ScheduleFreeAdamW(beta_1=0) must be above 0")
        self.beta_2 = fraction("ScheduleFreeAdamW(beta_2=...)", beta_2)
        self.epsilon = number("ScheduleFreeAdamW(epsilon=...)", epsilon, least=0)
        self.warmup_steps = whole("ScheduleFreeAdamW(warmup_steps=...)", warmup_steps)

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        spared = any(re.search(p, slots.weight_name) for p in self.undecayed)
        decay = 0.0 if spared else self.weight_decay or 0.0
        undecayed = weight / (1.0 - rate * decay) if decay else weight
        # Adam's iterate, stored as its difference from the weight, which starts at 0.
        place = undecayed + slots["distance"]
        mean = (weight - place * (1.0 - self.beta_1)) / self.beta_1
        if self.warmup_steps:
            rate = rate * OPS.minimum(slots.count / float(self.warmup_steps), 1.0)
        v = slots.set("v", slots["v"] + (gradient * gradient - slots["v"]) * (1.0 - self.beta_2))
        place = place - gradient * rate / (
            OPS.sqrt(v / bias(self.beta_2, slots.count)) + self.epsilon)
        mean = mean + (place - mean) / slots.count
        new = place + (mean - place) * self.beta_1
        slots.set("distance", place - new)
        return weight - new
