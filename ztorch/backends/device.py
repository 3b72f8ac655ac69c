"""The interface of devices with separate memory, the same for all drivers.

The public methods are written once. They check their arguments before they call the driver: use of
a closed device, a freed buffer, a range outside a buffer or a buffer of another device raises an
error. Closing twice is harmless. Several threads may use a device at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.backends.device_memory import DeviceMemory
from ztorch.backends.handles import (
    DeviceBuffer,
    DeviceInfo,
    DeviceModule,
    KernelEntry,
    Launch,
    Recording,
)
from ztorch.backends.streams import Stream
from ztorch.errors import DeviceError
from ztorch.locks import new_rlock


class Device(DeviceMemory):
    """An open device: its memory, its code and its queue of work.

    Work runs in the order in which it is submitted. `read` and `write` return when their copy is
    done. `run` may return earlier; `synchronize` waits for its launches.
    """

    def __init__(self, backend: str, info: DeviceInfo):
        self.backend = backend
        self.info = info
        self.id = f"{backend}:{info.ordinal}"
        self._guard = new_rlock()
        self._buffers: set[DeviceBuffer] = set()
        self._modules: list[DeviceModule] = []
        self._recordings: list[Recording] = []
        self._closed = False
        self._process = os.getpid()

    # -- opening and closing ---------------------------------------------------------------------

    def close(self) -> None:
        """Frees all buffers, code and recordings. A second call does nothing."""
        if self._closed or self._process != os.getpid():  # a forked child has nothing to close
            return
        with self._guard:
            for recording in list(self._recordings):
                self.drop(recording)
            for module in list(self._modules):
                self.unload(module)
            for buffer in list(self._buffers):
                self.free(buffer)
            self._closed = True
            self._close()

    @property
    def closed(self) -> bool:
        """Whether the device is unusable: it was closed, or opened before a fork."""
        return self._closed or self._process != os.getpid()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _need_open(self) -> None:
        if self._process != os.getpid():
            self.need_own_process()
        if self._closed:
            raise DeviceError(f"device {self.id} is closed; open it again")

    def need_own_process(self) -> None:
        """Raises an error in a forked child, where no driver works."""
        if self._process != os.getpid():
            raise DeviceError(f"device {self.id} was opened before this process was forked, and no "
                              "driver survives that; start processes with "
                              "multiprocessing.get_context('spawn')")

    # -- code ------------------------------------------------------------------------------------

    def load(self, code: bytes, entries: Sequence[KernelEntry]) -> DeviceModule:
        """Loads the kernels of a program; `entries` locates each of them in `code`."""
        with self._guard:
            self._need_open()
            for e in entries:
                if e.at < 0 or e.size < 1 or e.at + e.size > len(code):
                    raise DeviceError(f"{self.id}: kernel {e.name!r} is outside its code")
            module = DeviceModule(self, tuple(entries), self._load(code, tuple(entries)))
            self._modules.append(module)
            return module

    def unload(self, module: DeviceModule) -> None:
        """Unloads the code. A second call does nothing."""
        with self._guard:
            self._need_open()
            if module.live:
                module.live = False
                self._modules.remove(module)
                self._unload(module.handle)

    def record(self, module: DeviceModule, launches: Sequence[Launch]) -> Recording:
        """Prepares launches for replay, as a graph, a command buffer or a list of calls."""
        with self._guard:
            self._need_open()
            if not module.live or module.device is not self:
                raise DeviceError(f"{self.id}: this code is not loaded here")
            for launch in launches:
                for b in launch.bindings:
                    self._need(b.buffer, b.at, b.nbytes)
            handle = self._record(module, tuple(launches))
            buffers = frozenset(b.buffer for launch in launches for b in launch.bindings)
            recording = Recording(self, module, tuple(launches), buffers, handle)
            self._recordings.append(recording)
            return recording

    def drop(self, recording: Recording) -> None:
        """Frees a recording. A second call does nothing."""
        with self._guard:
            self._need_open()
            if recording.live:
                recording.live = False
                self._recordings.remove(recording)
                self._drop(recording.handle)

    def run(self, recording: Recording) -> None:
        """Replays the launches of a recording; may return before they are done."""
        with self._guard:
            self._need_live(recording)
            self._run(recording.handle)

    def submit(self, recording: Recording, inputs: DeviceBuffer, data_in: np.ndarray,
               outputs: DeviceBuffer, data_out: np.ndarray) -> Any:
        """Submits three steps: a copy to the device, launches, and a copy back to the host.

        The copies may overlap earlier work. Until `finish` returns, the arrays and both buffers
        must not be used.

        Args:
            recording: The launches.
            inputs: The buffer whose beginning receives `data_in`.
            data_in: Bytes of the host.
            outputs: The buffer whose beginning is copied to `data_out`.
            data_out: Bytes of the host.

        Returns:
            A ticket for `finish`.
        """
        with self._guard:
            self._need_live(recording)
            self._need(inputs, 0, data_in.nbytes)
            self._need(outputs, 0, data_out.nbytes)
            return self._submit(recording.handle, inputs.handle, data_in, outputs.handle, data_out)

    def finish(self, ticket: Any) -> None:
        """Waits for the work of a ticket. Meanwhile other threads may use the device."""
        self._need_open()
        self._finish(ticket)

    def pin(self, block: np.ndarray) -> None:
        """Pins a block of host memory, if the driver can, so that copies of it need no staging
        buffer. The device keeps the block alive until `unpin` or `close`."""
        with self._guard:
            self._need_open()
            self._pin(block)

    def unpin(self, block: np.ndarray) -> None:
        """Marks a block as no longer used. The driver unpins it at the next wait, so this may be
        called at any time, even during garbage collection."""
        self._unpin(block)

    def _need_live(self, recording: Recording) -> None:
        self._need_open()
        if not recording.live or not recording.module.live:
            raise DeviceError(f"{self.id}: this recording was dropped, or a buffer of it freed")

    def launch(self, module: DeviceModule, launch: Launch) -> None:
        """Runs one kernel and waits for it."""
        with self._guard:
            recording = self.record(module, [launch])
            self.run(recording)
            self.synchronize()
            self.drop(recording)

    def synchronize(self) -> None:
        """Waits until all submitted work is done."""
        with self._guard:
            self._need_open()
            self._synchronize()

    def stream(self) -> Stream:
        """A new stream, whose launches are ordered among themselves only."""
        with self._guard:
            self._need_open()
            return self._stream()

    def _stream(self) -> Stream:
        return Stream(self)



