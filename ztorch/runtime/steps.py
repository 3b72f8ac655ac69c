"""Steps in a row: one native call runs a function of this CPU for batch after batch of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter, sleep

import numpy as np

from ztorch.abi import STEPS
from ztorch.runtime.native_call import NativeCall
from ztorch.runtime.running import BoundCall, NativeSteps, ScorePlace
from ztorch.runtime.worker_trials import TRIAL_SECONDS, WorkerTrials

WAKE_SECONDS = 0.05  # interval at which Python handles signals, progress and callbacks
LONG_RUN_SECONDS = WAKE_SECONDS / 4  # a longer run is followed by a pause; chosen
PAUSE_SECONDS = 2e-5  # lets threads that wait for the program run: the lock is not fair
FIRST_SECONDS = 1e-8  # pessimistic time of an estimated cycle, so that the first check is early
_AT = {name: k for k, name in enumerate(STEPS["record"])}


class HostSteps(NativeSteps):
    """Runs of a call for batch after batch.

    Args:
        call: Its `inputs` get the rows of a batch, or it reads them in place.
        native: The native call behind it.
        columns: All rows of each input; the other inputs stay as they are.
    """

    def __init__(self, call: BoundCall, native: NativeCall, columns: Mapping[str, np.ndarray]):
        self.call = call
        self._native, self._columns = native, columns
        names = list(call.inputs)
        self._table = np.array(
            [(array.ctypes.data, array.nbytes // max(len(array), 1), call.inputs[name].ctypes.data,
              names.index(name)) for name, array in columns.items()], np.int64)
        self._record = np.zeros(len(_AT), np.int64)
        self._record[_AT["rows"]] = len(next(iter(call.inputs.values())))
        self._point_at("column", self._table)
        self._run = native.batch_after_batch(self._record.ctypes.data)
        cycles = call.function.cycles
        if native.trials is None:
            native.trials = WorkerTrials(native.workers, call.program.threads, cycles,
                                         cycles * FIRST_SECONDS)
        self._trials = native.trials  # the native call outlives these steps

    @classmethod
    def of(cls, call: BoundCall, native: NativeCall,
           columns: Mapping[str, np.ndarray]) -> HostSteps | None:
        """The steps of a call, or None if each must be a separate call."""
        fit = all(array.dtype == call.inputs[name].dtype
                  and array.shape[1:] == call.inputs[name].shape[1:]
                  and array.flags.c_contiguous and array.flags.aligned
                  for name, array in columns.items())
        scored = all(y.dtype in (np.float32, np.float64) for y in call.outputs.values())
        steps = cls(call, native, columns) if fit and scored else None
        return steps if steps is not None and steps._run is not None else None

    def _point_at(self, kind: str, table: np.ndarray) -> None:
        self._record[_AT[f"{kind}_count"]] = len(table)
        self._record[_AT[f"{kind}s"]] = table.ctypes.data

    def add_to(self, scores: Sequence[ScorePlace], finite: bool) -> None:
        weights = np.array([s.weight for s in scores], np.float64).view(np.int64)
        self._scores = np.array(
            [(s.output.ctypes.data, s.output.dtype == np.float64, s.output.size, s.sums, weight)
             for s, weight in zip(scores, weights.tolist(), strict=True)], np.int64)
        self._point_at("score", self._scores)
        self._record[_AT["finite"]] = finite

    @property
    def at_once(self) -> int:
        trials = self._trials
        seconds = min(WAKE_SECONDS, TRIAL_SECONDS) if trials.trial else WAKE_SECONDS
        return max(1, int(seconds / max(trials.seconds, 1e-9)))

    def run(self, order: np.ndarray | None, first: int, count: int) -> int:
        record, program = self._record, self.call.program
        record[_AT["order"]] = 0 if order is None else order.ctypes.data
        record[_AT["first"]], record[_AT["count"]] = first, count
        record[_AT["ran"]] = 0
        inputs = self._native.inputs
        own = inputs[:]
        run: Callable[[], None] | None = self._run
        assert run is not None
        with program.lock:
            program.ready_for(self.call.function)
            rule, self._native.workers = self._native.workers, self._trials.workers
            begun = perf_counter()
            try:
                run()
            finally:
                self._native.workers = rule
            took = perf_counter() - begun
        if order is None:  # inputs were read in place
            inputs[:] = own
        ran = int(record[_AT["ran"]])
        self._trials.took(took / ran, took)
        if took > LONG_RUN_SECONDS:
            sleep(PAUSE_SECONDS)
        if ran < count and order is None:  # shows which batch was last
            at = first + (ran - 1) * int(record[_AT["rows"]])
            for name, array in self._columns.items():
                self.call.inputs[name][...] = array[at:at + len(self.call.inputs[name])]
        return ran
