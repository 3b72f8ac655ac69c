"""Programs that ran before, as native functions of Python's own kind: they look at nodes or trees
of tensors, run on the memory of those, and make what users hold of the results. No structure, no
table, no lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ztorch.arrays.cells import Cell
from ztorch.arrays.memory import Allocation, Pool
from ztorch.arrays.node import Handle, TensorNode
from ztorch.arrays.specs import Spec
from ztorch.backends.matching import Building, Matching
from ztorch.backends.python_calls import (
    bytes_object_size,
    has_python_functions,
    python_function,
    slot_offsets,
)
from ztorch.compile.python_calls import python_calls
from ztorch.host.memory import aligned
from ztorch.runtime.executable import HostMemoryCall

# Of a result that is in a bytes object: from 128 KiB on, C's allocator maps each block again.
MOST_BYTES = 120 << 10
# Limit of each of several results: above 128 KiB, C's allocator returns freed memory to the system.
SEVERAL_BYTES = 1 << 15

MOST_CYCLES = 150_000  # that other threads of Python wait: some 50 microseconds
MOST_SHARED_CYCLES = 800_000  # the same of a run that workers share: some 150 microseconds
MOST_STACK = 1 << 13  # bytes of memory to work in that are on the stack, as small arrays of C do
SETTLES = -1  # instead of a number of results: they are those of the nodes that it is given

# Takes operands, and returns the result; NotImplemented for those that it was not compiled for.
Native = Callable[..., Any]


class Output(NamedTuple):
    """A result of a program."""

    spec: Spec
    cell: Cell | None = None  # which refers to it from now on, if it is not a result of a user's


def may_be_native(call: HostMemoryCall) -> bool:
    """Whether a program may be called by a native function: it is short, or it needs one thread and
    no two runs of it work in the same memory."""
    short = call.function.cycles <= (MOST_CYCLES if call.is_single_threaded else MOST_SHARED_CYCLES)
    return has_python_functions() and (
        short or (call.is_single_threaded and call.program.spec.arena_bytes <= MOST_STACK)
    ) and python_calls() is not None


def native_call(call: HostMemoryCall, matching: Matching, outputs: Sequence[Output], pool: Pool,
                tensor: type[Handle] | None = None, building: Building | None = None
                ) -> Native:
    """A program as a native function.

    Args:
        call: The program; `may_be_native` holds, and its inputs are in the order of the matching.
        matching: How the function looks at its arguments.
        outputs: The results of the program.
        pool: The memory of large results.
        tensor: The class of tensors. Default: `None`.
        building: The tree that it returns, of tensors; `None`: its arguments are the nodes of the
            results, and it returns True. Default: `None`.
    """
    library = python_calls()
    assert library is not None
    assert matching.inputs == len(call.function.inputs), "else it reads what is not memory"
    room = call.program.spec.arena_bytes
    stack = room if room <= MOST_STACK else 0
    code, params, _ = call.addresses
    arena = aligned(room - stack)  # which those that run the program under its lock do not use
    most = MOST_BYTES if len(outputs) == 1 else SEVERAL_BYTES
    sizes = [o.spec.nbytes for o in outputs]
    table = [word for o, n in zip(outputs, sizes, strict=True)
             for word in (bytes_object_size(n) if n <= most else 0, id(o.spec), id(o.cell))]
    long = call.is_single_threaded and call.function.cycles > MOST_CYCLES
    sharing = None if long else call.sharing()
    node, build = slot_offsets(TensorNode), building or Building()
    numbers = {
        "code": code, "params": params, "arena": arena.__array_interface__["data"][0],
        "sharing": 0 if sharing is None else sharing.ctypes.data,
        "stack": stack, "inputs": matching.inputs, "outputs": len(outputs),
        "entries": matching.entries, "given": matching.arguments, "steps": len(matching.words) // 3,
        "results": SETTLES if building is None else sum(o.cell is None for o in outputs),
        "builds": len(build.words) // 3, **{f"node_{name}": at for name, at in node.items()},
        "tensor_node": slot_offsets(Handle)["node"], "cell_node": slot_offsets(Cell)["node"],
        "block_place": slot_offsets(Allocation)["place"]}
    owner = (call, arena, sharing, matching.objects, build.objects, [*outputs])
    native = python_function(library, numbers, {"node_type": TensorNode, "tensor_type": tensor},
                             long, [*table, *matching.words, *build.words], owner)
    large = [pool.allocator(n) for n in sizes if n > most]
    if not large:
        return native
    if len(large) == 1:
        alloc, = large
        if matching.arguments == 1:  # which takes less time
            return lambda argument: native(argument, alloc())
        return lambda *args: native(*args, alloc())
    return lambda *args: native(*args, *[f() for f in large])
