"""Normalizations of the length of vectors, without centring."""

from __future__ import annotations

from typing import Any

from ztorch.config import number
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.axes import example_axes, nonempty_axes
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer


class RMSNormalization(Layer):
    """Scales each example to mean square 1 along axes, then applies a learned scale.

    It drops masks, as Keras' layer does, unlike the other normalizations.

    Args:
        axis: Axis or axes of the mean square, where axis 0 is the batch. Default: `-1`.
        epsilon: Added to the mean square to avoid division by zero. Default: `1e-06`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Input
        >>> [w.path for w in Sequential([Input((4,)), RMSNormalization()]).weights]
        ['rms_normalization/scale']
    """

    needs_floats = True

    def __init__(self, axis: int | tuple[int, ...] = -1, epsilon: float = 1e-6, **common: Any):
        super().__init__(**common)
        self.axis = nonempty_axes("RMSNormalization(axis=...)", axis)
        self.epsilon = number("RMSNormalization(epsilon=...)", epsilon, above=0)

    def build(self, input_shape: Shape) -> None:
        axes = example_axes(self.axis, len(input_shape) + 1)
        self.scale = self.add_weight("scale", tuple(input_shape[a - 1] for a in axes), "ones")

    def call(self, x: Value, context: Context) -> Value:
        axes = example_axes(self.axis, x.rank)
        spread = tuple(n if k in axes else 1 for k, n in enumerate(x.shape))
        factor = OPS.rsqrt(OPS.mean(x * x, axes, True) + self.epsilon)
        return x * factor * OPS.reshape(context.read(self.scale), spread)


class UnitNormalization(Layer):
    """Scales each example to length 1 along axes. Zeros stay zero.

    Args:
        axis: Axis or axes of one vector, where axis 0 is the batch. Default: `-1`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any.

    Output shape:
        The same as the input shape.

    Examples:
        >>> UnitNormalization(axis=(1, 2)).axis
        (1, 2)
    """

    supports_masking = True
    needs_floats = True

    def __init__(self, axis: int | tuple[int, ...] = -1, **common: Any):
        super().__init__(**common)
        self.axis = nonempty_axes("UnitNormalization(axis=...)", axis)

    def call(self, x: Value, context: Context) -> Value:
        return of_length_1(x, example_axes(self.axis, x.rank), 1e-12)


def of_length_1(x: Value, axes: tuple[int, ...], shortest: float) -> Value:
    """x divided by its length along axes, or by `shortest`, Keras' epsilon, if that is larger.

    x is first scaled to numbers around 1, because squares overflow long before lengths do.
    """
    largest = OPS.maximum(OPS.stop_gradient(OPS.max(OPS.abs(x), axes, True)), shortest)
    y = x / largest
    squares = OPS.sum(y * y, axes, True)  # below 1 only if the length is below `shortest`
    return y * OPS.rsqrt(OPS.where(squares < 1.0, 1.0, squares))
