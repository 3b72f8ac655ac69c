"""Runs a function on a device for several batches of arrays in one call: one copy there, one replay
of the launches of all batches, one copy back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceBuffer, DeviceModule, Launch, Recording
from ztorch.errors import OutOfMemory
from ztorch.runtime.loaded_program import BoundCall, NativeSteps, ScoreSum
from ztorch.runtime.native_call import floats_at
from ztorch.runtime.port_blocks import PortBlock, offsets_of
from ztorch.runtime.spec import FunctionSpec

# Limits of a call, all guesses. Beyond them a batch takes so long that the share of
# the host is small.
MOST_STEPS = 32  # batches
MOST_LAUNCHES = 2048  # of all batches
MOST_BYTES = 8 << 20  # of the inputs of all batches


class _Run(NamedTuple):
    """The launches of some batches, and the blocks of the host with their inputs and outputs."""

    recording: Recording
    inputs: np.ndarray
    outputs: np.ndarray


class OnDevice(Protocol):
    """A program on a device, as far as its batches must know it."""

    opened_device: Device
    module: DeviceModule
    lock: Any

    def prepare_run(self, function: FunctionSpec) -> None: ...

    def launches(self, function: FunctionSpec,
                 ports: Mapping[str, Sequence[tuple[DeviceBuffer, int]]],
                 ) -> Iterator[tuple[int, Launch]]: ...


class SeveralBatches:
    """Memory for the inputs and outputs of several batches of a call, and their launches.

    Args:
        program: The program on a device.
        function: The function of the call.
        count: The most batches.
    """

    _ticket: Any = None  # ticket of the run in flight

    def __init__(self, program: OnDevice, function: FunctionSpec, count: int):
        self.count, self._program, self._function = count, program, function
        self._device = program.opened_device
        self.inputs = PortBlock(function.inputs.values(), count)
        self.outputs = PortBlock(function.outputs.values(), count)
        self._buffers: list[DeviceBuffer] = []
        self._runs: dict[int, _Run] = {}  # by number of batches
        for block in (self.inputs, self.outputs):
            self._buffers.append(self._device.alloc(block.array.nbytes))
            self._device.pin(block.array)

    @classmethod
    def of(cls, program: OnDevice, function: FunctionSpec) -> SeveralBatches | None:
        """Memory for as many batches as are worth it; None if each is a call of its own."""
        *_, nbytes = offsets_of(function.inputs.values())
        count = min(MOST_STEPS, MOST_LAUNCHES // max(1, function.runs),
                    MOST_BYTES // max(1, nbytes))
        if count < 2:
            return None
        try:
            return cls(program, function, count)
        except OutOfMemory:
            return None

    def submit(self, count: int) -> None:
        """Starts the first batches."""
        run, program = self._runs.get(count) or self._recorded(count), self._program
        with program.lock:
            program.prepare_run(self._function)
            self._ticket = self._device.submit(run.recording, self._buffers[0], run.inputs,
                                               self._buffers[1], run.outputs)

    def finish(self) -> None:
        """Waits for the batches in flight, if any."""
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._device.finish(ticket)

    def _recorded(self, count: int) -> _Run:
        launches: list[Launch] = []
        for k in range(count):
            places = {"inputs": [(self._buffers[0], at) for at in self.inputs.offsets(k)],
                      "outputs": [(self._buffers[1], at) for at in self.outputs.offsets(k)]}
            first, *others = (x for _, x in self._program.launches(self._function, places))
            launches += [first._replace(barrier=True), *others]
        made = _Run(self._device.record(self._program.module, launches),
                    self.inputs.first(count), self.outputs.first(count))
        return self._runs.setdefault(count, made)

    def __del__(self) -> None:
        if not hasattr(self, "_runs") or self._device.closed:
            return
        for buffer in self._buffers:  # this drops the recordings that use them
            self._device.free(buffer)
        for block in (self.inputs, self.outputs):
            self._device.unpin(block.array)


class RemoteSteps(NativeSteps):
    """Runs of a call for several batches.

    Args:
        call: The call. Its `inputs` that are no columns are the same for all batches.
        columns: All rows of some inputs.
        several: The memory and the launches.
    """

    def __init__(self, call: BoundCall, columns: Mapping[str, np.ndarray],
                 several: SeveralBatches):
        self.call = call
        self._columns, self._several = columns, several
        self._rows = len(next(iter(call.inputs.values())))
        self._scores: list[tuple[np.ndarray, np.ndarray, float]] = []
        self._finite = False
        self._begun = 0  # batches of the run in flight

    @classmethod
    def of(cls, call: BoundCall, columns: Mapping[str, np.ndarray],
           several: Callable[[], SeveralBatches | None]) -> RemoteSteps | None:
        """The steps of a call; None if each must be a call of its own."""
        fits = all(array.dtype == call.inputs[name].dtype
                   and array.shape[1:] == call.inputs[name].shape[1:]
                   for name, array in columns.items())
        if not fits or any(y.dtype.kind != "f" for y in call.outputs.values()):
            return None
        memory = several()
        return None if memory is None else cls(call, columns, memory)

    def add_to(self, scores: Sequence[ScoreSum], finite: bool) -> None:
        names = {id(array): name for name, array in self.call.outputs.items()}
        self._scores = []
        for s in scores:
            sums = floats_at(s.sums, s.output.size)
            values = self._several.outputs.batches[names[id(s.output)]]
            self._scores.append((sums, values.reshape(len(values), -1), s.weight))
        self._finite = finite

    @property
    def steps_per_check(self) -> int:
        return self._several.count

    def run(self, order: np.ndarray | None, first: int, count: int) -> int:
        self.start(order, first, count)
        return self.finish()

    def start(self, order: np.ndarray | None, first: int, count: int) -> None:
        rows: slice | np.ndarray = slice(first, first + count * self._rows)
        if order is not None:
            rows = order[rows]
        for name, target in self._several.inputs.batches.items():
            column = self._columns.get(name)
            target[:count] = self.call.inputs[name] if column is None else (
                column[rows].reshape(count, *target.shape[1:]))
        self._several.submit(count)
        self._begun = count

    def finish(self) -> int:
        assert self._begun, "no run is in flight"
        count, self._begun = self._begun, 0
        self._several.finish()
        if self._finite and self._scores:
            _, losses, _ = self._scores[0]
            bad = np.flatnonzero(~np.isfinite(losses[:count]).all(1))
            if len(bad):  # training ends, and its error describes the inputs of this batch
                count = int(bad[0]) + 1
                _copy_batch(self._several.inputs, count - 1, self.call.inputs)
        for sums, values, weight in self._scores:
            each = values[:count].astype(np.float64) * weight
            sums[...] = np.add.accumulate(np.vstack([sums, each]))[-1]  # in order
        # The inputs of the call stay: they may hold the next batch already.
        _copy_batch(self._several.outputs, count - 1, self.call.outputs)
        return count


def _copy_batch(block: PortBlock, batch: int, arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        array[...] = block.batches[name][batch]
