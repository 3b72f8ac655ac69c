"""The native calls of a program, shared by threads.

A service passes arrays of the same shape and dtype again and again. Whether these fit, and which
function takes them, is found out once.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ztorch.errors import OutOfMemory
from ztorch.feed.columns import DIRECT_BYTES
from ztorch.runtime.result_memory import empty

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ztorch.feed.adapter import DataAdapter
    from ztorch.runtime.buckets import Buckets
    from ztorch.runtime.loaded_program import BoundCall, LoadedProgram


MOST_KINDS = 64  # kinds of arrays that a program remembers

Kind = tuple[tuple[int, ...], np.dtype]  # the shape and dtype of an array


class Calls(Protocol):
    """A lender of calls: a pool, or the feed of a program with tensors."""

    def of_each_bucket(self, verb: str) -> AbstractContextManager[Any]: ...


class CallPool:
    """The calls of an executable. Each has its own buffers: a thread borrows one and gives it
    back, and no more are made than are used at once."""

    def __init__(self, executable: LoadedProgram, buckets: Buckets):
        self.buckets = buckets
        self._executable = executable
        self._repeated: dict[Kind, RepeatedCall] = {}  # by the kind of array that they take
        self._free: dict[str, deque[BoundCall]] = defaultdict(deque)

    def borrow(self, function: str) -> BorrowedCall:
        """A call of a function, for a `with` block."""
        free = self._free[function]
        try:
            call = free.pop()  # atomic, so no lock
        except IndexError:
            call = self._executable.bind(function)
        return BorrowedCall(call, free)

    def fitting(self, verb: str, sizes: Sequence[int]) -> BorrowedCall:
        """A call of the function of the smallest bucket that holds these sizes."""
        return self.borrow(self.buckets.function(verb, sizes))

    def again(self, x: Any, out: Any) -> Any:
        """The outputs for an array of a kind that the program remembers, in the declared form;
        None for others.

        Args:
            x: The user's data.
            out: An array that takes the only output. None: a new one.
        """
        if type(x) is not np.ndarray:
            return None
        repeated = self._repeated.get((x.shape, x.dtype))
        if repeated is None or not (out is None or repeated.can_fill(out)):
            return None
        return repeated.run(x, out)

    def remember(self, x: Any, adapter: DataAdapter, call: BoundCall, form: str) -> None:
        """Remembers the kind of x, unless each such array must be looked at: its numbers are
        converted or checked.

        Args:
            x: The user's data, which fit.
            adapter: What the inputs are.
            call: A call that takes it.
            form: The declared form of several outputs.
        """
        port = adapter.input_ports[0]
        if (type(x) is not np.ndarray or adapter.open_axes or port.port not in call.inputs
                or len(call.inputs) > 1 or port.reader is not None or port.range is not None
                or not port.dtype.in_numpy or x.dtype != port.dtype.numpy
                or x.shape[1:] != port.shape or len(self._repeated) >= MOST_KINDS):
            return
        function = self.buckets.function("predict", (len(x),))
        self._repeated[x.shape, x.dtype] = RepeatedCall(
            self._executable, function, self._free[function], port.port, x, form)

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


class RepeatedCall:
    """The predictions of a program with one input for arrays of one kind, which fit it.

    Args:
        executable: The program.
        function: The function that takes such arrays.
        free: Its calls that wait for the next batch.
        port: The input.
        like: An array of this kind.
        form: The declared form of several outputs.
    """

    __slots__ = ("_executable", "_form", "_free", "_function", "_in_place", "_port", "_result",
                 "_rows", "_views")

    def __init__(self, executable: LoadedProgram, function: str, free: deque[BoundCall], port: str,
                 like: np.ndarray, form: str):
        self._executable, self._function, self._free = executable, function, free
        self._port, self._rows, self._form = port, len(like), form
        self._in_place = like.nbytes >= DIRECT_BYTES
        # Of each call: the rows that it reads, and those of its only output if that is copied.
        self._views: dict[BoundCall, tuple[np.ndarray, np.ndarray | None]] = {}
        y = executable.functions[function].outputs.get("y")
        self._result = None if y is None else ((self._rows, *y.shape[1:]), y.dtype.numpy)

    def can_fill(self, out: Any) -> bool:
        """Whether `out` is an array that takes the only output."""
        return (type(out) is np.ndarray and (out.shape, out.dtype) == self._result
                and out.flags.writeable)

    def run(self, x: np.ndarray, out: np.ndarray | None) -> Any:
        """The outputs for an array, in the declared form.

        Args:
            x: The array.
            out: An array that the only output fills, and which may overlap with x. None: a new one.
        """
        try:
            call = self._free.pop()  # atomic, so no lock
        except IndexError:
            call = self._executable.bind(self._function)
        try:
            own, copied = self._views.get(call) or self._view(call)
            if not (self._in_place and call.read_from(self._port, x)):
                own[...] = x  # older rows after these do no harm
            if out is not None:
                written = copied is None and not np.may_share_memory(x, out) and (
                    call.write_to("y", out))
                call()
                if not written:
                    out[...] = call.outputs["y"][:self._rows]
                return out
            if copied is not None:
                call()
                return copied.copy()
            return as_declared(run_into_new(call, self._rows), self._form)
        finally:
            call.release()
            self._free.append(call)

    def _view(self, call: BoundCall) -> tuple[np.ndarray, np.ndarray | None]:
        y = call.outputs.get("y")
        copied = y[:self._rows] if y is not None and y.nbytes < DIRECT_BYTES else None
        self._views[call] = views = call.inputs[self._port][:self._rows], copied
        return views


def as_declared(outputs: dict[str, Any], form: str) -> Any:
    """Outputs by port in the declared form: one array, or a list or dict.

    >>> as_declared({"y/a": 1, "y/b": 2}, "dict"), as_declared({"y/a": 1, "y/b": 2}, "list")
    ({'a': 1, 'b': 2}, [1, 2])
    """
    if "y" in outputs:
        return outputs["y"]
    return ({port[2:]: y for port, y in outputs.items()} if form == "dict" else
            list(outputs.values()))


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
