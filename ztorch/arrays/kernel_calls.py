"""Kernels on tensors and arrays: each is recorded as one call, whose graph the kernel becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch.arrays.applying import common_memory
from ztorch.arrays.calls import Call
from ztorch.arrays.elements import array_of, node_from
from ztorch.arrays.node import TensorNode
from ztorch.arrays.realize import realize
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.errors import KernelError
from ztorch.graph.value import Value

CAPACITY = 1024  # kernels with their shapes that are kept
_COMPILED_IN = (bool, int, str, tuple, type(None))  # arguments that are no inputs

_calls: Recent[Any, tuple[Call, bool]] = Recent(CAPACITY)  # by kernel, shapes and dtypes


def on_kernel(kernel: Any, arguments: dict[str, Any]) -> Any:
    """The results of a kernel: tensors if a tensor is among the arguments, else arrays.

    Args:
        kernel: The kernel.
        arguments: Tensors, arrays and numbers, by name.
    """
    inputs = {n: x for n, x in arguments.items() if not isinstance(x, _COMPILED_IN)}
    known = {n: x for n, x in arguments.items() if n not in inputs}
    name = f"kernel {kernel.source.name}"
    place = common_memory(name, list(inputs), list(inputs.values()))
    of_tensors = any(isinstance(x, Tensor) for x in inputs.values())
    operands = [node_from(x, None, place, copy=of_tensors) for x in inputs.values()]
    if not inputs:
        raise KernelError(f"{name} takes no tensor; it needs at least one array as an argument")
    kinds = tuple(o.spec if isinstance(o, TensorNode) else type(o) for o in operands)
    key = (kernel, kinds, tuple(inputs), tuple((n, type(x), x) for n, x in known.items()))
    call = _calls.get(key)
    if call is None:
        single = [False]

        def build(values: Sequence[Value]) -> list[Value]:
            result = kernel.trace({**known, **dict(zip(inputs, values, strict=True))})
            single[0] = not isinstance(result, tuple)
            return [result] if single[0] else list(result)

        made = Call(name, kinds, [o.spec.dtype for o in operands], build, place)
        call = (made, single[0])
        _calls.put(key, call)
    nodes = record(call[0], tuple(operands))
    if not of_tensors:
        realize(nodes)
    finish = tensor_of if of_tensors else array_of
    return finish(nodes[0]) if call[1] else tuple(map(finish, nodes))
