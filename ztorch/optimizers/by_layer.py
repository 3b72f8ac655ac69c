"""Optimizers that scale the step of a whole weight: Lamb and Muon."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from ztorch.config import elements, fraction, number, positive
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.optimizers.adam import bias
from ztorch.optimizers.optimizer import Optimizer
from ztorch.optimizers.slots import Slots


class Lamb(Optimizer, names=("lamb",)):
    """Adam with steps scaled to the norm of each weight, for large batches.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.001`.
        beta_1: Decay of the running mean of the gradient, from 0 to below 1. Default: `0.9`.
        beta_2: Decay of the running mean of the squared gradient, from 0 to below 1. Default:
            `0.999`.
        epsilon: Added to the square root of the second moment. Default: `1e-07`.
        **common: Arguments of every `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> Lamb(0.01).beta_2
        0.999
    """

    def __init__(self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999,
                 epsilon: float = 1e-7, **common: Any):
        super().__init__(learning_rate, **common)
        self.beta_1 = fraction("Lamb(beta_1=...)", beta_1)
        self.beta_2 = fraction("Lamb(beta_2=...)", beta_2)
        self.epsilon = number("Lamb(epsilon=...)", epsilon, least=0)

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        m = slots.set("m", slots["m"] + (gradient - slots["m"]) * (1.0 - self.beta_1))
        v = slots.set("v", slots["v"] + (gradient * gradient - slots["v"]) * (1.0 - self.beta_2))
        down = m / bias(self.beta_1, slots.count) / (
            OPS.sqrt(v / bias(self.beta_2, slots.count)) + self.epsilon)
        own, other = (OPS.sqrt(OPS.sum(x * x)) for x in (weight, down))
        usable = OPS.logical_and(own > 0.0, other > 0.0)
        ratio = OPS.where(usable, own / OPS.where(usable, other, 1.0), 1.0)
        return down * (ratio * rate)


class Muon(Optimizer, names=("muon",)):
    """Momentum with orthogonalized steps for matrices, and Adam for all other weights.

    Adam also trains embeddings.

    Args:
        learning_rate: A number, or a `LearningRateSchedule`. Default: `0.001`.
        adam_beta_1: Decay of Adam's running mean of the gradient. Default: `0.9`.
        adam_beta_2: Decay of Adam's running mean of the squared gradient. Default: `0.999`.
        adam_weight_decay: `weight_decay` of the weights that Adam trains. Default: `0.004`.
        epsilon: Added to Adam's square root of the second moment. Default: `1e-07`.
        weight_decay: Before each step, `rate * weight_decay * weight` is subtracted from a matrix.
            Default: `0.004`.
        exclude_layers: Patterns of names of further weights that Adam trains. `None` means none.
            Default: `None`.
        exclude_embeddings: Whether Adam trains weights with "embedding" in their name. Default:
            `True`.
        muon_a: Coefficient of x in `a x + b x**3 + c x**5`, which orthogonalizes steps. Default:
            `3.4445`.
        muon_b: Coefficient of the third power. Default: `-4.775`.
        muon_c: Coefficient of the fifth power. Default: `2.0315`.
        adam_lr_ratio: Adam's learning rate, as a multiple of `learning_rate`. Default: `1`.
        momentum: Decay of the sum of gradients. Default: `0.95`.
        ns_steps: Number of applications of the polynomial. Default: `5`.
        nesterov: Whether to use Nesterov momentum. Default: `True`.
        rms_rate: Steps are scaled by it and by the root of the larger dimension of the matrix.
            `None` disables scaling. Default: `0.2`.
        **common: Arguments of every `Optimizer`: `clipnorm`, `use_ema`,
            `gradient_accumulation_steps` and others.

    Examples:
        >>> Muon(0.02).momentum
        0.95
    """

    def __init__(self, learning_rate: Any = 0.001, adam_beta_1: float = 0.9,
                 adam_beta_2: float = 0.999, adam_weight_decay: float | None = 0.004,
                 epsilon: float = 1e-7, weight_decay: float | None = 0.004, *,
                 exclude_layers: Sequence[str] | None = None, exclude_embeddings: bool = True,
                 muon_a: float = 3.4445, muon_b: float = -4.775, muon_c: float = 2.0315,
                 adam_lr_ratio: float = 1, momentum: float = 0.95, ns_steps: int = 5,
                 nesterov: bool = True, rms_rate: float | None = 0.2, **common: Any):
        super().__init__(learning_rate, weight_decay=weight_decay, **common)
        self.adam_beta_1 = fraction("Muon(adam_beta_1=...)", adam_beta_1)
        self.adam_beta_2 = fraction("Muon(adam_beta_2=...)", adam_beta_2)
        self.adam_weight_decay = None if adam_weight_decay is None else number(
            "Muon(adam_weight_decay=...)", adam_weight_decay, least=0)
        self.epsilon = number("Muon(epsilon=...)", epsilon, least=0)
        self.exclude_layers = elements("Muon(exclude_layers=...)", exclude_layers or ())
        self.exclude_embeddings = exclude_embeddings
        self.muon_a, self.muon_b, self.muon_c = (
            number(f"Muon(muon_{n}=...)", x) for n, x in (("a", muon_a), ("b", muon_b),
                                                          ("c", muon_c)))
        self.adam_lr_ratio = number("Muon(adam_lr_ratio=...)", adam_lr_ratio, least=0)
        self.momentum = fraction("Muon(momentum=...)", momentum)
        self.ns_steps = positive("Muon(ns_steps=...)", ns_steps)
        self.nesterov = nesterov
        self.rms_rate = None if rms_rate is None else number("Muon(rms_rate=...)", rms_rate,
                                                             above=0)

    def decay_of(self, weight: Value) -> float | None:
        own = super().decay_of(weight)
        if own is None or not self._by_adam(weight.attrs["name"], weight):
            return own
        return self.adam_weight_decay

    def step(self, weight: Value, gradient: Value, rate: Value, slots: Slots) -> Value:
        if self._by_adam(slots.weight_name, weight):
            return self._adam_step(gradient, rate * self.adam_lr_ratio, slots)
        total = slots.set("momentum", slots["momentum"] * self.momentum + gradient)
        x = total * self.momentum + gradient if self.nesterov else total
        scale = 1.0 if self.rms_rate is None else self.rms_rate * math.sqrt(max(weight.shape))
        return self._orthogonal(x) * (rate * scale)

    def _by_adam(self, name: str, weight: Value) -> bool:
        return weight.rank != 2 or (self.exclude_embeddings and "embedding" in name.lower()) or any(
            re.search(pattern, name) for pattern in self.exclude_layers)

    def _adam_step(self, gradient: Value, rate: Value, slots: Slots) -> Value:
        m = slots.set("m", slots["m"] + (gradient - slots["m"]) * (1.0 - self.adam_beta_1))
        v = slots.set("v", slots["v"] + (gradient * gradient - slots["v"]) * (
            1.0 - self.adam_beta_2))
        scale = rate * OPS.sqrt(bias(self.adam_beta_2, slots.count)) / bias(
            self.adam_beta_1, slots.count)
        return m * scale / (OPS.sqrt(v) + self.epsilon)

    def _orthogonal(self, x: Value) -> Value:
        """A matrix with the singular vectors of x and singular values near 1, by Newton-Schulz."""
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        x = x / (OPS.sqrt(OPS.sum(x * x)) + 1e-7)
        for _ in range(self.ns_steps):
            square = OPS.matmul(x, x.T)
            x = x * self.muon_a + OPS.matmul(
                square * self.muon_b + OPS.matmul(square, square) * self.muon_c, x)
        return x.T if tall else x
