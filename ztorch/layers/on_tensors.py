"""Calls layers on tensors, with their current weights or given ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch import dispatch
from ztorch.graph.op import as_value
from ztorch.graph.operators import Operators
from ztorch.graph.value import StandIn, Value
from ztorch.layers.symbol import leaves


def has_numbers(inputs: Sequence[Any], arrays: bool) -> bool:
    """Whether a layer is called on numbers: tensors that are not graph values, or, with `arrays`,
    arrays as well."""
    parts = leaves(inputs)
    if any(isinstance(x, (Value, StandIn)) or hasattr(type(x), "symbol") for x in parts):
        return any(isinstance(x, Operators) and not isinstance(x, (Value, StandIn)) for x in parts)
    return any(isinstance(x, Operators) or (arrays and hasattr(x, "shape") and (
        hasattr(x, "__array__") or hasattr(x, "__dlpack__"))) for x in parts)


def in_graph(x: Any) -> Any:
    """x; a tensor as a value of the graph that is being traced."""
    return as_value(x) if isinstance(x, Operators) and not isinstance(
        x, (Value, StandIn)) else x


class OnTensors:
    """The part of a layer that computes with tensors."""

    def reset_states(self) -> None:
        """Resets the states of `stateful` layers to zero: of this layer and its inner layers.

        A program keeps its own states: `program.reset_states()`.

        Examples:
            >>> import ztorch as zt
            >>> layer, x = zt.layers.GRU(2, stateful=True), zt.ones((1, 4, 3))
            >>> first, second = layer(x).tolist(), layer(x).tolist()
            >>> layer.reset_states()
            >>> layer(x).tolist() == first, second == first
            (True, False)
        """
        dispatch.reset_states(self)

    def stateless_call(self, trainable_variables: Sequence[Any],
                       non_trainable_variables: Sequence[Any], *inputs: Any,
                       training: bool | None = None, return_losses: bool = False) -> Any:
        """The output for given weights, as in Keras. The layer's own weights stay unchanged.

        `zt.grad` computes gradients of the output with respect to the weights.

        Args:
            trainable_variables: A tensor or an array for each of `trainable_weights`.
            non_trainable_variables: One for each of `non_trainable_weights`.
            *inputs: Tensors or arrays, with the batch as their first axis.
            training: Whether dropout and batch normalization behave as in training. `None` means
                the mode in which the layer is called alone; see `Layer.__call__`. Default: `None`.
            return_losses: Whether to return the losses that layers and regularizers add, too.
                Default: `False`.

        Returns:
            `(outputs, non_trainable_variables)`, or with `return_losses` also a list of scalars.
            The variables hold their values after the call.

        Raises:
            WeightsError: The number of weights or a shape is wrong.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> dense = zt.layers.Dense(2)
            >>> x = zt.ones((1, 3))
            >>> y = dense(x)  # makes the weights
            >>> kernel, bias = np.ones((3, 2)), np.array([0.0, 1.0])
            >>> dense.stateless_call([kernel, bias], [], x)[0].tolist()
            [[3.0, 4.0]]
        """
        outputs, variables, losses = dispatch.stateless_call(
            self, trainable_variables, non_trainable_variables, inputs, training)
        return (outputs, variables, losses) if return_losses else (outputs, variables)
