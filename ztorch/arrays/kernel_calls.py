"""Kernels on tensors and arrays. Each is recorded as one call with the kernel in its graph."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.arrays.applying import common_memory, placed
from ztorch.arrays.calls import Call
from ztorch.arrays.elements import array_of, node_from
from ztorch.arrays.node import TensorNode
from ztorch.arrays.placement import default_device, device
from ztorch.arrays.quick_recording import BITS, recorder_of
from ztorch.arrays.realize import realize
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.dtypes import f32, f64
from ztorch.errors import KernelError
from ztorch.graph.value import Value
from ztorch.kernels.source import DefaultNumber

CAPACITY = 1024  # cached kernels with their shapes
ALL_OPERANDS = (1 << BITS) - 1  # a bit for each argument
_PLAIN = {bool, int, str, type(None)}
# types of arguments that are not inputs
_COMPILED_IN = (bool, int, str, tuple, type(None), DefaultNumber)

_calls: Recent[Any, Call] = Recent(CAPACITY)  # by kernel, shapes and dtypes
_written: Recent[Any, Call] = Recent(CAPACITY)  # by calls as the user wrote them


def on_known_kernel(kernel: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The results of a kernel, if it was called in the same way before; else None. This fast path
    does not bind the kernel's parameters.

    Args:
        kernel: The kernel.
        args: The positional arguments of a call.
        named: Its keyword arguments.
    """
    written = _as_written(kernel, args, named)
    call = None if written is None else _written.get(written[0])
    if written is None or call is None:
        return None
    if not any(type(x) is TensorNode for x in written[1]):
        return _arrays(call, placed(call, written[1], copy=False))
    if kernel.recorder is None and call.quick and all(map(_is_operand, args)):
        kernel.recorder = recorder_of(_written.newest, kernel, ALL_OPERANDS)
    return _results(call, tuple(written[1]))


def _is_operand(x: Any) -> bool:
    return type(x) is Tensor or type(x) is float


def _as_written(kernel: Any, args: tuple[Any, ...], named: dict[str, Any]
                ) -> tuple[tuple[Any, ...], list[Any]] | None:
    """The key of a call in `_written`, and its operands; None if it is not cached by key."""
    operands: list[Any] = []
    key: list[Any] = [kernel, *named]
    for x in (*args, *named.values()) if named else args:
        kind = type(x)
        if kind is Tensor:
            operands.append(x.node)
            key.append(x.node.spec)
        elif kind is np.ndarray:
            operands.append(x)
            key += (x.dtype, x.shape)
        elif kind is float:
            operands.append(x)
            key.append(kind)
        elif kind in _PLAIN:
            key.append((kind, x))
        else:
            return None
    if not any(type(x) is TensorNode for x in operands):
        key.append(default_device())  # of which arrays say nothing
    return tuple(key), operands


def _results(call: Call, operands: tuple[Any, ...]) -> Any:
    nodes = record(call, operands)
    return tensor_of(nodes[0]) if call.single else tuple(map(tensor_of, nodes))


def _arrays(call: Call, operands: Sequence[Any]) -> Any:
    nodes = record(call, tuple(operands))
    realize(nodes)
    return array_of(nodes[0]) if call.single else tuple(map(array_of, nodes))


def on_kernel(kernel: Any, arguments: dict[str, Any], on: str | None = None,
              written: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
              within: str | None = None) -> Any:
    """The results of a kernel: tensors if an argument is a tensor, else arrays.

    Args:
        kernel: The kernel.
        arguments: Tensors, arrays and numbers, by name.
        on: The device; `None` means that of the tensors, or the default one. Default: `None`.
        written: The positional and keyword arguments as the user passed them, to cache the call for
            `on_known_kernel`. Default: `None`.
        within: The device of a `zt.device` block around this, which `on` made. Default: `None`.
    """
    if on is not None:
        with device(on):
            return on_kernel(kernel, arguments, within=on)
    inputs = {n: x for n, x in arguments.items() if not isinstance(x, _COMPILED_IN)}
    settings = {n: x for n, x in arguments.items() if n not in inputs}
    name = f"kernel {kernel.source.name}"
    tensors = {n: x for n, x in inputs.items() if type(x) is not float}
    for n, x in tensors.items():
        if isinstance(x, type) or (not hasattr(x, "shape") and not isinstance(x, list)
                                   and np.asarray(x).dtype == object):
            raise KernelError(f"{name}: {n} is {x!r}; arguments are arrays, numbers, strings and "
                              "tuples")
    place = common_memory(name, list(tensors), list(tensors.values()), within)
    of_tensors = any(isinstance(x, Tensor) for x in inputs.values())
    operands = [x if type(x) is float else node_from(x, None, place, of_tensors, f"{name}: {n}")
                for n, x in inputs.items()]
    kinds = tuple(o.spec if isinstance(o, TensorNode) else type(o) for o in operands)
    # In text, 1 differs from 1.0 and True, also inside tuples.
    key = (kernel, kinds, tuple(inputs), repr(settings))
    call = _calls.get(key)
    if call is None:
        numbers = [n for n, o in zip(inputs, operands, strict=True) if type(o) is float]
        dtypes = [o.spec.dtype for o in operands if isinstance(o, TensorNode)]
        floating = f64 if f64 in dtypes else f32  # the dtype of Python floats

        def build(values: Sequence[Value]) -> Any:
            return kernel.trace({**settings, **dict(zip(inputs, values, strict=True))}, numbers)

        call = Call(name, kinds, [o.spec.dtype if isinstance(o, TensorNode) else floating
                                  for o in operands], build, place)
        _calls.put(key, call)
    spelling = _as_written(kernel, *written) if written and (of_tensors or place == "cpu") else None
    if spelling is not None:
        own = operands if of_tensors else [*inputs.values()]
        if len(spelling[1]) == len(own) and all(map(operator.is_, spelling[1], own)):
            _written.put(spelling[0], call)
    return _results(call, tuple(operands)) if of_tensors else _arrays(call, operands)
