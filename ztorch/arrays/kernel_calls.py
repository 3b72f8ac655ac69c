"""Kernels on tensors and arrays: each is recorded as one call, whose graph the kernel becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch.arrays.applying import common_memory
from ztorch.arrays.calls import Call
from ztorch.arrays.elements import array_of, node_from
from ztorch.arrays.node import TensorNode
from ztorch.arrays.placement import device
from ztorch.arrays.realize import realize
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.dtypes import f32, f64
from ztorch.errors import KernelError
from ztorch.graph.value import Value

CAPACITY = 1024  # kernels with their shapes that are kept
_COMPILED_IN = (bool, int, str, tuple, type(None))  # arguments that are no inputs

_calls: Recent[Any, tuple[Call, bool]] = Recent(CAPACITY)  # by kernel, shapes and dtypes


def on_kernel(kernel: Any, arguments: dict[str, Any], on: str | None = None) -> Any:
    """The results of a kernel: tensors if a tensor is among the arguments, else arrays.

    Args:
        kernel: The kernel.
        arguments: Tensors, arrays and numbers, by name.
        on: The device that arrays of NumPy go to. `None` means the default. Default: `None`.
    """
    if on is not None:
        with device(on):
            return on_kernel(kernel, arguments)
    inputs = {n: x for n, x in arguments.items() if not isinstance(x, _COMPILED_IN)}
    known = {n: x for n, x in arguments.items() if n not in inputs}
    name = f"kernel {kernel.source.name}"
    tensors = {n: x for n, x in inputs.items() if type(x) is not float}
    if not tensors:
        raise KernelError(f"{name} takes no tensor; it needs at least one array as an argument")
    place = common_memory(name, list(tensors), list(tensors.values()))
    of_tensors = any(isinstance(x, Tensor) for x in inputs.values())
    operands = [x if type(x) is float else node_from(x, None, place, copy=of_tensors)
                for x in inputs.values()]
    kinds = tuple(o.spec if isinstance(o, TensorNode) else type(o) for o in operands)
    # In text, 1 differs from 1.0 and True, also inside tuples.
    key = (kernel, kinds, tuple(inputs), repr(known))
    call = _calls.get(key)
    if call is None:
        single = [False]
        numbers = [n for n, o in zip(inputs, operands, strict=True) if type(o) is float]
        dtypes = [o.spec.dtype for o in operands if isinstance(o, TensorNode)]
        floating = f64 if f64 in dtypes else f32  # of Python's floats

        def build(values: Sequence[Value]) -> list[Value]:
            result = kernel.trace({**known, **dict(zip(inputs, values, strict=True))}, numbers)
            single[0] = not isinstance(result, tuple)
            return [result] if single[0] else list(result)

        made = Call(name, kinds, [o.spec.dtype if isinstance(o, TensorNode) else floating
                                  for o in operands], build, place)
        call = (made, single[0])
        _calls.put(key, call)
    nodes = record(call[0], tuple(operands))
    if not of_tensors:
        realize(nodes)
    finish = tensor_of if of_tensors else array_of
    return finish(nodes[0]) if call[1] else tuple(map(finish, nodes))
