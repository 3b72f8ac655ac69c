"""One native call: a function of a library, with the addresses that it takes."""

from __future__ import annotations

import ctypes
import functools

from ztorch.runtime.spec import FunctionSpec


class NativeCall:
    """A function of a loaded library, ready to be run.

    `inputs` and `outputs` are tables of addresses, which the caller fills.
    """

    def __init__(self, library: ctypes.CDLL, function: FunctionSpec, params: int, arena: int,
                 workers: int):
        """`params` and `arena` are addresses; `workers` is how many threads share the work."""
        self.inputs = (ctypes.c_size_t * max(len(function.inputs), 1))()
        self.outputs = (ctypes.c_size_t * max(len(function.outputs), 1))()
        self.workers = workers
        self._library = library
        # The only argument of the native function: addresses of inputs, outputs, params, arena, and
        # of the workers' control block, which is null for one worker.
        self._frame = (ctypes.c_void_p * 5)(ctypes.addressof(self.inputs),
                                            ctypes.addressof(self.outputs), params, arena, None)
        symbol = library[function.symbol]
        symbol.restype = None
        native = functools.partial(symbol, ctypes.byref(self._frame))
        self.run = native if workers == 1 else functools.partial(self._run_shared, native)

    def _run_shared(self, native: functools.partial[None]) -> None:
        from ztorch.backends.workers import workers  # not needed by programs of one worker

        pool = workers(self.workers, self._library)
        with pool.lock:
            self._frame[4] = pool.control.value
            native()
