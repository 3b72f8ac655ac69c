"""Activations: found by name for other layers, and as layers of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ztorch.config import number
from ztorch.errors import ConfigError, unknown
from ztorch.graph.op import OPS, REGISTRY, shape_error, traced
from ztorch.graph.value import Value, current_layer
from ztorch.layers.axes import checked_axes, example_axes
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer

# Keras' names; each is the op of the same name.
ACTIVATIONS = (
    "celu", "elu", "exponential", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu",
    "hard_swish", "hard_tanh", "leaky_relu", "linear", "log_sigmoid", "log_softmax", "mish",
    "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax", "softplus", "softsign",
    "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "swish", "tanh", "tanh_shrink",
    "threshold",
)
ActivationLike = str | Callable[[Value], Value] | None


def checked_activation(activation: ActivationLike) -> ActivationLike:
    """An activation as layers keep it: a name, a function of your own, or None.

    >>> checked_activation("relu"), checked_activation(None)
    ('relu', None)
    """
    if activation is None:
        return None
    if isinstance(activation, str):
        if activation not in ACTIVATIONS:
            raise unknown("activation", activation, ACTIVATIONS)
        return activation
    if isinstance(activation, Layer):
        raise ConfigError(f"activation={type(activation).__name__}(...) is a layer; add it to the "
                          "model after this layer, or give a name such as 'relu'")
    if isinstance(activation, type) or not callable(activation):
        raise ConfigError(f"activation={activation!r}; give a name such as 'relu', a function of a "
                          "tensor, or None")
    # ops.relu and "relu" are the same thing; by name it can be saved
    return next((n for n in ACTIVATIONS if REGISTRY[n].call is activation), activation)


def nonempty_axes(label: str, axis: Any) -> int | tuple[int, ...]:
    """One axis or several, as given, but not none."""
    if isinstance(axis, (list, tuple)) and not axis:
        raise ConfigError(f"{label} is empty; give an axis, such as -1 for the last")
    return checked_axes(label, axis)


def activate(activation: ActivationLike, x: Value, context: Context) -> Value:
    """The activation of x."""
    if activation is None:
        return x
    if callable(activation):
        y = traced(activation, f"layer {current_layer()!r}", x)
        if not isinstance(y, Value):
            raise shape_error(f"its activation returned {type(y).__name__} {y!r}",
                              fix="return a tensor made with zt.ops")
        return y
    y = getattr(OPS, activation)(x)
    if activation in ("softmax", "sigmoid"):
        context.remember_logits(y, activation, x)
    return y


class Activation(Layer):
    """An activation by name, or any function of a tensor.

    >>> Activation("relu").get_config()
    {'name': 'activation', 'activation': 'relu'}
    """

    def __init__(self, activation: ActivationLike, **common: Any):
        super().__init__(**common)
        self.activation = checked_activation(activation)

    def call(self, x: Value, context: Context) -> Value:
        return activate(self.activation, x, context)


class ReLU(Layer):
    """max(x, 0), with an optional slope below the threshold and an optional ceiling."""

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
    """x above zero, negative_slope * x below."""

    needs_floats = True

    def __init__(self, negative_slope: float = 0.3, **common: Any):
        super().__init__(**common)
        self.negative_slope = number("LeakyReLU(negative_slope=...)", negative_slope)

    def call(self, x: Value, context: Context) -> Value:
        return OPS.leaky_relu(x, negative_slope=self.negative_slope)


class PReLU(Layer):
    """x above zero, alpha * x below, with a learned alpha for each feature.

    Axes in `shared_axes` (counted with the batch as axis 0, as in Keras) share one alpha.
    """

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
    """x above zero, alpha * (e ** x - 1) below."""

    needs_floats = True

    def __init__(self, alpha: float = 1.0, **common: Any):
        super().__init__(**common)
        self.alpha = number("ELU(alpha=...)", alpha)

    def call(self, x: Value, context: Context) -> Value:
        return OPS.elu(x, alpha=self.alpha)


class Softmax(Layer):
    """Probabilities along an axis."""

    needs_floats = True

    def __init__(self, axis: int | tuple[int, ...] = -1, **common: Any):
        super().__init__(**common)
        self.axis = nonempty_axes("Softmax(axis=...)", axis)

    def call(self, x: Value, context: Context) -> Value:
        axes = example_axes(self.axis, x.rank)
        y = OPS.softmax(x, axis=axes if len(axes) > 1 else axes[0])
        if axes == (x.rank - 1,):
            context.remember_logits(y, "softmax", x)
        return y
