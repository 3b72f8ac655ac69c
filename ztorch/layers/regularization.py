"""Layers that add noise during training, against overfitting."""

from __future__ import annotations

import math
from typing import Any

from ztorch.config import fraction, number, whole_seed
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.regularizers import L1L2


class Dropout(Layer):
    """During training, sets elements to zero and scales up the others to preserve the mean.

    The random numbers depend only on the program's seed, the step and the layer's position in the
    model (or its own seed), so runs can be reproduced bit for bit.

    Args:
        rate: Fraction of the elements that become zero, from 0 to below 1.
        noise_shape: Shape of the dropout mask, including the batch. `1` shares the mask along that
            axis; `None` means the size of the input. Default: that of the input.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> Dropout(0.5).rate
        0.5
    """

    supports_masking = True

    def __init__(self, rate: float, noise_shape: Any = None, seed: int | None = None,
                 **common: Any):
        super().__init__(**common)
        self.rate = fraction("Dropout(rate=...)", rate)
        self.noise_shape = _checked_noise("Dropout", noise_shape)
        self.seed = None if seed is None else whole_seed(seed)

    def call(self, x: Value, context: Context) -> Value:
        if not context.training or self.rate == 0:
            return x
        seed, step, stream = context.random(self.seed)
        return OPS.dropout(x, rate=self.rate, seed=seed, step=step, stream=stream,
                           noise_shape=_noise_for(x, self.noise_shape))


def _checked_noise(layer: str, noise_shape: Any) -> tuple | None:
    if noise_shape is not None and not isinstance(noise_shape, (list, tuple)):
        raise ConfigError(f"{layer}(noise_shape={noise_shape!r}) must be a tuple with an entry "
                          "for each axis, such as (None, 1, 64)")
    return None if noise_shape is None else tuple(noise_shape)


def _noise_for(x: Value, noise: tuple | None) -> Shape | None:
    """The shape of the dropout mask for these inputs; None means one decision per element."""
    if noise is None:
        return None
    if len(noise) != x.rank:
        raise shape_error("noise_shape and inputs differ in rank:", noise, x.shape,
                          fix="include each axis, with None for the batch")
    return tuple(n if m is None else m for m, n in zip(noise, x.shape, strict=True))


class GaussianNoise(Layer):
    """During training, adds normally distributed noise of mean 0.

    Args:
        stddev: Standard deviation of the noise.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> GaussianNoise(0.1).stddev
        0.1
    """

    supports_masking = True

    def __init__(self, stddev: float, seed: int | None = None, **common: Any):
        super().__init__(**common)
        self.stddev = number("GaussianNoise(stddev=...)", stddev, least=0)
        self.seed = None if seed is None else whole_seed(seed)

    def call(self, x: Value, context: Context) -> Value:
        if not context.training or self.stddev == 0:
            return x
        return x + _normal(x, context, self.seed) * self.stddev


class GaussianDropout(Layer):
    """During training, multiplies by normally distributed noise of mean 1.

    The noise has the variance of dropout at the same rate.

    Args:
        rate: Rate of the dropout with the same variance, from 0 to below 1.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> GaussianDropout(0.5).rate
        0.5
    """

    supports_masking = True

    def __init__(self, rate: float, seed: int | None = None, **common: Any):
        super().__init__(**common)
        self.rate = fraction("GaussianDropout(rate=...)", rate)
        self.seed = None if seed is None else whole_seed(seed)

    def call(self, x: Value, context: Context) -> Value:
        if not context.training or self.rate == 0:
            return x
        stddev = math.sqrt(self.rate / (1.0 - self.rate))
        return x * (_normal(x, context, self.seed) * stddev + 1.0)


def _normal(x: Value, context: Context, own_seed: int | None) -> Value:
    seed, step, stream = context.random(own_seed)
    return OPS.random_normal(x.shape, seed, step, stream, x.dtype)


class AlphaDropout(Layer):
    """Dropout for selu, which preserves mean 0 and variance 1.

    Dropped elements get selu's value for very negative inputs; then all elements are scaled and
    shifted.

    Args:
        rate: Fraction of the elements that are dropped, from 0 to below 1.
        noise_shape: Shape of the dropout mask, including the batch. `1` shares the mask along that
            axis; `None` means the size of the input. Default: that of the input.
        seed: Seed of the layer's random numbers. `None` derives them from the program's seed and
            the layer's position in the model. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> AlphaDropout(0.1).rate
        0.1
    """

    supports_masking = True
    lowest = -1.7580993408473766  # -alpha * scale of selu

    def __init__(self, rate: float, noise_shape: Any = None, seed: int | None = None,
                 **common: Any):
        super().__init__(**common)
        self.rate = fraction("AlphaDropout(rate=...)", rate)
        self.noise_shape = _checked_noise("AlphaDropout", noise_shape)
        self.seed = None if seed is None else whole_seed(seed)

    def call(self, x: Value, context: Context) -> Value:
        if not context.training or self.rate == 0:
            return x
        seed, step, stream = context.random(self.seed)
        ones = OPS.full(x.shape, 1.0, x.dtype)
        mask = OPS.dropout(ones, rate=self.rate, seed=seed, step=step, stream=stream,
                           noise_shape=_noise_for(x, self.noise_shape)) > 0.0
        a = ((1 - self.rate) * (1 + self.rate * self.lowest**2)) ** -0.5
        return OPS.where(mask, x, self.lowest) * a - a * self.lowest * self.rate


class ActivityRegularization(Layer):
    """Returns its input, and adds a penalty of it to the loss.

    Args:
        l1: Factor of the sum of absolute values. Default: `0.0`.
        l2: Factor of the sum of squares. Default: `0.0`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> ActivityRegularization(l2=0.01).l2
        0.01
    """

    supports_masking = True

    def __init__(self, l1: float = 0.0, l2: float = 0.0, **common: Any):
        if common.get("activity_regularizer") is not None:
            raise ConfigError("ActivityRegularization takes l1 and l2, not activity_regularizer")
        super().__init__(**common)
        self.l1, self.l2 = (number(f"ActivityRegularization({name}=...)", x, least=0)
                            for name, x in (("l1", l1), ("l2", l2)))
        self.rules["activity_regularizer"] = L1L2(self.l1, self.l2)

    def call(self, x: Value, context: Context) -> Value:
        return x

    def rules_config(self) -> dict[str, Any]:
        """Empty: l1 and l2 are arguments."""
        return {}
