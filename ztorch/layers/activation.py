"""Activations, as arguments of other layers and as layers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.config import number
from ztorch.errors import ConfigError, unknown
from ztorch.graph.op import OPS, REGISTRY, shape_error
from ztorch.graph.tracing import traced
from ztorch.graph.value import Value, current_layer
from ztorch.layers.axes import checked_axes, example_axes, nonempty_axes
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.real_positions import spread
from ztorch.names.own_functions import own_function

# Names of activations, as in Keras. Each is the op with the same name.
ACTIVATIONS = (
    "celu", "elu", "exponential", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu",
    "hard_swish", "hard_tanh", "leaky_relu", "linear", "log_sigmoid", "log_softmax", "mish",
    "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax", "softplus", "softsign",
    "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "swish", "tanh", "tanh_shrink",
    "threshold",
)
ActivationLike = Any  # a name, a function of a tensor, a layer without weights, or None


def checked_activation(activation: ActivationLike) -> ActivationLike:
    """An activation in the form that layers store: a name, a function, or None.

    Args:
        activation: A name such as `"relu"`, a function of a tensor, a layer without weights, or
            `None`.

    Raises:
        UnknownName: No activation has this name.
        ConfigError: The activation is a layer with weights, a class, or not callable.

    Examples:
        >>> checked_activation("relu"), checked_activation(None)
        ('relu', None)
    """
    if activation is None:
        return None
    if isinstance(activation, str):
        own = None if activation in ACTIVATIONS else own_function(activation)
        if own is None and activation not in ACTIVATIONS:
            raise unknown("activation", activation, ACTIVATIONS)
        return own or activation
    if isinstance(activation, Mapping) and activation.get("class_name") in Layer.known:
        activation = Layer.get(activation)
    if isinstance(activation, Layer) and (
            activation.adopted or type(activation).build is not Layer.build):
        raise ConfigError(f"activation={type(activation).__name__}(...) is a layer with weights; "
                          "add it to the model after this layer, or give a name such as 'relu'")
    if isinstance(activation, type) or not callable(activation):
        raise ConfigError(f"activation={activation!r}; give a name such as 'relu', a function of a "
                          "tensor, or None")
    # ops.relu, as users call it, becomes "relu", which can be saved in a config
    op = getattr(activation, "__wrapped__", activation)
    return next((n for n in ACTIVATIONS if REGISTRY[n].call is op), activation)


def activate(activation: ActivationLike, x: Value, context: Context) -> Value:
    """Applies an activation to x. The context keeps the logits of a softmax or sigmoid."""
    if activation is None:
        return x
    if isinstance(activation, Layer):
        return activation.call(x, context)
    if callable(activation):
        y = traced(activation, f"layer {current_layer()!r}", x)
        if not isinstance(y, Value):
            raise shape_error(f"its activation returned {type(y).__name__} {y!r}",
                              fix="return a tensor made with zt.ops")
        return y
    y = getattr(OPS, activation)(x)
    if activation in ("softmax", "sigmoid"):
        remember_logits(y, activation, x, context)
    return y


def remember_logits(y: Value, activation: str, logits: Value, context: Context) -> None:
    """Records the logits of y for the loss. Warns of a softmax that has nothing to choose from."""
    if activation == "softmax" and y.shape[-1] == 1:
        warnings.warn(f"layer {current_layer()!r}: the softmax of a single number is always 1; use "
                      "activation='sigmoid', or one unit for each class", stacklevel=2)
    context.remember_logits(y, activation, logits)


class Activation(Layer):
    """Applies an activation.

    Args:
        activation: A name such as `"relu"`, a function of a tensor, or `None` for none.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape, unless the function changes it.

    Examples:
        >>> Activation("relu").get_config()
        {'name': 'activation', 'activation': 'relu'}
    """

    supports_masking = True

    def __init__(self, activation: ActivationLike, **common: Any):
        super().__init__(**common)
        self.activation = checked_activation(activation)

    def call(self, x: Value, context: Context) -> Value:
        return activate(self.activation, x, context)


class ReLU(Layer):
    """The rectifier: `max(x, 0)`, with an optional slope, threshold and ceiling.

    Args:
        max_value: Largest output. `None` means no limit. Default: `None`.
        negative_slope: Slope below the threshold. Default: `0.0`.
        threshold: Inputs up to this value are treated as negative. Default: `0.0`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> ReLU(max_value=6.0).max_value
        6.0
    """

    supports_masking = True

    def __init__(self, max_value: float | None = None, negative_slope: float = 0.0,
                 threshold: float = 0.0, **common: Any):
        super().__init__(**common)
        self.max_value = (None if max_value is None else
                          number("ReLU(max_value=...)", max_value, least=0))
        self.negative_slope = number("ReLU(negative_slope=...)", negative_slope, least=0)
        self.threshold = number("ReLU(threshold=...)", threshold, least=0)

    def call(self, x: Value, context: Context) -> Value:
        return OPS.relu(x, negative_slope=self.negative_slope, max_value=self.max_value,
                        threshold=self.threshold)


class LeakyReLU(Layer):
    """`x` above zero, `negative_slope * x` below.

    Args:
        negative_slope: Slope below zero. Default: `0.3`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> LeakyReLU(0.1).negative_slope
        0.1
    """

    supports_masking = True
    needs_floats = True

    def __init__(self, negative_slope: float = 0.3, **common: Any):
        super().__init__(**common)
        self.negative_slope = number("LeakyReLU(negative_slope=...)", negative_slope)

    def call(self, x: Value, context: Context) -> Value:
        return OPS.leaky_relu(x, negative_slope=self.negative_slope)


class PReLU(Layer):
    """`x` above zero, `alpha * x` below, with a learned `alpha` for each feature.

    Args:
        alpha_initializer: Initializer of `alpha`: a name or an `Initializer`. Default: `"zeros"`.
        shared_axes: Axes along which one `alpha` is shared, where axis 0 is the batch.
            `None` means none. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> Sequential([Input((8, 8, 3)), PReLU(shared_axes=(1, 2))]).weights[0].shape
        (1, 1, 3)
    """

    supports_masking = True
    needs_floats = True

    def __init__(self, alpha_initializer: Any = "zeros", shared_axes: Any = None, **common: Any):
        super().__init__(**common)
        self.alpha_initializer = alpha_initializer
        self.shared_axes = checked_axes("PReLU(shared_axes=...)",
                                        () if shared_axes is None else shared_axes)

    def build(self, input_shape: tuple[int, ...]) -> None:
        shared = example_axes(self.shared_axes, len(input_shape) + 1)
        shape = tuple(1 if k + 1 in shared else n for k, n in enumerate(input_shape))
        self.alpha = self.add_weight("alpha", shape, self.alpha_initializer)

    def call(self, x: Value, context: Context) -> Value:
        return OPS.where(x > 0.0, x, x * context.read(self.alpha))


class ELU(Layer):
    """The exponential linear unit: `x` above zero, `alpha * (e ** x - 1)` below.

    Args:
        alpha: Minus the limit of the output for very negative inputs. Default: `1.0`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> ELU(0.5).alpha
        0.5
    """

    supports_masking = True
    needs_floats = True

    def __init__(self, alpha: float = 1.0, **common: Any):
        super().__init__(**common)
        self.alpha = number("ELU(alpha=...)", alpha)

    def call(self, x: Value, context: Context) -> Value:
        return OPS.elu(x, alpha=self.alpha)


class Softmax(Layer):
    """Probabilities that sum to 1 along an axis.

    Called with `mask=`, bools of the shape of the input, it gives masked positions probability 0.

    Args:
        axis: Axis or axes of one distribution, where axis 0 is the batch. Default: `-1`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> Softmax().axis
        -1
    """

    supports_masking = True
    needs_floats = True

    def __init__(self, axis: int | tuple[int, ...] = -1, **common: Any):
        super().__init__(**common)
        self.axis = nonempty_axes("Softmax(axis=...)", axis)

    def call(self, x: Value, context: Context) -> Value:
        axes = example_axes(self.axis, x.rank)
        padding, padded = context.padding, context.padding.of(x)
        hidden = [axis for axis in axes if axis in padded]
        lowest, mask = float(np.finfo(x.dtype.working).min), context.masks.get(x)
        if mask is not None and mask.rank == x.rank:  # one of steps alone hides no element
            y = self.call(OPS.where(mask, x, lowest), context)
            return OPS.where(mask, y, 0.0)  # also where all positions are masked
        for axis in hidden:  # padding gets probability zero
            x = OPS.where(spread(padded[axis].value, x.rank, axis), x, lowest)
        if hidden:
            padding.declare(x, {})
        y = OPS.softmax(x, axis=axes if len(axes) > 1 else axes[0])
        if axes == (x.rank - 1,):
            remember_logits(y, "softmax", x, context)
        return padding.declare(y, padded) if hidden else y
