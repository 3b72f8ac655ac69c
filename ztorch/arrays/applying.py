"""Applies ops to tensors: finds the call for the given arguments and records it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from ztorch import dispatch, ops
from ztorch.arrays.calls import NUMBERS, Call, bind, call_for, tensor_places
from ztorch.arrays.complex_dtypes import holds_complex
from ztorch.arrays.elements import array_of, node_of_spec, operand_of
from ztorch.arrays.node import Handle, TensorNode
from ztorch.arrays.placement import default_device, memory_of
from ztorch.arrays.realize import realize
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record
from ztorch.arrays.specs import Spec
from ztorch.errors import DeviceError
from ztorch.graph.op import ALIASES
from ztorch.graph.value import Value
from ztorch.ops import signature

# Calls by the arguments they were recorded with. Operators on tensors check this table first.
recorded: Recent[tuple[Any, ...], Call] = Recent(1 << 12)
_transfers: ContextVar[bool] = ContextVar("transfers", default=False)


def apply(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """Applies an op to tensors and numbers.

    Args:
        name: The op.
        args: Its positional arguments.
        attrs: Its keyword arguments.

    Returns:
        A node, or a list of nodes if the op has several results. If an argument is a value of a
        graph, the result of the op on that value.
    """
    key, operands, has_tensors, has_arrays = _sorted(name, args, attrs)
    call = _remembered(key)
    if call is None:
        return _apply_first(name, args, attrs, key)
    return _recorded(call, placed(call, operands, has_tensors) if has_arrays else operands)


def apply_again(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The result of `apply_to_arrays` if one argument is a tensor or an array, and the op was
    applied to arguments of the same kinds before; else None."""
    for x in args:
        if type(x) is np.ndarray or isinstance(x, (Handle, list, tuple)):
            key, operands, has_tensors, has_arrays = _sorted(name, args, attrs)
            call = _remembered(key) if has_tensors or has_arrays else None
            if call is None:
                return None
            if has_arrays:
                operands = placed(call, operands, copy=has_tensors)
            result = _recorded(call, operands)
            return result if has_tensors else _as_arrays(result)
    return None


# The arguments of an op, sorted as far as possible without its signature: the key of their call
# (None if the call must not be cached), the operands (nodes of tensors, arrays, numbers), whether
# one of them is a tensor, and whether one is a NumPy array.
_Sorted = tuple[tuple[Any, ...] | None, list[Any], bool, bool]


