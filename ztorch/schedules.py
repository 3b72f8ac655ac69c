"""Learning-rate schedules: the rate as a function of the step, computed in the graph.

Formulas, names and arguments are Keras'. The first step has number 0.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch.config import Named, number, positive, whole
from ztorch.errors import ConfigError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, constant
from ztorch.graph.tracing import traced
from ztorch.graph.value import Value
from ztorch.names.keras_calls import without
from ztorch.names.member_names import member


def _steps(label: str, n: Any) -> int:
    """A number of steps, which may be a float such as 1e4."""
    return positive(label, int(n) if isinstance(n, float) and n.is_integer() else n)


class LearningRateSchedule(Named, family="learning-rate schedule", such_as="exponential_decay"):
    """Base class of schedules. A subclass implements `graph(step)`, or, as in Keras,
    `__call__(step)` with `zt.ops`.

    Examples:
        >>> PolynomialDecay(1.0, decay_steps=4, end_learning_rate=0.0)(1)
        0.75
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            cls.__init__ = without(cls.__init__, name=None)  # type: ignore[method-assign]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The schedule that `get_config` described, here or in Keras, where it has a name."""
        own = inspect.signature(cls).parameters
        named = isinstance(config, dict) and "name" not in own
        return super().from_config({k: x for k, x in config.items() if k != "name"} if named
                                   else config)

    def graph(self, step: Value) -> Value:
        """The learning rate as a tensor.

        Args:
            step: Number of the step, a float scalar. The first step is 0.

        Returns:
            A scalar tensor.
        """
        if type(self).__call__ is LearningRateSchedule.__call__:
            raise NotImplementedError(f"{type(self).__name__}.__call__")
        rate: Any = traced(self, f"schedule {type(self).__name__}", step)
        return OPS.cast(rate if isinstance(rate, Value) else constant(np.float64(rate)), step.dtype)

    def __call__(self, step: int) -> float:
        """The learning rate at a step, as a number, for inspection."""
        return float(evaluate([self.graph(constant(np.float64(step)))], {})[0])


class ExponentialDecay(LearningRateSchedule, names=("exponential_decay",)):
    """`initial_learning_rate * decay_rate ** (step / decay_steps)`.

    Args:
        initial_learning_rate: Learning rate at step 0.
        decay_steps: Number of steps of one decay. A positive integer.
        decay_rate: Factor of one decay. A positive number.
        staircase: Whether to decay once every `decay_steps` rather than at every step. Default:
            `False`.

    Examples:
        >>> ExponentialDecay(0.1, decay_steps=10, decay_rate=0.5)(20)
        0.025
    """

    def __init__(self, initial_learning_rate: float, decay_steps: int, decay_rate: float,
                 staircase: bool = False):
        self.initial_learning_rate = number("ExponentialDecay(initial_learning_rate=...)",
                                            initial_learning_rate)
        self.decay_steps = _steps("ExponentialDecay(decay_steps=...)", decay_steps)
        self.decay_rate = number("ExponentialDecay(decay_rate=...)", decay_rate, above=0)
        self.staircase = staircase

    def graph(self, step: Value) -> Value:
        p = step / float(self.decay_steps)
        p = OPS.floor(p) if self.staircase else p
        return OPS.exp(p * math.log(self.decay_rate)) * self.initial_learning_rate


class InverseTimeDecay(LearningRateSchedule, names=("inverse_time_decay",)):
    """`initial_learning_rate / (1 + decay_rate * step / decay_steps)`.

    Args:
        initial_learning_rate: Learning rate at step 0.
        decay_steps: Number of steps of one decay. A positive integer.
        decay_rate: How fast the rate falls.
        staircase: Whether to decay once every `decay_steps` rather than at every step. Default:
            `False`.

    Examples:
        >>> InverseTimeDecay(0.1, decay_steps=10, decay_rate=1.0)(10)
        0.05
    """

    def __init__(self, initial_learning_rate: float, decay_steps: int, decay_rate: float,
                 staircase: bool = False):
        self.initial_learning_rate = number("InverseTimeDecay(initial_learning_rate=...)",
                                            initial_learning_rate)
        self.decay_steps = _steps("InverseTimeDecay(decay_steps=...)", decay_steps)
        self.decay_rate = number("InverseTimeDecay(decay_rate=...)", decay_rate)
        self.staircase = staircase

    def graph(self, step: Value) -> Value:
        p = step / float(self.decay_steps)
        p = OPS.floor(p) if self.staircase else p
        return self.initial_learning_rate / (p * self.decay_rate + 1.0)


