"""The native calls of a program, shared by threads."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

    from ztorch.runtime.running import BoundCall, Running


class Calls(Protocol):
    """What lends calls: a pool, or what feeds a program with tensors."""

    def borrow(self, function: str) -> AbstractContextManager[Any]: ...


class CallPool:
    """The calls of an executable. Each has buffers of its own: a thread borrows one and gives it
    back, and no more are made than are used at once."""

    def __init__(self, executable: Running):
        self._executable = executable
        self._free: dict[str, deque[BoundCall]] = defaultdict(deque)

    def borrow(self, function: str) -> BorrowedCall:
        """A call of a function, for a `with` block."""
        free = self._free[function]
        try:
            call = free.pop()  # atomic, so no lock
        except IndexError:
            call = self._executable.bind(function)
        return BorrowedCall(call, free)


class BorrowedCall:
    """A call that goes back to its pool when the block ends."""

    __slots__ = ("_call", "_free")

    def __init__(self, call: BoundCall, free: deque[BoundCall]):
        self._call, self._free = call, free

    def __enter__(self) -> BoundCall:
        return self._call

    def __exit__(self, *exception: object) -> None:
        self._free.append(self._call)
