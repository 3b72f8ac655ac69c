"""Columns of a data set that stay in a device's memory, where the rows of batches are gathered.

The host sends numbers of rows alone. The kernels that gather are compiled for the sizes of the
columns, by the compiler where it is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

import numpy as np

from ztorch import dispatch
from ztorch.abi import PORT_ALIGN
from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceBuffer
from ztorch.dtypes import i32
from ztorch.errors import OutOfMemory, Unsupported
from ztorch.runtime.loaded_program import BoundCall
from ztorch.runtime.remote_steps import OnDevice, SeveralBatches, batches_of_a_call
from ztorch.runtime.spec import FunctionSpec, TensorSpec

MOST_OF_FREE = 0.5  # share of a device's free memory that columns may take; a guess
# Devices that gather faster than the host sends rows. Others play a device on the host's processor.
KINDS = ("gpu", "integrated")


class KeptColumns:
    """The columns in a device's memory, and the memory of calls that gather from them.

    Args:
        device: The device.
        columns: All rows of some inputs.
    """

    def __init__(self, device: Device, columns: Mapping[str, np.ndarray]):
        self.device = device
        self.buffers: dict[str, DeviceBuffer] = {}
        self._batches: dict[BoundCall, KeptBatches | None] = {}
        self._gathers: dict[str, Any] = {}  # programs by the sizes of what they copy
        for name, column in columns.items():
            self.buffers[name] = device.alloc(column.nbytes)
            device.write(self.buffers[name], column)

    @classmethod
    def of(cls, device: Device, columns: Mapping[str, np.ndarray]) -> KeptColumns | None:
        """The columns on a device; None if they would take too much of its memory, or gain
        nothing."""
        if device.info.kind not in KINDS:
            return None
        free, _ = device.memory()
        if sum(column.nbytes for column in columns.values()) > free * MOST_OF_FREE:
            return None
        try:
            return cls(device, columns)
        except OutOfMemory:
            return None

    def batches(self, call: BoundCall, program: OnDevice, columns: Mapping[str, np.ndarray],
                in_flight: list[SeveralBatches]) -> KeptBatches | None:
        """Memory for batches of a call; None if the device has no room for it, or the kernels
        cannot be compiled."""
        if call not in self._batches:
            try:
                self._batches[call] = KeptBatches(program, call.function, columns, self.buffers,
                                                  self._gathers, in_flight)
            except (OutOfMemory, Unsupported, ModuleNotFoundError):
                self._batches[call] = None
        return self._batches[call]

    def __del__(self) -> None:
        if not self.device.closed:
            self._batches.clear()
            for buffer in self.buffers.values():
                self.device.free(buffer)


class KeptBatches(SeveralBatches):
    """Batches whose rows the device gathers from columns in its memory.

    Args:
        program: The program on a device.
        function: The function of the call.
        columns: All rows of some of its inputs.
        buffers: The same in the device's memory.
        gathers: The programs that gather, by the sizes of what they copy.
        in_flight: Contains this object during a run.
    """

    def __init__(self, program: OnDevice, function: FunctionSpec,
                 columns: Mapping[str, np.ndarray], buffers: Mapping[str, DeviceBuffer],
                 gathers: dict[str, Any], in_flight: list[SeveralBatches]):
        super().__init__(program, function, max(1, batches_of_a_call(function)), in_flight)
        gathered = {name: function.inputs[name] for name in columns}
        padded = {name: _aligned_rows(t) for name, t in gathered.items()}
        self._same, self._same_buffer = self._copied(
            [t for name, t in function.inputs.items() if name not in columns], 1)
        self._numbers, self._number_buffer = self._copied(
            [TensorSpec(name, (self.count, rows), i32) for name, rows in padded.items()], 1)
        self._nothing = np.empty(0, np.uint8)  # is copied back after rows are gathered
        self._strides = {name: rows * _row_bytes(gathered[name]) for name, rows in padded.items()}
        self._rows = {name: self._alloc(self.count * n) for name, n in self._strides.items()}
        counts = {name: self.count * rows for name, rows in padded.items()}
        if (key := repr(counts)) not in gathers:
            gathers[key] = dispatch.row_gather(self._device.id, {
                name: (column.shape, gathered[name].dtype) for name, column in columns.items()},
                counts)
        self._gather = gathers[key]  # it must live as long as its recording
        function = self._gather.functions["gather"]
        numbers_at = dict(zip(padded, self._numbers.offsets(), strict=True))
        self._gather_recording = self._gather.recorded(function, {
            "inputs": [(buffers[name], 0) if kind == "column" else
                       (self._number_buffer, numbers_at[name])
                       for kind, _, name in (port.partition("/") for port in function.inputs)],
            "outputs": [(self._rows[name], 0) for name in function.outputs]})

    def fill(self, inputs: Mapping[str, np.ndarray], columns: Mapping[str, np.ndarray],
             rows: slice | np.ndarray, count: int) -> None:
        for name, target in self._same.arrays.items():
            target[...] = inputs[name]
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        flat = numbers.reshape(count, -1)
        for target in self._numbers.arrays.values():
            target[:count, :flat.shape[1]] = flat

    def _places(self, batch: int) -> list[tuple[DeviceBuffer, int]]:
        of_same = dict(zip(self._same.arrays, self._same.offsets(), strict=True))
        return [(self._same_buffer, of_same[name]) if name in of_same else
                (self._rows[name], batch * self._strides[name]) for name in self._function.inputs]

    def _copied_in(self, count: int) -> tuple[DeviceBuffer, np.ndarray]:
        return self._same_buffer, self._same.array

    def _before(self) -> None:
        self._begin(self._gather_recording, self._number_buffer, self._numbers.array,
                    self._number_buffer, self._nothing)


def _row_bytes(t: TensorSpec) -> int:
    return t.nbytes // t.shape[0]


def _aligned_rows(t: TensorSpec) -> int:
    """The rows of a batch, and as many more as it takes for the next batch to be aligned."""
    unit = PORT_ALIGN // gcd(PORT_ALIGN, _row_bytes(t))
    return -(-t.shape[0] // unit) * unit