class PolynomialDecay(LearningRateSchedule, names=("polynomial_decay",)):
    """From the initial to the end learning rate, along `(1 - step / decay_steps) ** power`.

    Args:
        initial_learning_rate: Learning rate at step 0.
        decay_steps: Number of steps of one decay. A positive integer.
        end_learning_rate: Learning rate after the decay. Default: `0.0001`.
        power: Exponent; 1 is a straight line. Default: `1.0`.
        cycle: Whether to restart. Each cycle is longer: a multiple of `decay_steps`.
            Default: `False`.

    Examples:
        >>> PolynomialDecay(1.0, decay_steps=4, end_learning_rate=0.0)(1)
        0.75
    """

    def __init__(self, initial_learning_rate: float, decay_steps: int,
                 end_learning_rate: float = 0.0001, power: float = 1.0, cycle: bool = False):
        self.initial_learning_rate = number("PolynomialDecay(initial_learning_rate=...)",
                                            initial_learning_rate)
        self.decay_steps = _steps("PolynomialDecay(decay_steps=...)", decay_steps)
        self.end_learning_rate = number("PolynomialDecay(end_learning_rate=...)",
                                        end_learning_rate)
        self.power = number("PolynomialDecay(power=...)", power)
        self.cycle = cycle

    def graph(self, step: Value) -> Value:
        span = float(self.decay_steps)
        if self.cycle:
            p = step / (OPS.maximum(OPS.ceil(step / span), 1.0) * span)
        else:
            p = OPS.minimum(step, span) / span
        left = 1.0 - p if self.power == 1 else OPS.power(1.0 - p, self.power)
        return left * (self.initial_learning_rate - self.end_learning_rate) + self.end_learning_rate


class CosineDecay(LearningRateSchedule, names=("cosine_decay",)):
    """Half a cosine from the peak to `alpha` times the peak, after an optional linear warmup.

    Args:
        initial_learning_rate: Learning rate at step 0.
        decay_steps: Number of steps of the decay, after the warmup. A positive integer.
        alpha: Final learning rate, as a fraction of the peak. Default: `0.0`.
        warmup_target: Learning rate at the end of the warmup, the peak. `None` means no warmup; the
            peak is then the initial learning rate. Default: `None`.
        warmup_steps: Number of steps of the warmup. Default: `0`.

    Examples:
        >>> CosineDecay(0.0, decay_steps=10, warmup_target=1.0, warmup_steps=4)(2)
        0.5
    """

    def __init__(self, initial_learning_rate: float, decay_steps: int, alpha: float = 0.0,
                 warmup_target: float | None = None, warmup_steps: int = 0):
        self.initial_learning_rate = number("CosineDecay(initial_learning_rate=...)",
                                            initial_learning_rate)
        self.decay_steps = _steps("CosineDecay(decay_steps=...)", decay_steps)
        self.alpha = number("CosineDecay(alpha=...)", alpha)
        self.warmup_target = None if warmup_target is None else number(
            "CosineDecay(warmup_target=...)", warmup_target)
        self.warmup_steps = whole("CosineDecay(warmup_steps=...)", warmup_steps)
        if warmup_target is not None:
            _steps("CosineDecay(warmup_steps=...)", warmup_steps)

    def graph(self, step: Value) -> Value:
        if self.warmup_target is None:
            return self._decay(step, self.initial_learning_rate)
        warm = float(self.warmup_steps)
        slope = (self.warmup_target - self.initial_learning_rate) / warm
        return OPS.where(step < warm, step * slope + self.initial_learning_rate,
                         self._decay(step - warm, self.warmup_target))

    def _decay(self, step: Value, top: float) -> Value:
        p = OPS.minimum(step, float(self.decay_steps)) / float(self.decay_steps)
        cosine = OPS.cos(p * math.pi) * 0.5 + 0.5
        return (cosine * (1.0 - self.alpha) + self.alpha) * top


