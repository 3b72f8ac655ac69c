"""Spectral normalization, which keeps the largest singular value of a kernel at 1."""

from __future__ import annotations

from typing import Any

from ztorch.config import positive
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.initializers import Shape, TruncatedNormal
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.weight import Weight

LARGEST_SCALE = 1e7  # of a vector when its length becomes 1, as in Keras


class SpectralNormalization(Layer):
    """Wraps a layer. Each training step first divides its kernel by its largest singular value.

    Power iteration estimates the singular value, with a vector that is kept between steps.
    Prediction and evaluation leave the kernel unchanged.

    Args:
        layer: A layer with a `kernel`, such as `Dense` or `Conv2D`, or an `Embedding`.
        power_iterations: Number of power iterations per step. Default: `1`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any that the layer accepts.

    Output shape:
        The output shape of the layer.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Dense, Input
        >>> model = Sequential([Input((4,)), SpectralNormalization(Dense(3), name="sn")])
        >>> [w.path for w in model.weights]
        ['sn/vector_u', 'sn/dense/kernel', 'sn/dense/bias']
    """

    supports_masking = True

    def __init__(self, layer: Layer, power_iterations: int = 1, **common: Any):
        super().__init__(**common)
        self.power_iterations = positive("SpectralNormalization(power_iterations=...)",
                                         power_iterations)
        self.layer = self.adopt(layer)

    def prepare(self, x: Any, *more: Any, **keywords: Any) -> None:
        """Builds the inner layer first: its kernel determines the length of the vector."""
        if not self.built:
            self.layer.prepare(x)
        super().prepare(x)

    def build(self, input_shape: Shape) -> None:
        self.kernel = self._kernel()
        self.vector_u = self.add_weight("vector_u", (1, self.kernel.shape[-1]),
                                        TruncatedNormal(stddev=0.02), trainable=False)

    def _kernel(self) -> Weight:
        for name in ("kernel", "embeddings"):
            weight = getattr(self.layer, name, None)
            if isinstance(weight, Weight):
                return weight
        raise ConfigError(f"SpectralNormalization needs a layer with a kernel, such as Dense or "
                          f"Conv2D; {type(self.layer).__name__} {self.layer.name!r} has none")

    def call(self, x: Value, context: Context) -> Value:
        if context.training and context.stored(self.kernel) not in context.updates:
            self._normalize(context)
        return self.layer(x, context)

    def _normalize(self, context: Context) -> None:
        """Divides the kernel by its largest singular value, once per step."""
        weight = context.stored(self.kernel)
        matrix = OPS.reshape(weight, (-1, weight.shape[-1]))
        before = u = context.read(self.vector_u)
        for _ in range(self.power_iterations):
            v = _unit(OPS.matmul(u, OPS.transpose(matrix)))
            u = _unit(OPS.matmul(v, matrix))
        sigma = OPS.sum(OPS.matmul(v, matrix) * u)
        is_zero = OPS.all(OPS.equal(weight, 0.0))
        context.write(self.vector_u, OPS.where(is_zero, before, u))
        scaled = weight / OPS.where(is_zero, 1.0, sigma)
        context.write(self.kernel, OPS.where(is_zero, weight, scaled))


def _unit(x: Value) -> Value:
    """A vector of length 1 in the direction of x."""
    return x * OPS.minimum(OPS.rsqrt(OPS.sum(OPS.square(x))), LARGEST_SCALE)
