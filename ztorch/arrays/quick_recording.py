"""Records repeated calls of ops with a native function for each op. It builds the key of the call,
looks it up in the table, and creates the pending nodes and their tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ztorch.arrays.applying import recorded
from ztorch.arrays.calls import Call, tensor_places
from ztorch.arrays.node import Handle, TensorNode
from ztorch.arrays.recording import MAX_DEPTH, eager
from ztorch.backends.python_calls import has_python_functions, recording_function, slot_offsets
from ztorch.compile.python_calls import python_calls

INDEXING = "[]"  # in place of an op's name: one integer, or `slice` and its three bounds
BITS = 64  # bits of the mask of operands; the last bit is for all further arguments

# Takes the arguments of an op, returns a tensor or a tuple; NotImplemented: use the general path.
Recorder = Callable[..., Any]

_tensor: list[type[Handle]] = []  # the class of tensors
_requested: set[str] = set()  # ops that were called before


def set_tensor(tensor: type[Handle]) -> None:
    """Sets the class of the tensors that recorders create."""
    _tensor.append(tensor)


def recorder(name: str) -> Recorder | None:
    """The native function for an op; None if there is none, and at the first request, because a
    program that calls an op once does not need it.

    Args:
        name: The op.
    """
    if name in _requested:
        return _recorder(name)
    _requested.add(name)
    return None


@functools.cache
def _recorder(name: str) -> Recorder | None:
    positions, rest, _ = tensor_places(name) if name != INDEXING else ((0,), BITS, ())
    places = sum(1 << k for k in range(BITS) if k in positions or k >= rest)
    return recorder_of(recorded.newest, name, places, rest == 0)


def recorder_of(table: dict[Any, Call], name: Any, places: int, unpacks: bool = False
                ) -> Recorder | None:
    """The native function that records the calls of a table; None if there is none.

    Args:
        table: The calls by their keys.
        name: The first part of the keys.
        places: A mask: bit k is set if argument k is an operand, even if it is a number.
        unpacks: Whether a single list argument is unpacked. Default: `False`.
    """
    library = python_calls() if has_python_functions() else None
    if library is None:
        return None
    node, call = slot_offsets(TensorNode), slot_offsets(Call)
    numbers = {
        "places": places - (places >> BITS - 1 << BITS), "unpacks": unpacks,
        "most_depth": MAX_DEPTH, "tensor_node": slot_offsets(Handle)["node"],
        **{f"call_{slot}": call[slot] for slot in ("quick", "single", "result", "results")},
        **{f"node_{slot}": at for slot, at in node.items()}}
    objects = {"table": table, "name": name, "eager": eager, "node_type": TensorNode,
               "tensor_type": _tensor[0]}
    return recording_function(library, numbers, objects, (*objects.values(),))
