"""Fast recording of indexing: `x[key]`.

The call of an earlier key is found by the parts of the key. Index tensors are operands of a single
call, however many ops the indexing needs. A few elements that are in the host's memory, and that
other keys would select the next time, are copied: no call is compiled for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ztorch.arrays.applying import recorded
from ztorch.arrays.calls import Call, one_call
from ztorch.arrays.cells import is_tracing
from ztorch.arrays.device_dtypes import nearest_dtype
from ztorch.arrays.elements import node_of_array, stored_array
from ztorch.arrays.exchange import dtype_of
from ztorch.arrays.indexing import indexed, varies
from ztorch.arrays.node import Handle, TensorNode, keeps_operands
from ztorch.arrays.quick_recording import INDEXING, Recorder, recorder
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record
from ztorch.arrays.specs import Spec, spec
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value

Compute = Callable[..., Any]  # compute(op, args, attrs) applies an op

_BOUNDS = (int, type(None))  # bounds of slices that are compared by value
_recorded: Recent[tuple[Any, ...], Call] = Recent(1 << 12)
MOST_COPIED = 1 << 16  # elements of a tensor of which some are copied rather than computed


def getter(tensor_of: Callable[[TensorNode], Any], compute: Compute
           ) -> Callable[[Handle, Any], Any]:
    """The method `__getitem__`, with a fast path for one integer or slice that was recorded before.

    Args:
        tensor_of: Creates a tensor from a node.
        compute: Applies an op to tensors.
    """
    quick: Recorder | None = None

    def __getitem__(self: Handle, key: Any) -> Any:
        nonlocal quick
        if quick is not None:
            kind = type(key)
            if kind is int:
                result = quick(self, key)
            elif kind is slice:
                result = quick(self, slice, key.start, key.stop, key.step)
            else:
                result = NotImplemented
            if result is not NotImplemented:
                return result
        quick = quick or recorder(INDEXING)
        return tensor_of(chosen(self, key, compute))

    return __getitem__


def chosen(x: Handle, key: Any, compute: Compute) -> TensorNode:
    """The elements of a tensor that a key selects.

    Args:
        x: The tensor.
        key: The index expression in the brackets.
        compute: Applies an op to tensors.
    """
    node = x.node
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
                d = nearest_dtype(node.spec.memory, dtype_of(k.dtype))
                token.append(spec(k.shape, d, node.spec.memory))
                operands.append(node_of_array(k, d, node.spec.memory, copy=True))
                continue
        copied = _copied(node, key) if _is_mask(k) and k is key else None
        return copied or _node(indexed(x, key, compute, _is_handle))
    place = tuple(token)
    call = _recorded.get(place)
    if call is None:
        if len(operands) == 1:
            pattern = node.spec, tuple(map(type, place))
            if varies(pattern, place) and (copied := _copied(node, key)) is not None:
                return copied
            result = _node(indexed(x, key, compute, _is_handle))
            if is_tracing() or not _is_static(node, result):
                return result
        call = _gathering(place[1:], [o.spec for o in operands])
        _recorded.put(place, call)
        if call.quick and type(key) in (int, slice):
            parts = [key] if type(key) is int else [slice, key.start, key.stop, key.step]
            recorded.put((INDEXING, node.spec, *[(type(p), p) for p in parts]), call)
    result, = record(call, tuple(operands))
    return result


def _is_mask(k: Any) -> bool:
    return (isinstance(k, Handle) and k.node.spec.dtype.kind == "b" and k.node.spec.memory == "cpu"
            ) or (type(k) is np.ndarray and k.dtype == bool)


def _copied(node: TensorNode, key: Any) -> TensorNode | None:
    """A copy of the elements that integers and slices, or an array of bools, select in the host's
    memory; None where they are many, not computed, or part of a function."""
    own = node.spec
    if node.block is None or own.memory != "cpu" or own.size > MOST_COPIED or is_tracing() or (
            keeps_operands()):
        return None
    if isinstance(key, Handle):
        key = stored_array(key.node)
    try:
        elements = (_marked(stored_array(node), key) if type(key) is np.ndarray else
                    np.array(stored_array(node)[key], order="C"))
    except IndexError:
        return None  # the general path raises the error
    return node_of_array(elements, own.dtype, own.memory, copy=False)


def _marked(elements: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The elements that bools mark along the first axes. NumPy tests a bool at a time where they
    are the index, but finds their positions without branches."""
    axes = mask.ndim
    if not axes or mask.shape != elements.shape[:axes]:
        raise IndexError
    rows = elements.reshape(mask.size, *elements.shape[axes:])
    marked: np.ndarray = rows.take(mask.reshape(-1).nonzero()[0], axis=0)
    return marked


def _is_handle(x: Any) -> bool:
    return isinstance(x, Handle)


def _node(x: Handle) -> TensorNode:
    return x.node


def _is_static(source: TensorNode, result: TensorNode) -> bool:
    """Whether calls without other operands lead from one tensor to a result, and none of the
    intermediate nodes is computed."""
    node = result
    while node is not source:
        operands, call = node.operands, node.call  # read in this order; see `settle`
        if call is None or len(operands) != 1:
            return False
        node = operands[0]
    return result is not source


def _on_values(op: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Value:
    """Applies an op to graph values, and to the index values of a key."""
    result: Value = getattr(OPS, op)(*[constant(x) if isinstance(x, np.ndarray) else x
                                       for x in args], **attrs)
    return result


def _gathering(parts: Sequence[Any], specs: Sequence[Spec]) -> Call:
    """The call for a key with these parts; specs represent index tensors."""
    def build(values: Sequence[Value]) -> Value:
        positions = iter(values[1:])
        key = tuple(next(positions) if isinstance(k, Spec) else
                    slice(*k) if type(k) is tuple else k for k in parts)
        result: Value = indexed(values[0], key, _on_values, lambda k: isinstance(k, Value))
        return result

    name = "take" if len(specs) > 1 else "slice"
    return one_call(("[]", tuple(parts)), name, tuple(specs), build)
