"""One op, or a compiled function, on computed tensors of the CPU, run at once: no structure, no
table, no lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ztorch.arrays.memory import Allocation, Block, Pool
from ztorch.arrays.node import TensorNode
from ztorch.backends.python_calls import has_python_functions, python_function, room_for
from ztorch.compile.python_calls import python_calls
from ztorch.host.memory import aligned
from ztorch.runtime.executable import HostMemoryCall

# Of a result that lies in a bytes object: from 128 KiB on, C's allocator maps each block anew.
MOST_BYTES = 120 << 10

MOST_CYCLES = 150_000  # that other threads of Python wait: some 50 microseconds
MOST_STACK = 1 << 13  # bytes of memory to work in that lie on the stack, as small arrays of C do
# Of one of several results that lies in a bytes object: Python fills it with zeros first, so that
# a pool gives more bytes in less time.
FILLED_BYTES = 1 << 13

Native = Callable[..., Any]
Alloc = Callable[[], Allocation] | None  # for the result; None if the native function makes it
Numbers = tuple[tuple[int, Any], ...]  # with their places among the operands
# The operands of a call -> a block with its result; None if its numbers are others now. Raises
# AttributeError if an operand is not computed.
Quick = Callable[[tuple[Any, ...]], Block | None]
# Addresses of inputs, or bytes objects -> the only result if that is small, else blocks with all of
# them.
Whole = Callable[..., Any]


def quick_call(call: HostMemoryCall, operands: tuple[Any, ...], nbytes: int,
               pool: Pool) -> Quick | None:
    """How to run the program of one call without a lock; None if it must not be.

    Args:
        call: The program, which reads the tensors in the order of the operands.
        operands: The nodes and numbers that it was compiled for.
        nbytes: The size of its result.
        pool: Where large results lie.
    """
    numbers = tuple((k, o) for k, o in enumerate(operands) if type(o) is not TensorNode)
    if any(n == 0 for _, n in numbers):  # 0.0 and -0.0 would be one
        return None
    small = nbytes <= MOST_BYTES
    native = _native(call, nbytes if small else 0)
    if native is None:
        return None
    alloc = None if small else pool.allocator(nbytes)
    tensors = [k for k, o in enumerate(operands) if type(o) is TensorNode]
    if len(operands) == 1 and tensors:
        return _of_one(native, alloc)
    if len(operands) == 2 and tensors:
        if numbers:
            return _of_tensor_and_number(native, alloc, *numbers[0])
        return _of_two(native, alloc)
    return _of_all(native, alloc, numbers, tensors)


def quick_function(call: HostMemoryCall, sizes: Sequence[int], pool: Pool) -> Whole | None:
    """How to run a program of several calls without a lock; None if it must not be.

    Args:
        call: The program.
        sizes: Of its results, in bytes.
        pool: Where results lie, but for a single small one.
    """
    returned = sizes[0] if len(sizes) == 1 and sizes[0] <= MOST_BYTES else 0
    native = _native(call, returned)
    if native is None or returned:
        return native
    run = native
    make = [partial(bytes, room_for(n)) if n <= FILLED_BYTES else pool.allocator(n) for n in sizes]

    def run_all(*places: Any) -> list[Block]:
        results: list[Any] = [f() for f in make]
        run(*places, *[b if type(b) is bytes else b.place for b in results])
        return results

    return run_all


def _native(call: HostMemoryCall, returned: int) -> Native | None:
    """A program as a function of Python's own; None if it must not be called so.

    Args:
        call: The program.
        returned: The size of its only result if the function is to return that, else 0.
    """
    shared = call.function.cycles > MOST_CYCLES
    room = call.program.spec.arena_bytes
    stack = room if room <= MOST_STACK else 0
    if call.workers > 1 or not has_python_functions() or (
            shared and room > stack):  # two runs would work in the same memory
        return None
    library = python_calls()
    if library is None:
        return None
    code, params, _ = call.addresses
    arena = aligned(room - stack)  # which those that run the program under its lock do not use
    place = arena.__array_interface__["data"][0]
    return python_function(library, (code, params, place), stack, len(call.function.inputs),
                           returned, shared, (call, arena))


def _of_one(native: Native, alloc: Alloc) -> Quick:
    def run(operands: tuple[Any, ...]) -> Block:
        x, = operands
        a = x.block  # another thread that computes it too may replace the node's
        place = a if type(a) is bytes else a.place
        block: Block
        if alloc is None:
            block = native(place)
        else:
            block = alloc()
            native(place, block.place)
        return block

    return run


def _of_two(native: Native, alloc: Alloc) -> Quick:
    def run(operands: tuple[Any, ...]) -> Block:
        x, y = operands
        a, b = x.block, y.block
        first, second = a if type(a) is bytes else a.place, b if type(b) is bytes else b.place
        block: Block
        if alloc is None:
            block = native(first, second)
        else:
            block = alloc()
            native(first, second, block.place)
        return block

    return run


def _of_tensor_and_number(native: Native, alloc: Alloc, at: int, number: Any) -> Quick:
    one = _of_one(native, alloc)

    def run(operands: tuple[Any, ...]) -> Block | None:
        return one((operands[1 - at],)) if operands[at] == number else None

    return run


def _of_all(native: Native, alloc: Alloc, numbers: Numbers, tensors: Sequence[int]) -> Quick:
    def run(operands: tuple[Any, ...]) -> Block | None:
        for k, number in numbers:
            if operands[k] != number:
                return None
        blocks = [operands[k].block for k in tensors]
        places = [b if type(b) is bytes else b.place for b in blocks]
        block: Block
        if alloc is None:
            block = native(*places)
            return block
        block = alloc()
        native(*places, block.place)
        return block

    return run
