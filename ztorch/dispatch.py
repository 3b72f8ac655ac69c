"""Hooks through which rooms below the compiler call rooms above it, to record, compile and run
tensor operations.

Ops, optimizers and layers may not import `arrays/`, and drivers may not import `library/`: both are
above the compiler. They call these functions instead. `ztorch/__init__.py`, the only file that may
import every room, sets them when the package is imported.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing takes longer to import than all our modules of a cold start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

def on_tensors(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The result of an op on tensors, if it was applied to such tensors before; else None. While no
    tensors exist, there is nothing to find. `arrays/` replaces this."""
    return None


def recorder(name: str) -> Any:
    """The native function that records an op on tensors, or None. `arrays/` replaces this."""
    return None


def need_known(label: str) -> None:
    """Raises an error where a function is being compiled, which would keep the numbers of what
    `label` names for ever. `arrays/` replaces this."""


def call_again(layer: Any, inputs: tuple[Any, ...], keywords: dict[str, Any], context: Any) -> Any:
    """The output of a layer, if this repeats an earlier call on a tensor or an array; else None.
    `arrays/` replaces this."""
    return None


on_arrays: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]  # an op, its arguments -> results
on_complex: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]  # the same, for complex numbers
function_of_tensors: Callable[[str], Any]  # a name of `zt.ops` -> the function
on_loop: Callable[..., Any]  # "scan", "while_loop" or "cond", its arguments -> its results
on_kernel: Callable[..., Any]  # a kernel, its arguments by name, a device -> its results
on_known_kernel: Callable[..., Any]  # a kernel, arguments by place, by name -> results or None
grad: Callable[[Any, Any], Any]  # a function, its arguments' numbers -> a function
schedules_of: Callable[..., list[str]]  # a name, the results of a kernel, a device -> sentences
array_namespace: Callable[[str | None], Any]  # a version of the array API -> the module
update: Callable[[Any, Any, Any], Any]  # an optimizer, parameters, gradients -> parameters
optimizer_state: Callable[[Any], Any]  # an optimizer -> the states that `update` keeps
set_optimizer_state: Callable[[Any, Any], None]  # an optimizer, its states
call_layer: Callable[..., Any]  # a layer, its inputs, training= -> its output
on_numbers: Callable[..., Any]  # a name, a key, a function of values, operands -> its results
stateless_call: Callable[[Any, Any, Any, Any, bool | None], Any]  # layer, weights, inputs, training
weight_tensor: Callable[[Any], Any]  # a weight of a layer -> a tensor of its value
on_weights: Callable[..., Any]  # a name of an op, arguments with weights, attributes -> its result
constant: Callable[[Any], Any]  # a tensor beside symbolic ones -> an array; no value of a weight
apply_gradients: Callable[[Any, Any, Any], None]  # an optimizer, gradients, weights of layers
added_losses: Callable[[Any], list[Any]]  # a layer -> the losses that its last call added
reset_states: Callable[[Any], None]  # a layer
from_library: Callable[[str], Any]  # a public name of `library/` -> its object
call_function: Callable[[Any, Any], Any]  # loaded code, arguments by port -> outputs by port
predict: Callable[[Any, Any], Any]  # a program, tensors -> its outputs by port
feed: Callable[[Any, Any], Any]  # a program, x -> a feed of its tensors; None: x has no tensors
row_gather: Callable[..., Any]  # a device, columns, counts -> a program that gathers rows
encode: Callable[[Any, Any, Any], Any]  # a host layer, input, keywords -> symbolic value or None
serialize: Callable[[Any], Any]  # a layer, loss ... -> its description
deserialize: Callable[..., Any]  # a description, custom_objects= -> a layer, loss ...
setting: Callable[[str], Any]  # a name of `keras.config` -> the function
save_onnx: Callable[..., None]  # a model, a path, batch_size=, dtype=, sizes=
weight: Callable[[Any, str], Any]  # a program, the name of a weight -> a tensor
set_weight: Callable[[Any, str, Any], None]  # a program, the name of a weight, its new value


def is_tensor(x: Any) -> bool:
    """Whether x is a `zt.Tensor`, or a list or dict of them. Does not import the class while no
    tensor exists.

    >>> is_tensor([1.0, 2.0])
    False
    """
    module = sys.modules.get("ztorch.arrays.tensor")
    if module is None:
        return False
    if isinstance(x, (list, tuple, dict)):
        parts = list(x.values()) if isinstance(x, dict) else x
        return bool(parts) and all(isinstance(part, module.Tensor) for part in parts)
    return isinstance(x, module.Tensor)
