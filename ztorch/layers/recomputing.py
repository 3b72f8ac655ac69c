"""Blocks of layers whose activations the backward pass recomputes instead of storing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ztorch.layers.context import Context
from ztorch.layers.layer import Layer


class Checkpoint(Layer):
    """Trains a layer with less memory: the backward pass recomputes its activations.

    Only the inputs of the layer are stored between the forward and the backward pass. Kernels of
    the forward pass run again, so results and gradients are bit-identical. Prediction runs the same
    code. Weight names, files and summaries show the layer as if it had no wrapper.
    `compile(memory_limit=...)` chooses such blocks automatically.

    It affects programs that train. Within the step of a recurrent layer it has no effect. For
    functions and gradients of tensors, use `zt.ops.checkpoint`.

    Args:
        layer: The layer, or a `Sequential` of several.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        That of the layer.

    Output shape:
        That of the layer.

    Examples:
        >>> from ztorch import Sequential
        >>> from ztorch.layers import Dense, Input
        >>> block = Sequential([Dense(32, activation="tanh"), Dense(4)], name="block")
        >>> model = Sequential([Input((4,)), Checkpoint(block), Dense(1)])
        >>> [w.path for w in model.weights][:2]
        ['block/dense/kernel', 'block/dense/bias']
    """

    is_wrapper = True
    takes_many = True

    def __init__(self, layer: Layer, **common: Any):
        super().__init__(**common)
        self.layer = self.adopt(layer)
        if self.given_name is None:
            self.given_name, self.name = self.layer.given_name, self.layer.name

    @property
    def stands_for(self) -> Layer:
        """The inner layer."""
        return self.layer.stands_for

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Layer]]:
        """(depth, layer) for the inner layer and all layers in it."""
        for layer in self.adopted:
            yield from layer.walk(depth)

    def prepare(self, x: Any, *more: Any, **keywords: Any) -> None:
        """The inner layer is built when it is called."""

    def call(self, x: Any, context: Context, *more: Any, **keywords: Any) -> Any:
        context.recomputed.append(self.path)
        return self.layer(x, *more, context=context, **keywords)
