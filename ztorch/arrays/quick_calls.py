"""One op, or a compiled function, on computed tensors of the CPU, run at once: no structure, no
table, no lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ztorch.arrays.memory import Allocation, Block, Pool
from ztorch.arrays.node import TensorNode
from ztorch.backends.python_calls import has_python_functions, python_function
from ztorch.compile.python_calls import python_calls
from ztorch.host.memory import aligned
from ztorch.runtime.executable import HostMemoryCall

# Of a result that lies in a bytes object: from 128 KiB on, C's allocator maps each block anew.
MOST_BYTES = 120 << 10

MOST_CYCLES = 150_000  # that other threads of Python wait: some 50 microseconds
LEAST_BYTES = 16  # of a block: Python shares bytes objects of no bytes

Native = Callable[..., Any]
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
    bound = _native(call, nbytes if small else 0)
    if bound is None:
        return None
    native, owner = bound
    if small and len(operands) <= 2 and len(numbers) < len(operands):
        return (_of_two if len(operands) > len(numbers) + 1 else
                _of_tensor_and_number if numbers else _of_one)(native, owner, numbers)
    tensors = [k for k, o in enumerate(operands) if type(o) is TensorNode]
    alloc = None if small else lambda: pool.alloc(nbytes)
    return _of_all(native, owner, numbers, tensors, alloc)


def quick_function(call: HostMemoryCall, sizes: Sequence[int], pool: Pool) -> Whole | None:
    """How to run a program of several calls without a lock; None if it must not be.

    Args:
        call: The program.
        sizes: Of its results, in bytes.
        pool: Where results lie, but for a single small one.
    """
    returned = sizes[0] if len(sizes) == 1 and sizes[0] <= MOST_BYTES else 0
    bound = _native(call, returned)
    if bound is None:
        return None
    native, owner = bound

    def run_small(*places: Any, owner: Any = owner) -> Block:
        block: Block = native(*places)
        return block

    def run(*places: Any, owner: Any = owner) -> list[Allocation]:
        results = [pool.alloc(n) for n in sizes]
        native(*places, *[b.place for b in results])
        return results

    return run_small if returned else run


def _native(call: HostMemoryCall, returned: int) -> tuple[Native, Any] | None:
    """A program as a function of Python's own, and what must live as long as it; None if it must
    not be called so.

    Args:
        call: The program.
        returned: The size of its only result if the function is to return that, else 0.
    """
    if call.workers > 1 or call.function.cycles > MOST_CYCLES or not has_python_functions():
        return None
    library = python_calls()
    if library is None:
        return None
    code, params, place = call.addresses
    # Memory to work in that others do not share, who run the program under its lock.
    arena = aligned(call.program.spec.arena_bytes)
    if arena.size:
        place = arena.__array_interface__["data"][0]
    native = python_function(library, (code, params, place), len(call.function.inputs),
                             max(returned, LEAST_BYTES) if returned else 0)
    return native, (call, arena)


def _of_one(native: Native, owner: Any, _: Numbers) -> Quick:
    def run(operands: tuple[Any, ...], owner: Any = owner) -> Block:
        x, = operands
        a = x.block  # another thread that computes it too may replace the node's
        block: Block = native(a if type(a) is bytes else a.place)
        return block

    return run


def _of_two(native: Native, owner: Any, _: Numbers) -> Quick:
    def run(operands: tuple[Any, ...], owner: Any = owner) -> Block:
        x, y = operands
        a, b = x.block, y.block
        block: Block = native(a if type(a) is bytes else a.place,
                              b if type(b) is bytes else b.place)
        return block

    return run


def _of_tensor_and_number(native: Native, owner: Any, numbers: Numbers) -> Quick:
    (place, number), = numbers

    def run(operands: tuple[Any, ...], owner: Any = owner) -> Block | None:
        if operands[place] != number:
            return None
        a = operands[1 - place].block
        block: Block = native(a if type(a) is bytes else a.place)
        return block

    return run


def _of_all(native: Native, owner: Any, numbers: Numbers, tensors: Sequence[int],
            alloc: Callable[[], Allocation] | None) -> Quick:
    """Any operands; `alloc` gives a block for the result where it is not a small one."""
    def run(operands: tuple[Any, ...], owner: Any = owner) -> Block | None:
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
