"""Runs a function on this CPU for many batches of arrays in one native call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter, sleep

import numpy as np

from ztorch.abi import STEPS
from ztorch.runtime.loaded_program import BoundCall, NativeSteps, ScoreSum
from ztorch.runtime.native_call import NativeCall
from ztorch.runtime.worker_trials import TRIAL_SECONDS, WorkerTrials

WAKE_SECONDS = 0.05  # interval at which Python handles signals, progress and callbacks
LONG_RUN_SECONDS = WAKE_SECONDS / 4  # duration from which a run is followed by a pause; a guess
PAUSE_SECONDS = 2e-5  # a pause in which waiting threads get the lock, which is not fair
FIRST_SECONDS = 1e-8  # pessimistic duration of an estimated cycle, so that the first check is early
_AT = {name: k for k, name in enumerate(STEPS["record"])}  # positions of fields in the record


class HostSteps(NativeSteps):
    """Runs of a call for many batches.

    Args:
        call: The call. The rows of a batch are copied to its `inputs`, or read in place.
        native: Its native call.
        columns: All rows of some inputs; the other inputs are the same for all batches.
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
                                         cycles * FIRST_SECONDS,
                                         loops=bool(call.function.loops),
                                         runs=call.function.runs)
        self._trials = native.trials  # the native call outlives these steps

    @classmethod
    def of(cls, call: BoundCall, native: NativeCall,
           columns: Mapping[str, np.ndarray]) -> HostSteps | None:
        """The steps of a call; None if each must be a separate call."""
        fits = all(array.dtype == call.inputs[name].dtype
                   and array.shape[1:] == call.inputs[name].shape[1:]
                   and array.flags.c_contiguous and array.flags.aligned
                   for name, array in columns.items())
        scored = all(y.dtype in (np.float32, np.float64) for y in call.outputs.values())
        steps = cls(call, native, columns) if fits and scored else None
        return steps if steps is not None and steps._run is not None else None

    def _point_at(self, kind: str, table: np.ndarray) -> None:
        self._record[_AT[f"{kind}_count"]] = len(table)
        self._record[_AT[f"{kind}s"]] = table.ctypes.data

    def add_to(self, scores: Sequence[ScoreSum], finite: bool) -> None:
        weights = np.array([s.weight for s in scores], np.float64).view(np.int64)
        self._scores = np.array(
            [(s.output.ctypes.data, s.output.dtype == np.float64, s.output.size, s.sums, weight)
             for s, weight in zip(scores, weights.tolist(), strict=True)], np.int64)
        self._point_at("score", self._scores)
        self._record[_AT["finite"]] = finite

    @property
    def steps_per_check(self) -> int:
        trials = self._trials
        seconds = min(WAKE_SECONDS, TRIAL_SECONDS) if trials.trial else WAKE_SECONDS
        return max(1, int(seconds / max(trials.seconds, 1e-9)))

    def run(self, order: np.ndarray | None, first: int, count: int) -> int:
        record, program = self._record, self.call.program
        record[_AT["order"]] = 0 if order is None else order.ctypes.data
        record[_AT["first"]], record[_AT["count"]] = first, count
        record[_AT["ran"]] = 0
        inputs = self._native.inputs
        saved_inputs = inputs[:]
        run: Callable[[], None] | None = self._run
        assert run is not None
        with program.lock:
            program.prepare_run(self.call.function)
            rule, self._native.workers = self._native.workers, self._trials.workers
            start = perf_counter()
            try:
                run()
            finally:
                self._native.workers = rule
            seconds = perf_counter() - start
        if order is None:  # inputs were read in place
            inputs[:] = saved_inputs
        ran = int(record[_AT["ran"]])
        self._trials.record(seconds / ran, seconds)
        if seconds > LONG_RUN_SECONDS:
            sleep(PAUSE_SECONDS)
        if ran < count and order is None:  # the caller reads the last batch from the inputs
            at = first + (ran - 1) * int(record[_AT["rows"]])
            for name, array in self._columns.items():
                self.call.inputs[name][...] = array[at:at + len(self.call.inputs[name])]
        return ran
