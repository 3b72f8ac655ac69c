"""The native calls of a program, shared by threads."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ztorch.errors import OutOfMemory
from ztorch.feed.columns import DIRECT_BYTES
from ztorch.runtime.result_memory import empty

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

    from ztorch.feed.repeated_calls import Kind, RepeatedCall
    from ztorch.runtime.buckets import Buckets
    from ztorch.runtime.loaded_program import BoundCall, LoadedProgram


class Calls(Protocol):
    """A lender of calls: a pool, or the feed of a program with tensors."""

    def of_each_bucket(self, verb: str) -> AbstractContextManager[Any]: ...


class CallPool:
    """The calls of an executable. Each has its own buffers: a thread borrows one and gives it
    back, and no more are made than are used at once."""

    def __init__(self, executable: LoadedProgram, buckets: Buckets):
        self.buckets = buckets
        self.executable = executable
        self.repeated: dict[Kind, RepeatedCall] = {}  # by the kind of array that they take
        self._free: dict[str, deque[BoundCall]] = defaultdict(deque)

    def free(self, function: str) -> deque[BoundCall]:
        """The calls of a function that nobody has borrowed."""
        return self._free[function]

    def borrow(self, function: str) -> BorrowedCall:
        """A call of a function, for a `with` block."""
        free = self._free[function]
        try:
            call = free.pop()  # atomic, so no lock
        except IndexError:
            call = self.executable.bind(function)
        return BorrowedCall(call, free)

    def fitting(self, verb: str, sizes: Sequence[int]) -> BorrowedCall:
        """A call of the function of the smallest bucket that holds these sizes."""
        return self.borrow(self.buckets.function(verb, sizes))

    def of_each_bucket(self, verb: str) -> BorrowedCalls:
        """The calls of a function in all buckets, for a `with` block."""
        return BorrowedCalls(self, verb)


class BorrowedCall:
    """A call that goes back to its pool when the block ends."""

    __slots__ = ("_free", "call")

    def __init__(self, call: BoundCall, free: deque[BoundCall]):
        self.call, self._free = call, free

    def __enter__(self) -> BoundCall:
        return self.call

    def __exit__(self, *exception: object) -> None:
        self.call.release()
        self._free.append(self.call)


class BorrowedCalls:
    """The calls of a function in several buckets, each borrowed when it is first needed. They go
    back to their pool when the block ends."""

    def __init__(self, pool: CallPool, verb: str):
        self.buckets = pool.buckets
        self._pool, self.verb = pool, verb
        self._borrowed: dict[str, deque[BorrowedCall]] = defaultdict(deque)

    def fitting(self, sizes: Sequence[int]) -> BoundCall:
        """A call of the smallest bucket that holds these sizes. Where runs may overlap, two take
        turns: one is filled while the other one runs."""
        function = self.buckets.function(self.verb, sizes)
        turns = self._borrowed[function]
        if not turns:
            turns.append(self._pool.borrow(function))
        elif len(turns) == 1 and turns[0].call.overlaps:
            turns.append(self._second(function, turns[0].call))
        else:
            turns.rotate(-1)
        return turns[-1].call

    def _second(self, function: str, first: BoundCall) -> BorrowedCall:
        """Another call of a function; where there is no room for its buffers, the first alone."""
        try:
            return self._pool.borrow(function)
        except OutOfMemory:
            first.overlaps = False
            first.finish()
            return self._borrowed[function].pop()

    def __enter__(self) -> BorrowedCalls:
        return self

    def __exit__(self, *exception: object) -> None:
        for turns in self._borrowed.values():
            for borrowed in turns:
                borrowed.__exit__(*exception)


def run_into_new(call: BoundCall, rows: int) -> dict[str, np.ndarray]:
    """Runs a call, and returns the first rows of its outputs in separate arrays. Large outputs
    of a full batch are written there by the call itself."""
    results = {}
    for name, own in call.outputs.items():
        if own.nbytes >= DIRECT_BYTES and len(own) == rows:
            array = empty(own.shape, own.dtype)
            if call.write_to(name, array):
                results[name] = array
    call()
    if len(results) < len(call.outputs):
        return {name: results[name] if name in results else own[:rows].copy()
                for name, own in call.outputs.items()}
    return results


def run_writing(call: BoundCall, arrays: Mapping[str, np.ndarray]) -> set[str]:
    """Runs a call, which writes to these arrays of a full batch itself where it can. Returns the
    outputs that it did write there."""
    written = {name for name, array in arrays.items() if call.write_to(name, array)}
    call()
    return written
