"""Fast recording of indexing: `x[key]`.

The calls of an earlier key are found by the parts of the key. Index tensors are operands of a
single call, however many ops the indexing needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ztorch.arrays.calls import Call, one_call
from ztorch.arrays.cells import is_tracing
from ztorch.arrays.elements import node_of_array
from ztorch.arrays.exchange import dtype_of
from ztorch.arrays.indexing import indexed
from ztorch.arrays.node import Handle, TensorNode
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record, record_quick
from ztorch.arrays.specs import Spec, spec
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value

Compute = Callable[..., Any]  # compute(op, args, attrs) applies an op

_BOUNDS = (int, type(None))  # bounds of slices that are compared by value
_recorded: Recent[tuple[Any, ...], tuple[Call, ...]] = Recent(1 << 12)
_find = _recorded.find


def chosen(x: Handle, key: Any, compute: Compute) -> TensorNode:
    """The elements of a tensor that a key selects.

    Args:
        x: The tensor.
        key: The index expression in the brackets.
        compute: Applies an op to tensors.
    """
    node = x.node
    again = _recorded_again(node, key)
    if again is not None:
        return again
    token: list[Any] = [node.spec]
    operands = [node]
    shape = node.spec.shape
    for k in key if type(key) is tuple else (key,):
        if type(k) is slice:
            bounds = k.start, k.stop, k.step
            if type(bounds[0]) in _BOUNDS and type(bounds[1]) in _BOUNDS and (
                    type(bounds[2]) in _BOUNDS):
                token.append(bounds)
                continue
        elif type(k) is int or k is None or k is Ellipsis:
            token.append(k)
            continue
        elif isinstance(k, Handle) and k.node.spec.dtype.is_int and (
                k.node.spec.memory == node.spec.memory):
            token.append(k.node.spec)
            operands.append(k.node)
            continue
        elif type(k) is np.ndarray and k.size and k.dtype.kind in "iu":
            axis = len(token) - 1
            if None not in token and Ellipsis not in token and (
                    axis < len(shape) and -shape[axis] <= k.min() and k.max() < shape[axis]):
                d = dtype_of(k.dtype)
                token.append(spec(k.shape, d, node.spec.memory))
                operands.append(node_of_array(k, d, node.spec.memory, copy=True))
                continue
        return _node(indexed(x, key, compute, _is_handle))
    place = tuple(token)
    calls = _recorded.get(place)
    if calls is None:
        if len(operands) > 1:
            calls = (_gathering(place[1:], [o.spec for o in operands]),)
        else:
            result = _node(indexed(x, key, compute, _is_handle))
            calls = None if is_tracing() else _calls_between(node, result)
            if calls is not None:
                _recorded.put(place, calls)
            return result
        _recorded.put(place, calls)
    result = node
    inputs = tuple(operands)
    for call in calls:
        [result] = record(call, inputs)
        inputs = (result,)
    return result


def _recorded_again(node: TensorNode, key: Any) -> TensorNode | None:
    """The fast path for one integer or one slice: a single call that was recorded before."""
    if type(key) is slice:
        start, stop, step = bounds = key.start, key.stop, key.step
        if not (type(start) in _BOUNDS and type(stop) in _BOUNDS and type(step) in _BOUNDS):
            return None
        calls = _find((node.spec, bounds))
    elif type(key) is int:
        calls = _find((node.spec, key))
    else:
        return None
    if calls is None or len(calls) != 1 or not calls[0].quick:
        return None
    return record_quick(calls[0], (node,), node.depth)


def _is_handle(x: Any) -> bool:
    return isinstance(x, Handle)


def _node(x: Handle) -> TensorNode:
    return x.node


def _calls_between(source: TensorNode, result: TensorNode) -> tuple[Call, ...] | None:
    """The calls that lead from one tensor to a result, if there are no other operands and none of
    the intermediate nodes is computed; else None."""
    calls: list[Call] = []
    node = result
    while node is not source:
        operands, call = node.operands, node.call  # read in this order; see `settle`
        if call is None or len(operands) != 1:
            return None
        calls.append(call)
        node = operands[0]
    return tuple(calls[::-1])


def _on_values(op: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Value:
    """Applies an op to graph values, and to the index values of a key."""
    result: Value = getattr(OPS, op)(*[constant(x) if isinstance(x, np.ndarray) else x
                                       for x in args], **attrs)
    return result


def _gathering(parts: Sequence[Any], specs: Sequence[Spec]) -> Call:
    """The call for a key with these parts, where specs stand for index tensors."""
    def build(values: Sequence[Value]) -> Value:
        positions = iter(values[1:])
        key = tuple(next(positions) if isinstance(k, Spec) else
                    slice(*k) if type(k) is tuple else k for k in parts)
        result: Value = indexed(values[0], key, _on_values, lambda k: isinstance(k, Value))
        return result

    return one_call(("[]", tuple(parts)), "take", tuple(specs), build)
