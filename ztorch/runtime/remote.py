"""A loaded program on a device with separate memory, where its weights and arena stay.

Each call copies its inputs to the device, replays recorded launches, and copies its outputs back:
per training step that is the batch and a few numbers.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.abi import LIBRARY_CALL, runs
from ztorch.backends.device import Device
from ztorch.backends.handles import (
    Binding,
    DeviceBuffer,
    DevicePiece,
    KernelEntry,
    Launch,
    Recording,
    TensorMap,
)
from ztorch.dtypes import storage_dtype
from ztorch.errors import OutOfMemory
from ztorch.host.memory import aligned
from ztorch.runtime.device_check import check_device
from ztorch.runtime.loaded_program import BoundCall, LoadedProgram, MemoryCall, NativeSteps
from ztorch.runtime.port_blocks import PortBlock
from ztorch.runtime.remote_ports import RemotePorts
from ztorch.runtime.spec import FunctionSpec, ProgramSpec, StateSpec, TensorSpec

if TYPE_CHECKING:
    from ztorch.runtime.kept_columns import KeptColumns
    from ztorch.runtime.remote_steps import SeveralBatches

MAX_RECORDINGS = 16  # recordings of a function on different buffers that are kept for reuse


class Remote(LoadedProgram):
    """A loaded program on a device, which must stay open.

    Args:
        spec: The program.
        code: Its code.
        params: The first values of states and constants, which are copied to the device.
        device: The device.
    """

    def __init__(self, spec: ProgramSpec, code: bytes, params: np.ndarray, device: Device):
        check_device(spec, device)
        super().__init__(spec, code, device.id, spec.host_bytes)
        self.opened_device = device
        self.calls_libraries = any(
            code[at:at + len(LIBRARY_CALL)] == LIBRARY_CALL for _, at, *_ in spec.entries)
        self.module = device.load(code, [
            entry._replace(maps=tuple(TensorMap(*m) for m in entry.maps))
            for entry in (KernelEntry(*e) for e in spec.kernel_entries)])
        self._params = self._allocate("its weights", spec.params_bytes, "make layers smaller")
        self._arena = self._allocate("the results of its layers", spec.arena_bytes,
                                     "compile with a smaller batch_size")
        self.write_params(params)

    def _allocate(self, contents: str, nbytes: int, fix: str) -> DeviceBuffer:
        try:
            return self.opened_device.alloc(max(nbytes, 1))
        except OutOfMemory as error:
            raise OutOfMemory(f"program {self.name!r} needs {nbytes:,} bytes of {self.device} for "
                              f"{contents}: {fix}. {error}") from None

    def bind(self, function: str) -> RemoteCall:
        return RemoteCall(self, self.functions[function])

    def bind_memory(self, function: str) -> RemoteMemoryCall:
        return RemoteMemoryCall(self, self.functions[function])

    def buffer(self, space: str) -> DeviceBuffer:
        """The buffer of params or of the arena."""
        return self._params if space == "params" else self._arena

    def keep(self, columns: Mapping[str, np.ndarray]) -> KeptColumns | None:
        from ztorch.runtime.kept_columns import KeptColumns  # not needed to predict

        return KeptColumns.of(self.opened_device, columns)

    def recorded(self, function: FunctionSpec,
                 ports: Mapping[str, Sequence[tuple[DeviceBuffer, int]]]) -> Recording:
        """Records a function. `ports` has the buffer and byte offset of each input and output."""
        launches = [launch for _, launch in self.launches(function, ports)]
        return self.opened_device.record(self.module, launches)

    def launches(self, function: FunctionSpec,
                 ports: Mapping[str, Sequence[tuple[DeviceBuffer, int]]],
                 ) -> Iterator[tuple[int, Launch]]:
        """The launches of a function in order, with loops unrolled; each with its number in the
        function."""
        moves: dict[tuple[int, int], dict[int, int]] = {}  # bytes per iteration, by place and loop
        for k, place, loop, stride in function.moves:
            moves.setdefault((k, place), {})[loop] = stride
        for k, iterations in runs(len(function.launches), function.loops):
            launch, bindings = function.launches[k], []
            for n, (space, at, nbytes, written) in enumerate(launch.places):
                buffer, at = ports[space][at] if space in ports else (self.buffer(space), at)
                at += sum(iterations[loop] * stride
                          for loop, stride in moves.get((k, n), {}).items())
                bindings.append(Binding(buffer, at, nbytes, written))
            yield k, Launch(launch.entry, launch.grid, tuple(bindings), launch.barrier)

    @property
    def params(self) -> np.ndarray:
        block = aligned(self.spec.params_bytes)
        self.opened_device.read(self._params, block)
        return block

    def write_params(self, block: np.ndarray) -> None:
        """Sets all states and constants at once."""
        self.opened_device.write(self._params, block)
        self.weights_changed()

    def _read_state(self, state: StateSpec) -> np.ndarray:
        memory = state.memory
        value = np.empty(memory.shape, storage_dtype(state.dtype).numpy)
        self.opened_device.read(self._params, value.reshape(-1), state.offset)
        return value if state.order is None else state.order.read(value, state.shape).copy()

    def _write_state(self, state: StateSpec, value: np.ndarray) -> None:
        stored = np.ascontiguousarray(state.arrange(
            value.astype(storage_dtype(state.dtype).numpy)))
        self.opened_device.write(self._params, stored, state.offset)

    def _copy_state(self, state: StateSpec, memory: DeviceBuffer, into_state: bool) -> None:
        if state.order is not None:  # the host rearranges the numbers
            if into_state:
                value = np.empty(state.shape, storage_dtype(state.dtype).numpy)
                self.opened_device.read(memory, value.reshape(-1))
                self._write_state(state, value)
            else:
                self.opened_device.write(memory, self._read_state(state))
        elif into_state:
            self.opened_device.copy(memory, self._params, state.nbytes, 0, state.offset)
        else:
            self.opened_device.copy(self._params, memory, state.nbytes, state.offset, 0)

    def __del__(self) -> None:
        module = getattr(self, "module", None)
        if module is None or self.opened_device.closed:
            return
        self.opened_device.unload(module)
        for name in ("_params", "_arena"):
            if hasattr(self, name):
                self.opened_device.free(getattr(self, name))


class RemoteCall(BoundCall):
    """A function with its own arrays of inputs and outputs. A run is a copy to the device, a replay
    and a copy back."""

    _ticket: Any = None  # ticket of the run in flight

    def __init__(self, program: Remote, function: FunctionSpec):
        super().__init__(program, function)
        # All inputs are views of one block, and all outputs of another, so one copy is enough.
        inputs, outputs = (PortBlock(t.values()) for t in (function.inputs, function.outputs))
        self.inputs, self._input_block = inputs.arrays, inputs.array
        self.outputs, self._output_block = outputs.arrays, outputs.array
        self.ports = RemotePorts(program, function)
        for block in (self._input_block, self._output_block):
            self.ports.device.pin(block)
        self._remote, self.overlaps = program, self.ports.device.overlaps
        self._in_flight: list[SeveralBatches] = []

    def steps(self, columns: Mapping[str, np.ndarray],
              kept_columns: KeptColumns | None = None) -> NativeSteps | None:
        from ztorch.runtime.remote_steps import RemoteSteps  # not needed to predict

        return RemoteSteps.of(self, columns, lambda: (kept_columns and kept_columns.batches(
            self, self._remote, columns, self._in_flight)) or self._several)

    @functools.cached_property
    def _several(self) -> SeveralBatches | None:
        from ztorch.runtime.remote_steps import UploadedBatches

        return UploadedBatches.of(self._remote, self.function, self._in_flight)

    def __call__(self) -> None:
        self.start()
        self.finish()

    def start(self) -> None:
        self.finish()
        program = self.program
        with program.lock:
            if program.stale:
                program.refresh()
            self._submit()

    def finish(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self.ports.device.finish(ticket)
        while self._in_flight:
            self._in_flight[0].finish()

    def release(self) -> None:
        self.finish()

    def run(self) -> None:
        self._submit()
        self.finish()

    def _submit(self) -> None:
        ports = self.ports
        self._ticket = ports.device.submit(ports.recording, ports.inputs, self._input_block,
                                           ports.outputs, self._output_block)

    def __del__(self) -> None:
        if hasattr(self, "ports") and not self.ports.device.closed:
            self.ports.device.unpin(self._input_block)
            self.ports.device.unpin(self._output_block)


class RemoteMemoryCall(MemoryCall):
    """A function that reads and writes buffers of the device. Its launches are recorded for these
    buffers, and replayed when they are passed again, as buffers of a pool often are."""

    def __init__(self, program: Remote, function: FunctionSpec):
        super().__init__(program, function)
        self._remote = program
        self._recordings: OrderedDict[tuple[DeviceBuffer, ...], Recording] = OrderedDict()

    @functools.cached_property
    def _ports(self) -> RemotePorts:
        """Buffers for operands that are in pieces, or share a buffer."""
        return RemotePorts(self._remote, self.function)

    def run(self, inputs: Sequence[DeviceBuffer | Sequence[DevicePiece]],
            outputs: Sequence[DeviceBuffer | Sequence[DevicePiece]]) -> None:
        """Runs the function. An input or output may be in several pieces, one after the other."""
        buffers = tuple([b for b in (*inputs, *outputs) if isinstance(b, DeviceBuffer)])
        if len({*buffers}) == len(inputs) + len(outputs):
            self._remote.opened_device.run(self._recording(buffers))
        else:
            self._run_on_ports(inputs, outputs)

    def _recording(self, buffers: tuple[DeviceBuffer, ...]) -> Recording:
        """The recording for these buffers: of each input, then of each output."""
        recording = self._recordings.pop(buffers, None)
        if recording is None or not recording.live:
            count = len(self.function.inputs)
            places = {"inputs": [(b, 0) for b in buffers[:count]],
                      "outputs": [(b, 0) for b in buffers[count:]]}
            recording = self._remote.recorded(self.function, places)
        self._recordings[buffers] = recording  # now the most recent one
        if len(self._recordings) > MAX_RECORDINGS:
            _, oldest = self._recordings.popitem(last=False)
            self._remote.opened_device.drop(oldest)
        return recording

    def _run_on_ports(self, inputs: Sequence[DeviceBuffer | Sequence[DevicePiece]],
                      outputs: Sequence[DeviceBuffer | Sequence[DevicePiece]]) -> None:
        ports, device = self._ports, self._ports.device
        tensors = zip(self.function.inputs.values(), ports.input_offsets, inputs, strict=True)
        for tensor, at, place in tensors:
            for piece in _pieces(place, tensor):
                device.copy(piece.buffer, ports.inputs, piece.nbytes, piece.at, at)
                at += piece.nbytes
        device.run(ports.recording)
        results = zip(self.function.outputs.values(), ports.output_offsets, outputs, strict=True)
        for tensor, at, place in results:
            for piece in _pieces(place, tensor):
                device.copy(ports.outputs, piece.buffer, piece.nbytes, at, piece.at)
                at += piece.nbytes

    def __del__(self) -> None:
        device = self._remote.opened_device
        if not device.closed:
            for recording in self._recordings.values():
                device.drop(recording)


def _pieces(place: DeviceBuffer | Sequence[DevicePiece],
            tensor: TensorSpec) -> Sequence[DevicePiece]:
    """The pieces of a tensor: those given, or the start of a buffer."""
    return [DevicePiece(place, 0, tensor.nbytes)] if isinstance(place, DeviceBuffer) else place
