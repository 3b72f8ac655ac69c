"""One op on computed tensors of the CPU, run at once: no structure, no table, no lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ztorch.arrays.memory import Allocation, Block, Pool
from ztorch.arrays.node import TensorNode
from ztorch.backends.python_calls import has_python_functions, python_function
from ztorch.compile.python_calls import python_calls
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


def quick_call(call: HostMemoryCall, operands: tuple[Any, ...], nbytes: int,
               pool: Pool) -> Quick | None:
    """How to run the program of one call without a lock; None if it must not be.

    Args:
        call: The program, which reads the tensors in the order of the operands, and works in no
            memory but its result.
        operands: The nodes and numbers that it was compiled for.
        nbytes: The size of its result.
        pool: Where large results lie.
    """
    numbers = tuple((k, o) for k, o in enumerate(operands) if type(o) is not TensorNode)
    if any(n == 0 for _, n in numbers):  # 0.0 and -0.0 would be one
        return None
    small = nbytes <= MOST_BYTES
    if call.workers > 1 or call.function.cycles > MOST_CYCLES or not has_python_functions():
        return None
    library = python_calls()
    if library is None:
        return None
    native = python_function(library, call.addresses, len(call.function.inputs),
                             max(nbytes, LEAST_BYTES) if small else 0)
    if small and len(operands) <= 2 and len(numbers) < len(operands):
        return (_of_two if len(operands) > len(numbers) + 1 else
                _of_tensor_and_number if numbers else _of_one)(native, call, numbers)
    tensors = [k for k, o in enumerate(operands) if type(o) is TensorNode]
    alloc = None if small else lambda: pool.alloc(nbytes)
    return _of_all(native, call, numbers, tensors, alloc)


def _of_one(native: Native, owner: HostMemoryCall, _: Numbers) -> Quick:
    def run(operands: tuple[Any, ...], owner: HostMemoryCall = owner) -> Block:
        x, = operands
        a = x.block  # another thread that computes it too may replace the node's
        block: Block = native(a if type(a) is bytes else a.place)
        return block

    return run


def _of_two(native: Native, owner: HostMemoryCall, _: Numbers) -> Quick:
    def run(operands: tuple[Any, ...], owner: HostMemoryCall = owner) -> Block:
        x, y = operands
        a, b = x.block, y.block
        block: Block = native(a if type(a) is bytes else a.place,
                              b if type(b) is bytes else b.place)
        return block

    return run


def _of_tensor_and_number(native: Native, owner: HostMemoryCall, numbers: Numbers) -> Quick:
    (place, number), = numbers

    def run(operands: tuple[Any, ...], owner: HostMemoryCall = owner) -> Block | None:
        if operands[place] != number:
            return None
        a = operands[1 - place].block
        block: Block = native(a if type(a) is bytes else a.place)
        return block

    return run


def _of_all(native: Native, owner: HostMemoryCall, numbers: Numbers, tensors: Sequence[int],
            alloc: Callable[[], Allocation] | None) -> Quick:
    """Any operands; `alloc` gives a block for the result where it is not a small one."""
    def run(operands: tuple[Any, ...], owner: HostMemoryCall = owner) -> Block | None:
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
