"""Calls functions of graph values, such as losses and metrics, on tensors and arrays."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ztorch.arrays.applying import common_memory
from ztorch.arrays.calls import Call, one_call
from ztorch.arrays.elements import node_of_array
from ztorch.arrays.exchange import as_host_array, dtype_of
from ztorch.arrays.node import Handle, TensorNode
from ztorch.arrays.recording import record
from ztorch.arrays.tensor import tensor_of
from ztorch.dtypes import f32, f64
from ztorch.graph.trees import Shape, flatten, unflatten
from ztorch.graph.value import Value

# The structure of the results of a call: one tensor, or a dict or list of tensors.
_trees: weakref.WeakKeyDictionary[Call, Shape] = weakref.WeakKeyDictionary()


def on_numbers(name: str, key: Any, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """The result of a function of graph values, for tensors or arrays.

    Args:
        name: The function's name in errors.
        key: Identifies the function.
        function: Takes values, and returns a value, or a dict or list of values.
        operands: Tensors, arrays, numbers or lists of numbers.

    Returns:
        Tensors in place of the values that the function returns.
    """
    labels = [f"argument {k}" for k in range(len(operands))]
    place = common_memory(name, labels, operands)
    nodes = [as_layer_input(f"{name}: {label}", x, place)
             for label, x in zip(labels, operands, strict=True)]
    trees: list[Shape] = []

    def build(values: Sequence[Value]) -> list[Value]:
        results, tree = flatten(function(*values))
        trees.append(tree)
        return results

    call = one_call((name, key), name, tuple(n.spec for n in nodes), build)
    tree = _trees.setdefault(call, trees[0]) if trees else _trees[call]
    return unflatten(tree, map(tensor_of, record(call, tuple(nodes))))


def as_layer_input(label: str, x: Any, place: str) -> TensorNode:
    """An argument of a layer or a loss as a node in a memory. As in Keras, float64 arrays become
    float32; tensors keep their dtype."""
    if isinstance(x, Handle):
        return x.node
    array = as_host_array(label, x)
    d = dtype_of(array.dtype)
    return node_of_array(array, f32 if d is f64 else d, place, copy=True)
