"""The weights of programs as tensors on the program's device."""

from __future__ import annotations

from typing import Any

from ztorch.arrays.elements import moved, node_from
from ztorch.arrays.memory import HostPool, memory, place_of
from ztorch.arrays.node import computed
from ztorch.arrays.placement import memory_of
from ztorch.arrays.realize import realize
from ztorch.arrays.specs import spec
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.dtypes import dtype
from ztorch.errors import WeightsError


def weight(program: Any, name: str) -> Tensor:
    """The current value of a weight: shared or copied on the device. Further training does not
    change the tensor."""
    executable, place = program.executable, memory_of(program.device)
    state, pool = executable.states[name], memory(place)
    lent = executable.shared_state(name)
    if lent is not None and isinstance(pool, HostPool):
        block = pool.lend(lent)
        assert block is not None  # its bytes are contiguous
    else:
        block = pool.alloc(state.nbytes)
        executable.copy_state_to(name, place_of(block))
    return tensor_of(computed(spec(tuple(state.shape), dtype(state.dtype), place), block))


def set_weight(program: Any, name: str, value: Any) -> None:
    """Sets a weight to an array or to a tensor on any device. A tensor on the program's device is
    copied there directly."""
    state, place = program.executable.states[name], memory_of(program.device)
    tensor = tensor_of(node_from(value, None, None, copy=False))
    if tensor.shape != tuple(state.shape):
        raise WeightsError(f"{name} has shape {tuple(state.shape)}, not {tensor.shape}")
    node = moved(tensor.astype(dtype(state.dtype)).node, place)
    realize([node])
    assert node.block is not None
    program.executable.copy_state_from(name, place_of(node.block))
