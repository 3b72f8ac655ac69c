"""Normalizations to mean 0 and variance 1: over features, groups of features, or the batch."""

from __future__ import annotations

import math
from typing import Any

from ztorch.config import fraction, number, whole
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.axes import example_axes, nonempty_axes
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.moments import moments_of, standardized_groups


class ScaledNormalization(Layer, abstract=True):
    """Base class of normalizations with a learned scale (`gamma`) and shift (`beta`)."""

    supports_masking = True
    needs_floats = True

    def __init__(self, axis: int | tuple[int, ...] = -1, epsilon: float = 1e-3,
                 center: bool = True, scale: bool = True, beta_initializer: Any = "zeros",
                 gamma_initializer: Any = "ones", **common: Any):
        super().__init__(**common)
        kind = type(self).__name__
        self.axis = nonempty_axes(f"{kind}(axis=...)", axis)
        self.epsilon = number(f"{kind}(epsilon=...)", epsilon, above=0)
        self.center, self.scale = center, scale
        self.beta_initializer, self.gamma_initializer = beta_initializer, gamma_initializer

    def one_axis(self) -> None:
        """Raises a ConfigError unless `axis` is a single axis."""
        if not isinstance(self.axis, int):
            raise ConfigError(f"{type(self).__name__}(axis={self.axis!r}) takes one axis, such as "
                              "-1 for the last")

    def build(self, input_shape: Shape) -> None:
        shape = tuple(input_shape[a - 1] for a in example_axes(self.axis, len(input_shape) + 1))
        if self.scale:
            self.gamma = self.add_weight("gamma", shape, self.gamma_initializer)
        if self.center:
            self.beta = self.add_weight("beta", shape, self.beta_initializer)

    def scaled(self, y: Value, factor: Value | None, context: Context,
               apart: Value | None = None) -> Value:
        """(y - apart) * factor * gamma + beta. Small tensors are combined first."""
        axes = example_axes(self.axis, y.rank)
        spread = tuple(n if k in axes else 1 for k, n in enumerate(y.shape))
        if self.scale:
            gamma = OPS.reshape(context.read(self.gamma), spread)
            factor = gamma if factor is None else factor * gamma
        shift = OPS.reshape(context.read(self.beta), spread) if self.center else None
        if apart is not None:
            from_mean = apart * factor
            shift = -from_mean if shift is None else shift - from_mean
        if factor is not None:
            y = y * factor
        return y if shift is None else y + shift


