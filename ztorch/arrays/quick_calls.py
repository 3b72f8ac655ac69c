"""Native functions that run a compiled program again.

Each is a C function with Python's calling convention. It matches nodes or trees of tensors, runs
the program on their memory, and creates the nodes or tensors of the results. So a repeated call
computes no structure, looks up no table and takes no lock.
"""

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

# The largest single result in a bytes object: C's allocator maps larger blocks anew each time.
MOST_BYTES = 120 << 10
# The same for each of several results, which together stay below the allocator's 128 KiB.
SEVERAL_BYTES = 1 << 15

MOST_CYCLES = 150_000  # the longest run that holds Python's lock: about 50 microseconds
MOST_SHARED_CYCLES = 800_000  # the same for a run that workers share: about 150 microseconds
MOST_STACK = 1 << 13  # the largest arena on the stack, in bytes
SETTLES = -1  # in place of the number of results: the results belong to the nodes passed in

# Takes operands and returns the result; NotImplemented for operands of other specs or structure.
Native = Callable[..., Any]


class Output(NamedTuple):
    """A result of a program."""

    spec: Spec
    cell: Cell | None = None  # the cell that it is stored in; None: it is returned to the user


def may_be_native(call: HostMemoryCall) -> bool:
    """Whether a native function may call a program: the program is short, or it needs one thread
    and its arena fits on the stack, so that two runs share no memory."""
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
        matching: How the function matches its arguments.
        outputs: The results of the program.
        pool: The memory of large results.
        tensor: The class of tensors. Default: `None`.
        building: The tree of tensors that the function returns. `None`: its arguments are the
            pending nodes of the results, and it returns True. Default: `None`.
    """
    library = python_calls()
    assert library is not None
    assert matching.inputs == len(call.function.inputs), "the program would read invalid addresses"
    arena_bytes = call.program.spec.arena_bytes
    stack = arena_bytes if arena_bytes <= MOST_STACK else 0
    code, params, _ = call.addresses
    arena = aligned(arena_bytes - stack)  # separate from the arena of runs under the program's lock
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
        if matching.arguments == 1:  # faster than unpacking arguments
            return lambda argument: native(argument, alloc())
        return lambda *args: native(*args, alloc())
    return lambda *args: native(*args, *[f() for f in large])