class CosineDecayRestarts(LearningRateSchedule, names=("cosine_decay_restarts",)):
    """Half a cosine from the peak to `alpha` times the peak, repeatedly. Each period is longer, and
    starts from a lower peak.

    Args:
        initial_learning_rate: Learning rate at step 0.
        first_decay_steps: Number of steps of the first decay. A positive integer.
        t_mul: Length of each decay, as a multiple of the one before. Default: `2.0`.
        m_mul: Peak of each decay, as a fraction of the one before. Default: `1.0`.
        alpha: Final learning rate, as a fraction of the peak. Default: `0.0`.

    Examples:
        >>> CosineDecayRestarts(1.0, first_decay_steps=4, m_mul=0.5)(4)
        0.5
    """

    def __init__(self, initial_learning_rate: float, first_decay_steps: int, t_mul: float = 2.0,
                 m_mul: float = 1.0, alpha: float = 0.0):
        self.initial_learning_rate = number("CosineDecayRestarts(initial_learning_rate=...)",
                                            initial_learning_rate)
        self.first_decay_steps = _steps("CosineDecayRestarts(first_decay_steps=...)",
                                          first_decay_steps)
        self.t_mul = number("CosineDecayRestarts(t_mul=...)", t_mul, least=1)
        self.m_mul = number("CosineDecayRestarts(m_mul=...)", m_mul, above=0)
        self.alpha = number("CosineDecayRestarts(alpha=...)", alpha)

    def graph(self, step: Value) -> Value:
        p, longer = step / float(self.first_decay_steps), self.t_mul
        if longer == 1:
            restarts = OPS.floor(p)
            p = p - restarts
        else:  # the first k decays take (longer ** k - 1) / (longer - 1) times the first one
            restarts = OPS.floor(OPS.log(1.0 + p * (longer - 1.0)) / math.log(longer))
            length = OPS.exp(restarts * math.log(longer))
            p = (p - (length - 1.0) / (longer - 1.0)) / length
        top = OPS.exp(restarts * math.log(self.m_mul))
        cosine = (OPS.cos(p * math.pi) * 0.5 + 0.5) * top
        return (cosine * (1.0 - self.alpha) + self.alpha) * self.initial_learning_rate


class PiecewiseConstantDecay(LearningRateSchedule, names=("piecewise_constant_decay",)):
    """A constant rate between boundaries.

    The rate is `values[0]` up to and including step `boundaries[0]`, then `values[1]`, and so on.

    Args:
        boundaries: Steps after which the rate changes, in ascending order.
        values: Learning rates, one more than there are boundaries.

    Raises:
        ConfigError: The boundaries are not ascending, or the number of values is wrong.

    Examples:
        >>> schedule = PiecewiseConstantDecay([10, 20], [1.0, 0.5, 0.25])
        >>> schedule(10), schedule(11), schedule(21)
        (1.0, 0.5, 0.25)
    """

    def __init__(self, boundaries: Sequence[int], values: Sequence[float]):
        self.boundaries = _numbers("PiecewiseConstantDecay(boundaries=...)", boundaries)
        self.values = _numbers("PiecewiseConstantDecay(values=...)", values)
        if len(self.values) != len(self.boundaries) + 1 or not self.boundaries:
            raise ConfigError(f"PiecewiseConstantDecay has {len(self.boundaries)} boundaries and "
                              f"{len(self.values)} values; it needs one value more than boundaries")
        if self.boundaries != sorted(self.boundaries):
            raise ConfigError(f"PiecewiseConstantDecay boundaries {self.boundaries} must rise")

    def graph(self, step: Value) -> Value:
        rate: Any = OPS.full((), self.values[-1], step.dtype)
        for boundary, value in zip(self.boundaries[::-1], self.values[-2::-1], strict=True):
            rate = OPS.where(step <= float(boundary), value, rate)
        return rate


def _numbers(label: str, sequence: Any) -> list[Any]:
    if not isinstance(sequence, Iterable) or isinstance(sequence, (str, bytes)):
        raise ConfigError(f"{label} must be a list of numbers, not {sequence!r}")
    values = list(sequence)
    for value in values:
        number(label, value)
    return values


get = LearningRateSchedule.get


def __getattr__(name: str) -> Any:
    return member(LearningRateSchedule, name)
