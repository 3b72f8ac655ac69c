"""Runs a function on a device for several batches of arrays in one call: one copy there, one replay
of the launches of all batches, one copy back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceBuffer, DeviceModule, Launch, Recording
from ztorch.errors import OutOfMemory
from ztorch.runtime.loaded_program import BoundCall, NativeSteps, ScoreSum
from ztorch.runtime.native_call import floats_at
from ztorch.runtime.port_blocks import PortBlock, offsets_of
from ztorch.runtime.spec import FunctionSpec, TensorSpec

# Limits of a call, all guesses. Beyond them a batch takes so long that the share of
# the host is small.
MOST_STEPS = 32  # batches
MOST_LAUNCHES = 2048  # of all batches
MOST_BYTES = 8 << 20  # of the inputs of all batches


class _Run(NamedTuple):
    """The launches of some batches, and the blocks of the host that are copied there and back."""

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


class SeveralBatches(ABC):
    """Memory for the inputs and outputs of several batches of a call, and their launches.

    Args:
        program: The program on a device.
        function: The function of the call.
        count: The most batches.
        in_flight: Contains this object during a run.
    """

    def __init__(self, program: OnDevice, function: FunctionSpec, count: int,
                 in_flight: list[SeveralBatches]):
        self.count, self._program, self._function = count, program, function
        self._device = program.opened_device
        self._in_flight = in_flight
        self._tickets: list[Any] = []  # of the run in flight
        self._buffers: list[DeviceBuffer] = []
        self._blocks: list[PortBlock] = []  # copied to the device or back
        self._runs: dict[int, _Run] = {}  # by number of batches
        self.outputs, self._output_buffer = self._copied(function.outputs.values(), count)

    @abstractmethod
    def fill(self, inputs: Mapping[str, np.ndarray], columns: Mapping[str, np.ndarray],
             rows: slice | np.ndarray, count: int) -> None:
        """Sets the inputs of the first batches: consecutive rows of the columns, or rows by their
        numbers. The other `inputs` are the same for all batches."""

    @abstractmethod
    def _places(self, batch: int) -> list[tuple[DeviceBuffer, int]]:
        """The buffer and offset of each input of a batch."""

    @abstractmethod
    def _copied_in(self, count: int) -> tuple[DeviceBuffer, np.ndarray]:
        """What is copied to the device before so many batches run."""

    def _before(self) -> None:  # noqa: B027
        """Submits work that comes before the launches."""

    def _alloc(self, nbytes: int) -> DeviceBuffer:
        self._buffers.append(self._device.alloc(max(1, nbytes)))
        return self._buffers[-1]

    def _copied(self, tensors: Iterable[TensorSpec], count: int) -> tuple[PortBlock, DeviceBuffer]:
        """A block of the host, and the buffer that it is copied to or from."""
        block = PortBlock(tensors, count)
        buffer = self._alloc(block.array.nbytes)
        self._device.pin(block.array)
        self._blocks.append(block)
        return block, buffer

    def submit(self, count: int) -> None:
        """Starts the first batches."""
        run, program = self._runs.get(count) or self._recorded(count), self._program
        with program.lock:
            program.prepare_run(self._function)
            self._in_flight.append(self)
            self._before()
            self._begin(run.recording, self._copied_in(count)[0], run.inputs,
                        self._output_buffer, run.outputs)

    def _begin(self, recording: Recording, *copies: Any) -> None:
        """Submits a recording with its copies."""
        ticket = self._device.submit(recording, *copies)
        if ticket is not None:
            self._tickets.append(ticket)

    def finish(self) -> None:
        """Waits for the batches in flight, if any."""
        if self in self._in_flight:
            self._in_flight.remove(self)
        while self._tickets:
            self._device.finish(self._tickets.pop(0))

    def _recorded(self, count: int) -> _Run:
        launches: list[Launch] = []
        for k in range(count):
            places = {"inputs": self._places(k), "outputs": [
                (self._output_buffer, at) for at in self.outputs.offsets(k)]}
            first, *others = (x for _, x in self._program.launches(self._function, places))
            launches += [first._replace(barrier=True), *others]
        run = _Run(self._device.record(self._program.module, launches),
                   self._copied_in(count)[1], self.outputs.first(count))
        return self._runs.setdefault(count, run)

    def __del__(self) -> None:
        if not hasattr(self, "_runs") or self._device.closed:
            return
        for buffer in self._buffers:  # this drops the recordings that use them
            self._device.free(buffer)
        for block in self._blocks:
            self._device.unpin(block.array)


def batches_of_a_call(function: FunctionSpec) -> int:
    """How many batches of a function are worth a call; less than 2 if each is a call of its
    own."""
    *_, nbytes = offsets_of(function.inputs.values())
    return min(MOST_STEPS, MOST_LAUNCHES // max(1, function.runs), MOST_BYTES // max(1, nbytes))


class UploadedBatches(SeveralBatches):
    """Batches whose rows the host gathers. All go to the device in one copy.

    Args:
        program: The program on a device.
        function: The function of the call.
        count: The most batches.
        in_flight: Contains this object during a run.
    """

    def __init__(self, program: OnDevice, function: FunctionSpec, count: int,
                 in_flight: list[SeveralBatches]):
        super().__init__(program, function, count, in_flight)
        self._inputs, self._input_buffer = self._copied(function.inputs.values(), count)

    @classmethod
    def of(cls, program: OnDevice, function: FunctionSpec,
           in_flight: list[SeveralBatches]) -> UploadedBatches | None:
        """Memory for as many batches as are worth it; None if each is a call of its own."""
        count = batches_of_a_call(function)
        if count < 2:
            return None
        try:
            return cls(program, function, count, in_flight)
        except OutOfMemory:
            return None

    def fill(self, inputs: Mapping[str, np.ndarray], columns: Mapping[str, np.ndarray],
             rows: slice | np.ndarray, count: int) -> None:
        for name, target in self._inputs.batches.items():
            column = columns.get(name)
            target[:count] = inputs[name] if column is None else (
                column[rows].reshape(count, *target.shape[1:]))

    def _places(self, batch: int) -> list[tuple[DeviceBuffer, int]]:
        return [(self._input_buffer, at) for at in self._inputs.offsets(batch)]

    def _copied_in(self, count: int) -> tuple[DeviceBuffer, np.ndarray]:
        return self._input_buffer, self._inputs.first(count)


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
        self._begun_rows: slice | np.ndarray = slice(0)  # their rows

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
        self._several.fill(self.call.inputs, self._columns, rows, count)
        self._several.submit(count)
        self._begun, self._begun_rows = count, rows

    def finish(self) -> int:
        assert self._begun, "no run is in flight"
        count, self._begun = self._begun, 0
        self._several.finish()
        if self._finite and self._scores:
            _, losses, _ = self._scores[0]
            bad = np.flatnonzero(~np.isfinite(losses[:count]).all(1))
            if len(bad):  # training ends, and its error describes the inputs of this batch
                count = int(bad[0]) + 1
                self._read_inputs(count - 1)
        for sums, values, weight in self._scores:
            weighted = values[:count].astype(np.float64) * weight
            sums[...] = np.add.accumulate(np.vstack([sums, weighted]))[-1]  # in order
        # The inputs of the call stay: they may hold the next batch already.
        for name, array in self.call.outputs.items():
            array[...] = self._several.outputs.batches[name][count - 1]
        return count

    def _read_inputs(self, batch: int) -> None:
        """Sets the inputs of the call to a batch of the last run."""
        rows, at = self._begun_rows, batch * self._rows
        if isinstance(rows, slice):
            rows = np.arange(rows.start, rows.stop)
        for name, column in self._columns.items():
            self.call.inputs[name][...] = column[rows[at:at + self._rows]]