def _sorted(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> _Sorted:
    has_tensors = has_arrays = False
    operands: list[Any] = []
    key: list[Any] = [name]
    positions, rest, names = tensor_places(name)
    if len(args) == rest + 1 and isinstance(args[rest], (list, tuple)):
        args = (*args[:rest], *args[rest])  # a single list of tensors is unpacked
    for k, x in enumerate(args):
        if isinstance(x, Handle):
            node = x.node
            has_tensors = True
            key.append(node.spec)
            operands.append(node)
        elif k not in positions and k < rest:
            key.append((type(x), x))
        elif type(x) in NUMBERS:
            key.append(type(x))
            operands.append(x)
        elif type(x) is np.ndarray or isinstance(x, np.generic):
            has_arrays = True
            key.append((x.dtype, x.shape))
            operands.append(np.asarray(x))
        else:
            return None, operands, has_tensors, has_arrays
    for label, x in attrs.items():
        if isinstance(x, Handle) or (label in names and x is not None):
            return None, operands, has_tensors, has_arrays  # an operand passed by name
        key.append((label, type(x), x))
    if not has_tensors:
        key.append(memory_of(default_device()))
    return tuple(key), operands, has_tensors, has_arrays


def _remembered(key: tuple[Any, ...] | None) -> Call | None:
    """The cached call of a key, or None."""
    try:
        return None if key is None else recorded.get(key)
    except TypeError:  # a list is not hashable
        return None


def placed(call: Call, operands: Sequence[Any], copy: bool) -> list[Any]:
    """The operands of a call, with nodes for arrays. With `copy`, arrays are copied: the call runs
    later, and they may change before that."""
    return [node_of_spec(x, s, copy) if type(x) is np.ndarray and isinstance(s, Spec) else x
            for x, s in zip(operands, call.operands, strict=True)]


def _recorded(call: Call, operands: Sequence[Any]) -> Any:
    nodes = record(call, tuple(operands))
    return nodes[0] if call.single else nodes


def _apply_first(name: str, args: tuple[Any, ...], attrs: dict[str, Any],
                 key: tuple[Any, ...] | None) -> Any:
    """Binds the arguments of an op to its signature, and cache the call under a key."""
    if any(map(holds_complex, (*args, *attrs.values()))):
        return dispatch.on_complex(name, args, attrs)
    name = ALIASES.get(name, name)
    bound = bind(name, args, attrs)
    if any(isinstance(x, Value) for x in bound.operands):
        return getattr(ops, name)(*args, **attrs)  # in a model, tensors are constants
    place = common_memory(f"zt.ops.{name}", bound.labels, bound.operands)
    later = any(isinstance(x, Handle) for x in bound.operands)  # arrays may change
    operands = tuple(
        _number(x) if weak and isinstance(x, NUMBERS) and not isinstance(x, np.generic) else
        operand_of(f"zt.ops.{name}: {label}", x, place, copy=later, index=not weak)
        for label, x, weak in zip(bound.labels, bound.operands, bound.takes_numbers(), strict=True))
    kinds = tuple(o.spec if isinstance(o, TensorNode) else type(o) for o in operands)
    call = call_for(bound, kinds, place)
    zeros = any(isinstance(x, float) and x == 0 for x in bound.attributes.values())
    moves = any(isinstance(x, Handle) and x.node.spec.memory != place for x in bound.operands)
    # A number that becomes a tensor becomes a new one at each call, and so do narrowed positions.
    converts = any(isinstance(o, TensorNode) and (type(x) in NUMBERS or (
                       isinstance(x, np.ndarray) and x.itemsize > o.spec.dtype.bytes))
                   for x, o in zip(bound.operands, operands, strict=True))
    if key is not None and not (zeros or moves or converts):  # 0.0 and -0.0 are equal as keys
        with contextlib.suppress(TypeError):  # a list is not hashable
            recorded.put(key, call)
    return _recorded(call, operands)


def _number(x: Any) -> Any:
    """A plain Python number for an instance of a subclass."""
    return x if type(x) in NUMBERS else float(x) if isinstance(x, float) else int(x)


@contextlib.contextmanager
def allow_transfers() -> Iterator[None]:
    """In a `with` block, let ops copy tensors to the device of their first tensor operand.

    Examples:
        >>> import ztorch as zt
        >>> with zt.allow_transfers():
        ...     print(zt.tensor([1.0], device="cpu") + zt.tensor([2.0]))
        [3.]
    """
    token = _transfers.set(True)
    try:
        yield
    finally:
        _transfers.reset(token)


def common_memory(name: str, labels: Sequence[str], operands: Sequence[Any],
                  on: str | None = None) -> str:
    """The memory that a function computes in: the memory of its tensors, or the default memory.

    Args:
        name: The function's name, for the error.
        labels: The names of its arguments, for errors.
        operands: The arguments; some are tensors.
        on: The device that the user asks for, if any. Default: `None`.

    Raises:
        DeviceError: The tensors are on several devices, outside of `allow_transfers`.
    """
    places = [(x.node.spec.memory, label) for label, x in zip(labels, operands, strict=True)
              if isinstance(x, Handle)]
    if on is not None:
        places.insert(0, (memory_of(on), "it"))
    if not places:
        return memory_of(default_device())
    first, label = places[0]
    if not _transfers.get():
        for place, other in places:
            if place != first:
                raise DeviceError(f"{name}: {label} is on {first} and {other} on {place}; copy "
                                  f"one with .to({first!r}), or use zt.allow_transfers()")
    return first


def apply_to_arrays(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The results of an op on users' arguments: nodes if one of them is a tensor, or if the op
    takes no tensors; else NumPy arrays."""
    result = apply(name, args, attrs)
    has_tensors = any(isinstance(x, Handle) for x in _flat((*args, *attrs.values())))
    return result if has_tensors or not signature(name)[1] else _as_arrays(result)


def _as_arrays(result: Any) -> Any:
    """The arrays of one node or of several."""
    if isinstance(result, TensorNode):
        return array_of(result)
    if isinstance(result, list) and all(isinstance(n, TensorNode) for n in result):
        realize(result)
        return tuple(map(array_of, result))
    return result  # a value of a model that is being traced


def _flat(arguments: Iterable[Any]) -> Iterator[Any]:
    for x in arguments:
        if isinstance(x, (list, tuple)):
            yield from _flat(x)
        else:
            yield x
