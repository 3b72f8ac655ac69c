"""Weights of layers as tensors, outside of calls and steps: `layer.kernel * 2.0`."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ztorch import ops
from ztorch.arrays.node import TensorNode
from ztorch.arrays.placement import default_device, memory_of
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.arrays.weight_cells import cell_of
from ztorch.errors import ConfigError
from ztorch.graph.value import Value, current_layer
from ztorch.layers.symbol import leaves, nested, symbols
from ztorch.layers.weight import Weight

# The weights whose values are tensors, also moved or sliced: a model would take them for constants.
_weights: weakref.WeakKeyDictionary[TensorNode, Weight] = weakref.WeakKeyDictionary()


def weight_tensor(weight: Weight) -> Tensor:
    """The current value of a weight, on the default device; in a compiled function, that of the
    call. It does not follow later changes.

    Raises:
        ConfigError: A graph is traced, in which it would be a constant.
    """
    if current_layer():
        raise _constant(weight)
    node = cell_of(weight, memory_of(default_device())).get()
    _weights[node] = weight
    return tensor_of(node)


def on_weights(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The result of an op, some of whose arguments are weights.

    Raises:
        ConfigError: Others are tensors of a graph.
    """
    operands = leaves((args, attrs))
    weights = [x for x in operands if isinstance(x, Weight)]
    if symbols(operands) or any(isinstance(x, Value) for x in operands):
        raise _constant(weights[0])
    result = getattr(ops, name)(*nested(_number, args), **nested(_number, attrs))
    if not any(isinstance(x, Tensor) for x in operands):
        _weights.update((y.node, weights[0]) for y in leaves(result) if isinstance(y, Tensor))
    return result


def constant(x: Tensor) -> np.ndarray:
    """The numbers of a tensor, which a model that is being declared holds as a constant.

    Raises:
        ConfigError: It is the value of a weight, which the model would not train.
    """
    weight = _weights.get(x.node)
    if weight is not None:
        raise _constant(weight)
    return x.numpy()


def _number(x: Any) -> Any:
    return weight_tensor(x) if isinstance(x, Weight) else x


def _constant(weight: Weight) -> ConfigError:
    return ConfigError(f"weight {weight.path!r} would be a constant of the model here; it is a "
                       "tensor that trains only in the call of a layer, or in a train_step: use it "
                       "in a layer that has it, or its layer, as an attribute")
