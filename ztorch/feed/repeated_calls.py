"""Predictions for arrays like earlier ones. A service passes arrays of the same shape and dtype
again and again: whether these fit, and which function takes them, is found out once."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.feed.call_pool import CallPool, run_into_new
from ztorch.feed.columns import DIRECT_BYTES

if TYPE_CHECKING:
    from ztorch.feed.adapter import DataAdapter
    from ztorch.runtime.loaded_program import BoundCall, LoadedProgram

MOST_KINDS = 64  # kinds of arrays that a program remembers

Kind = tuple[tuple[int, ...], np.dtype]  # the shape and dtype of an array


class RepeatedCall:
    """The predictions of a program with one input for arrays of one kind, which fit it.

    Args:
        executable: The program.
        function: The function that takes such arrays.
        free: Its calls that wait for the next batch.
        port: The input.
        like: An array of this kind.
    """

    __slots__ = ("_executable", "_free", "_function", "_in_place", "_port", "_result", "_rows",
                 "_views")

    def __init__(self, executable: LoadedProgram, function: str, free: deque[BoundCall], port: str,
                 like: np.ndarray):
        self._executable, self._function, self._free = executable, function, free
        self._port, self._rows = port, len(like)
        self._in_place = like.nbytes >= DIRECT_BYTES
        # Of each call: the rows that it reads, and those of its only output if that is copied.
        self._views: dict[BoundCall, tuple[np.ndarray, np.ndarray | None]] = {}
        y = executable.functions[function].outputs.get("y")
        self._result = None if y is None else ((self._rows, *y.shape[1:]), y.dtype.numpy)

    def can_fill(self, out: Any) -> bool:
        """Whether `out` is an array that takes the only output."""
        return (type(out) is np.ndarray and (out.shape, out.dtype) == self._result
                and out.flags.writeable)

    def run(self, x: np.ndarray, out: np.ndarray | None = None
            ) -> np.ndarray | dict[str, np.ndarray]:
        """The outputs for an array, in new arrays; of a single output, its array.

        Args:
            x: The array.
            out: An array that the only output fills, and which may overlap with x. Default: `None`.
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
            outputs = run_into_new(call, self._rows)
            return outputs.get("y", outputs)
        finally:
            call.release()
            self._free.append(call)

    def _view(self, call: BoundCall) -> tuple[np.ndarray, np.ndarray | None]:
        y = call.outputs.get("y")
        copied = y[:self._rows] if y is not None and y.nbytes < DIRECT_BYTES else None
        self._views[call] = views = call.inputs[self._port][:self._rows], copied
        return views


def remember(pool: CallPool, adapter: DataAdapter, x: np.ndarray, call: BoundCall) -> None:
    """Has a program remember the kind of an array that fits it, unless each such array must be
    looked at: its numbers are converted or checked.

    Args:
        pool: The calls of the program.
        adapter: What its inputs are.
        x: The array.
        call: A call that takes it.
    """
    port = adapter.input_ports[0]
    if (port.port not in call.inputs or len(call.inputs) > 1 or port.reader is not None
            or port.range is not None or not port.dtype.in_numpy
            or x.dtype != port.dtype.numpy or x.shape[1:] != port.shape
            or len(pool.repeated) >= MOST_KINDS):
        return
    function = pool.buckets.function("predict", (len(x),))
    pool.repeated[x.shape, x.dtype] = RepeatedCall(
        pool.executable, function, pool.free(function), port.port, x)
