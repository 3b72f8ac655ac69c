"""Memory of a device for the inputs and outputs of a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceBuffer, Recording
from ztorch.runtime.port_blocks import offsets_of
from ztorch.runtime.spec import FunctionSpec


class RecordingProgram(Protocol):
    """A program on a device, as far as the memory of its calls must know it."""

    opened_device: Device

    def recorded(self, function: FunctionSpec,
                 ports: Mapping[str, Sequence[tuple[DeviceBuffer, int]]]) -> Recording: ...


class RemotePorts:
    """Buffers of a function's inputs and outputs on a device, and a recording that uses them."""

    def __init__(self, program: RecordingProgram, function: FunctionSpec):
        self.device = program.opened_device
        *self.input_offsets, input_bytes = offsets_of(function.inputs.values())
        *self.output_offsets, output_bytes = offsets_of(function.outputs.values())
        self.inputs = self.device.alloc(max(input_bytes, 1))
        self.outputs = self.device.alloc(max(output_bytes, 1))
        self.recording = program.recorded(function, self.places)

    @property
    def places(self) -> dict[str, list[tuple[DeviceBuffer, int]]]:
        """The buffer and offset of each input and output."""
        return {"inputs": [(self.inputs, at) for at in self.input_offsets],
                "outputs": [(self.outputs, at) for at in self.output_offsets]}

    def __del__(self) -> None:
        if self.device.closed:
            return
        for name in ("inputs", "outputs"):  # freeing them drops the recording
            if hasattr(self, name):
                self.device.free(getattr(self, name))