def _share(x: Value, mask: Value | None, axes: tuple[int, ...], context: Context) -> Value | None:
    """The weight of each element in means along axes; None if all are equal. Masked elements, and
    those that pad a batch or an axis, have weight 0."""
    counts = context.padding.real(x)
    if mask is not None:
        steps = OPS.cast(OPS.reshape(mask, (*mask.shape, *(1,) * (x.rank - mask.rank))), x.dtype)
        counts = steps if counts is None else counts * steps
    if counts is None:
        return None
    among = math.prod(x.shape[a] // counts.shape[a] for a in axes)
    return counts / OPS.maximum(OPS.sum(counts) * float(among), 1.0)


class LayerNormalization(ScaledNormalization):
    """Normalizes each example to mean 0 and variance 1 along axes, then scales and shifts it.

    Args:
        axis: Axis or axes of the mean and the variance, where axis 0 is the batch. Default:
            `-1`.
        epsilon: Added to the variance to avoid division by zero. Default: `0.001`.
        center: Whether to add a learned shift, `beta`. Default: `True`.
        scale: Whether to multiply by a learned scale, `gamma`. Default: `True`.
        beta_initializer: Initializer of `beta`: a name or an `Initializer`. Default: `"zeros"`.
        gamma_initializer: Initializer of `gamma`: a name or an `Initializer`. Default: `"ones"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> [w.path for w in Sequential([Input((4,)), LayerNormalization()]).weights]
        ['layer_normalization/gamma', 'layer_normalization/beta']
    """

    def call(self, x: Value, context: Context) -> Value:
        y = OPS.standardize(x, axis=example_axes(self.axis, x.rank), epsilon=self.epsilon)
        return self.scaled(y, None, context)


class BatchNormalization(ScaledNormalization):
    """Normalizes each feature to mean 0 and variance 1 over the batch, then scales and shifts it.

    Training uses the mean and the population variance of the batch, as Keras does, and moves
    `moving_mean` and `moving_variance` towards them by `1 - momentum`. Prediction, evaluation and a
    frozen layer (`trainable=False`) use the moving statistics.

    Rows that pad the last batch of an epoch do not count, nor do masked steps and the padding of
    sequences.

    Args:
        axis: Axis of the features, where axis 0 is the batch: 1 for channels first. Default:
            `-1`.
        momentum: Fraction of the moving statistics that each step keeps, from 0 to 1. Default:
            `0.99`.
        epsilon: Added to the variance to avoid division by zero. Default: `0.001`.
        center: Whether to add a learned shift, `beta`. Default: `True`.
        scale: Whether to multiply by a learned scale, `gamma`. Default: `True`.
        beta_initializer: Initializer of `beta`: a name or an `Initializer`. Default: `"zeros"`.
        gamma_initializer: Initializer of `gamma`: a name or an `Initializer`. Default: `"ones"`.
        moving_mean_initializer: Initializer of `moving_mean`: a name or an `Initializer`. Default:
            `"zeros"`.
        moving_variance_initializer: Initializer of `moving_variance`: a name or an `Initializer`.
            Default: `"ones"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> model = Sequential([Input((4,)), BatchNormalization(name="bn")])
        >>> [(w.path, w.trains) for w in model.weights][1:3]
        [('bn/beta', True), ('bn/moving_mean', False)]
    """

    def __init__(self, axis: int = -1, momentum: float = 0.99, epsilon: float = 1e-3,
                 center: bool = True, scale: bool = True, beta_initializer: Any = "zeros",
                 gamma_initializer: Any = "ones", moving_mean_initializer: Any = "zeros",
                 moving_variance_initializer: Any = "ones", **common: Any):
        super().__init__(axis, epsilon, center, scale, beta_initializer, gamma_initializer,
                         **common)
        self.one_axis()
        self.momentum = fraction("BatchNormalization(momentum=...)", momentum, below_one=False)
        self.moving_mean_initializer = moving_mean_initializer
        self.moving_variance_initializer = moving_variance_initializer

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        [axis] = example_axes(self.axis, len(input_shape) + 1)
        shape = (input_shape[axis - 1],)
        self.moving_mean = self.add_weight("moving_mean", shape, self.moving_mean_initializer,
                                           trainable=False)
        self.moving_variance = self.add_weight("moving_variance", shape,
                                               self.moving_variance_initializer, trainable=False)

    def call(self, x: Value, context: Context, *, mask: Value | None = None) -> Value:
        [axis] = example_axes(self.axis, x.rank)
        spread = tuple(n if k == axis else 1 for k, n in enumerate(x.shape))
        if context.training and self.trains:
            rest = tuple(k for k in range(x.rank) if k != axis)
            share, padded = _share(x, mask, rest, context), context.padding.of(x)
            steps = (mask, context.padding.real_steps)  # else the rows that count come first
            scattered = bool(padded) or any(x is not None for x in steps)
            moments = moments_of(x, rest, share, scattered)
            mean, variance = moments.mean, moments.variance
            for statistics in (mean, moments.apart, variance):
                context.padding.declare(statistics, {})
            context.padding.declare(moments.shifted, padded)
            for weight, now in ((self.moving_mean, mean), (self.moving_variance, variance)):
                old, now = context.read(weight), OPS.reshape(now, weight.shape)
                context.write(weight, old * self.momentum + now * (1.0 - self.momentum))
            shifted, apart = moments.shifted, None if scattered else moments.apart
        else:
            shifted, apart = x - OPS.reshape(context.read(self.moving_mean), spread), None
            variance = OPS.reshape(context.read(self.moving_variance), spread)
        return self.scaled(shifted, OPS.rsqrt(variance + self.epsilon), context, apart)


class GroupNormalization(ScaledNormalization):
    """Normalizes groups of features to mean 0 and variance 1, then scales and shifts each feature.

    The statistics of a group cover all positions of one example.

    Args:
        groups: Number of groups, a divisor of the number of features. -1 makes each feature a
            group, which is instance normalization. Default: `32`.
        axis: Axis of the features, where axis 0 is the batch. Default: `-1`.
        epsilon: Added to the variance to avoid division by zero. Default: `0.001`.
        center: Whether to add a learned shift, `beta`. Default: `True`.
        scale: Whether to multiply by a learned scale, `gamma`. Default: `True`.
        beta_initializer: Initializer of `beta`: a name or an `Initializer`. Default: `"zeros"`.
        gamma_initializer: Initializer of `gamma`: a name or an `Initializer`. Default: `"ones"`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((8, 8, 6)), GroupNormalization(groups=3)]).count_params()
        12
    """

    def __init__(self, groups: int = 32, axis: int = -1, epsilon: float = 1e-3,
                 center: bool = True, scale: bool = True, beta_initializer: Any = "zeros",
                 gamma_initializer: Any = "ones", **common: Any):
        super().__init__(axis, epsilon, center, scale, beta_initializer, gamma_initializer,
                         **common)
        self.one_axis()
        one_each = isinstance(groups, int) and groups == -1
        self.groups = -1 if one_each else whole("GroupNormalization(groups=...)", groups, 1)

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        [axis] = example_axes(self.axis, len(input_shape) + 1)
        features = input_shape[axis - 1]
        if self.groups != -1 and features % self.groups:
            first = axis > 1 and features < self.groups and input_shape[0] % self.groups == 0
            raise shape_error(f"{self.groups} groups do not divide the {features} features of "
                              "inputs", input_shape,
                              fix=f"choose groups that divide {features}, or -1 for one group per "
                                  f"feature{'; or axis=1 if they come first' * first}")

    def call(self, x: Value, context: Context) -> Value:
        [axis] = example_axes(self.axis, x.rank)
        features = x.shape[axis]
        groups = features if self.groups == -1 else self.groups
        if 1 < axis == x.rank - 1:
            return self.scaled(standardized_groups(x, groups, self.epsilon), None, context)
        grouped = OPS.reshape(x, (*x.shape[:axis], groups, features // groups, *x.shape[axis + 1:]))
        rest = tuple(k for k in range(1, grouped.rank) if k != axis)
        _, apart, variance, shifted = moments_of(grouped, rest)
        y = (shifted - apart) * OPS.rsqrt(variance + self.epsilon)
        return self.scaled(OPS.reshape(y, x.shape), None, context)
