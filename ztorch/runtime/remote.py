"""A program on a device with memory of its own: weights and arena stay there.

Each call copies its inputs to the device, replays the launches that were recorded once, and copies
its outputs back: per training step the batch and a few numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ztorch.abi import PORT_ALIGN, align_up
from ztorch.backends.device import Device
from ztorch.backends.handles import Binding, DeviceBuffer, KernelEntry, Launch
from ztorch.dtypes import lying
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.host.memory import aligned
from ztorch.runtime.running import BoundCall, Running
from ztorch.runtime.spec import FunctionSpec, ProgramSpec, StateSpec, TensorSpec


class Remote(Running):
    """Runs the functions of a program on a device, which must stay open meanwhile."""

    def __init__(self, spec: ProgramSpec, code: bytes, params: np.ndarray, device: Device):
        """`params` are the first values of states and constants, which are copied there."""
        check_device(spec, device)
        super().__init__(spec, code, device.id, spec.host_bytes)
        self.opened_device = device
        self.module = device.load(code, [KernelEntry(*e) for e in spec.entries])
        self._params = self._allocate("its weights", spec.params_bytes, "make layers smaller")
        self._arena = self._allocate("what its layers compute", spec.arena_bytes,
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

    def buffer(self, space: str) -> DeviceBuffer:
        """The memory of the device that holds params, or the arena."""
        return self._params if space == "params" else self._arena

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
        value = np.empty(state.shape, lying(state.dtype).numpy)
        self.opened_device.read(self._params, value.reshape(-1), state.offset)
        return value

    def _write_state(self, state: StateSpec, value: np.ndarray) -> None:
        stored = value.astype(lying(state.dtype).numpy)
        self.opened_device.write(self._params, stored, state.offset)

    def __del__(self) -> None:
        module = getattr(self, "module", None)
        if module is None or self.opened_device.closed:
            return
        self.opened_device.unload(module)
        for name in ("_params", "_arena"):
            if hasattr(self, name):
                self.opened_device.free(getattr(self, name))


def check_device(spec: ProgramSpec, device: Device) -> None:
    """An error, not wrong numbers, where the code needs what this device does not have."""
    if spec.backend != device.backend:
        raise DeviceError(f"{spec.name} was compiled for {spec.backend}, not for {device.id}")
    if spec.arch and spec.arch not in (device.info.chip, *device.info.runs):
        raise DeviceError(f"{spec.name} was compiled for {spec.backend}:{spec.arch}; {device.id} "
                          f"({device.info.name}) is {device.info.chip or 'not'}. Compile it "
                          "again for this device")
    limits = dict(device.info.limits)
    for name, needed in spec.limits:
        here = limits.get(name, needed)
        if here < needed or (name == "subgroup" and needed and here != needed):
            raise DeviceError(f"{spec.name} was compiled for {name}={needed}; {device.id} "
                              f"({device.info.name}) has {here}. Compile it again for this device")


class RemoteCall(BoundCall):
    """A function bound to arrays of its own; a run is two copies and a recording."""

    def __init__(self, program: Remote, function: FunctionSpec):
        super().__init__(program, function)
        self._device = program.opened_device
        # The arrays on this side are views of one block each, so that they travel in one copy.
        self.inputs, self._input_block = _arrays(function.inputs.values())
        self.outputs, self._output_block = _arrays(function.outputs.values())
        self._inputs_there = self._device.alloc(max(self._input_block.nbytes, 1))
        self._outputs_there = self._device.alloc(max(self._output_block.nbytes, 1))
        self._recording = self._device.record(program.module, self._launches(program))

    def _launches(self, program: Remote) -> list[Launch]:
        ports = {"inputs": (self._inputs_there, _offsets(self.function.inputs.values())),
                 "outputs": (self._outputs_there, _offsets(self.function.outputs.values()))}
        launches = []
        for launch in self.function.launches:
            bindings = []
            for space, at, nbytes, written in launch.places:
                if space in ports:
                    buffer, offsets = ports[space]
                    at = offsets[at]
                else:
                    buffer = program.buffer(space)
                bindings.append(Binding(buffer, at, nbytes, written))
            launches.append(Launch(launch.entry, launch.grid, tuple(bindings), launch.barrier))
        return launches

    def run(self) -> None:
        device = self._device
        if self.inputs:
            device.write(self._inputs_there, self._input_block)
        device.run(self._recording)
        if self.outputs:
            device.read(self._outputs_there, self._output_block)
        else:
            device.synchronise()

    def __del__(self) -> None:
        device = getattr(self, "_device", None)
        if device is None or device.closed:
            return
        for name in ("_inputs_there", "_outputs_there"):  # this drops the recording that uses them
            if hasattr(self, name):
                device.free(getattr(self, name))


def _offsets(tensors: Iterable[TensorSpec]) -> list[int]:
    """Where each tensor begins in the block of all, and the bytes of the block."""
    offsets = [0]
    for t in tensors:
        offsets.append(offsets[-1] + align_up(max(1, t.nbytes), PORT_ALIGN))
    return offsets


def _arrays(tensors: Iterable[TensorSpec]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """An array for each tensor, and the block that holds them."""
    specs = list(tensors)
    *offsets, total = _offsets(specs)
    block = aligned(total)
    return {t.name: block[at:at + t.nbytes].view(t.dtype.numpy).reshape(t.shape)
            for t, at in zip(specs, offsets, strict=True)}, block
