"""A function of a compiled library, bound to its memory and ready to be called."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.abi import FRAME_SLOTS, STEPS_ENTRY
from ztorch.backends.library import LoadedLibrary
from ztorch.runtime.spec import FunctionSpec

if TYPE_CHECKING:
    from ztorch.backends.workers import Workers
    from ztorch.runtime.worker_trials import WorkerTrials


class NativeCall:
    """A function of a loaded library with its arguments.

    `inputs` and `outputs` are tables of addresses, which the caller fills.

    Args:
        library: The loaded library.
        function: The function.
        params: Address of the block of weights and states.
        arena: Address of the block of all other values.
        workers: Number of threads that share the work.
    """

    def __init__(self, library: LoadedLibrary, function: FunctionSpec, params: int, arena: int,
                 workers: int):
        self.inputs: Any = (ctypes.c_size_t * max(len(function.inputs), 1))()
        self.outputs: Any = (ctypes.c_size_t * max(len(function.outputs), 1))()
        self.workers = workers  # negative: as many, of which one runs loops of short kernels
        self.trials: WorkerTrials | None = None  # of numbers of workers, for batch after batch
        self.call_trials: WorkerTrials | None = None  # the same for single runs
        self._pool: Workers | None = None  # that has run it
        self._library, self._symbol = library, function.symbol
        self._frame = (ctypes.c_void_p * len(FRAME_SLOTS))(
            ctypes.addressof(self.inputs), ctypes.addressof(self.outputs), params, arena)
        symbol = library[function.symbol]
        symbol.restype = None
        # Addresses of the code, params and arena.
        self.addresses = ctypes.cast(symbol, ctypes.c_void_p).value or 0, params, arena
        # One run by one worker.
        self.once = functools.partial(symbol, ctypes.byref(self._frame))

    def move(self, params: int) -> None:
        """Sets another address of params for later runs."""
        self._frame[FRAME_SLOTS["params"]] = params
        self.addresses = self.addresses[0], params, self.addresses[2]

    def run(self) -> None:
        """Runs the function once, by all workers or by the number of workers that is fastest."""
        trials = self.call_trials
        if trials is None:
            if self.workers == 1:
                self.once()
            else:
                self._run_shared(self.once)
            return
        if trials.untimed:
            trials.untimed -= 1
            self._run()
            return
        start = perf_counter()
        self._run()
        seconds = perf_counter() - start
        trials.record(seconds, seconds)
        self.workers = trials.workers

    def _run(self) -> None:
        if self.workers == 1:
            self.once()
        else:
            self._run_shared(self.once)

    def batch_after_batch(self, record: int) -> Callable[[], None] | None:
        """A function that runs all batches of a record (`abi.STEPS`) at this address. None if the
        library has no such function, like those of older artifacts."""
        try:
            symbol = self._library[STEPS_ENTRY.format(self._symbol)]
        except AttributeError:
            return None
        symbol.restype = None
        once = functools.partial(symbol, ctypes.byref(self._frame))

        def run() -> None:
            self._frame[FRAME_SLOTS["steps"]] = record
            if self.workers == 1:
                once()
                return
            self._run_shared(once)

        return run

    def _run_shared(self, once: Callable[[], object]) -> None:
        count, pool = abs(self.workers), self._pool
        if pool is None or pool.count != count or pool.gone:  # an import alone takes 0.5 us
            from ztorch.backends.workers import workers  # not needed by programs of one worker

            pool = self._pool = workers(count, self._library)
        pool.run(self._library, once, self._frame, lone=self.workers < 0)


def floats_at(address: int, count: int) -> np.ndarray:
    """The float64 numbers at an address of the host."""
    return np.ctypeslib.as_array((ctypes.c_double * count).from_address(address))
