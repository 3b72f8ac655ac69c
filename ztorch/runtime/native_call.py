"""A function of a loaded library as a native call of this process."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ztorch.abi import STEPS_ENTRY
from ztorch.backends.library import LoadedLibrary
from ztorch.runtime.spec import FunctionSpec

if TYPE_CHECKING:
    from ztorch.runtime.worker_trials import WorkerTrials


class NativeCall:
    """A function of a loaded library, ready to be run.

    `inputs` and `outputs` are tables of addresses, which the caller fills.
    """

    def __init__(self, library: LoadedLibrary, function: FunctionSpec, params: int, arena: int,
                 workers: int):
        """`params` and `arena` are addresses; `workers` is how many threads share the work."""
        self.inputs: Any = (ctypes.c_size_t * max(len(function.inputs), 1))()
        self.outputs: Any = (ctypes.c_size_t * max(len(function.outputs), 1))()
        self.workers = workers
        self.trials: WorkerTrials | None = None  # of other numbers, for batch after batch
        self.call_trials: WorkerTrials | None = None  # the same for single runs
        self._library, self._symbol = library, function.symbol
        # The only argument of the native function: addresses of inputs, outputs, params, arena, of
        # the workers' control block, which is null for one worker, and of a record of batches.
        self._frame = (ctypes.c_void_p * 6)(
            ctypes.addressof(self.inputs), ctypes.addressof(self.outputs), params, arena)
        symbol = library[function.symbol]
        symbol.restype = None
        # Of the code, params and arena.
        self.addresses = ctypes.cast(symbol, ctypes.c_void_p).value or 0, params, arena
        # One run by one worker.
        self.once = functools.partial(symbol, ctypes.byref(self._frame))

    def move(self, params: int) -> None:
        """Runs with params at another address from now on."""
        self._frame[2] = params
        self.addresses = self.addresses[0], params, self.addresses[2]

    def run(self) -> None:
        """One run by all workers, or by the number that is fastest."""
        trials = self.call_trials
        if trials is None:
            self._run()
            return
        if trials.untimed:
            trials.untimed -= 1
            self._run()
            return
        begun = perf_counter()
        self._run()
        took = perf_counter() - begun
        trials.took(took, took)
        self.workers = trials.workers

    def _run(self) -> None:
        if self.workers == 1:
            self.once()
        else:
            self._run_shared(self.once)

    def batch_after_batch(self, record: int) -> Callable[[], None] | None:
        """Runs the function for the batches of a record at this address, which `abi.STEPS`
        describes, by all workers. None where the library cannot, as those of older artifacts."""
        try:
            symbol = self._library[STEPS_ENTRY.format(self._symbol)]
        except AttributeError:
            return None
        symbol.restype = None
        once = functools.partial(symbol, ctypes.byref(self._frame))

        def run() -> None:
            self._frame[5] = record
            if self.workers == 1:
                once()
                return
            self._run_shared(once)

        return run

    def _run_shared(self, once: Callable[[], object]) -> None:
        from ztorch.backends.workers import workers  # not needed by programs of one worker

        workers(self.workers, self._library).run(self._library, once, self._frame)
