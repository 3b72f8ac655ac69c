"""The contract of devices with separate memory, which every driver keeps.

The public methods are written once, for all drivers. Closing twice is harmless. A closed device, a
freed buffer, a range outside a buffer and a buffer of another device are errors before any driver
sees them. Several threads may use a device at once.
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
    """One opened device: memory, code and the order in which things happen on it.

    Work happens in the order in which it is submitted. Copies to and from the host are done when
    they return; `run` may return before its launches are done, which `synchronise` waits for.
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

    # -- life ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Frees all that it holds; a second time does nothing."""
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
        """Whether it can no longer be used: closed, or left behind by a fork."""
        return self._closed or self._process != os.getpid()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _need_open(self) -> None:
        self.need_own_process()
        if self._closed:
            raise DeviceError(f"device {self.id} is closed; open it again")

    def need_own_process(self) -> None:
        """An error in a forked child."""
        if self._process != os.getpid():
            raise DeviceError(f"device {self.id} was opened before this process was forked, and no "
                              "driver survives that; start processes with "
                              "multiprocessing.get_context('spawn')")

    # -- code ------------------------------------------------------------------------------------

    def load(self, code: bytes, entries: Sequence[KernelEntry]) -> DeviceModule:
        """Loads the kernels of a program."""
        with self._guard:
            self._need_open()
            for e in entries:
                if e.at < 0 or e.size < 1 or e.at + e.size > len(code):
                    raise DeviceError(f"{self.id}: kernel {e.name!r} is outside its code")
            module = DeviceModule(self, tuple(entries), self._load(code, tuple(entries)))
            self._modules.append(module)
            return module

    def unload(self, module: DeviceModule) -> None:
        """Unloads the code; a second time does nothing."""
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
        """Frees a recording; a second time does nothing."""
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
        """Submits three steps: a copy of a byte array to the device, launches, and a copy from the
        start of a buffer to another byte array. `finish` waits for the result of this call. Until
        then the arrays and the two buffers belong to the device: the copy may overlap earlier
        work."""
        with self._guard:
            self._need_live(recording)
            self._need(inputs, 0, data_in.nbytes)
            self._need(outputs, 0, data_out.nbytes)
            return self._submit(recording.handle, inputs.handle, data_in, outputs.handle, data_out)

    def finish(self, ticket: Any) -> None:
        """Waits for submitted work; other threads may use the device meanwhile."""
        self._need_open()
        self._finish(ticket)

    def pin(self, block: np.ndarray) -> None:
        """Has copies from and to a block of this machine's memory go without a detour, if the
        driver can. The block lives until it is given back by `unpin`, or the device is closed."""
        with self._guard:
            self._need_open()
            self._pin(block)

    def unpin(self, block: np.ndarray) -> None:
        """Gives back a block; at any time, so the driver hears of it later."""
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
            self.synchronise()
            self.drop(recording)

    def synchronise(self) -> None:
        """Waits until all submitted work is done."""
        with self._guard:
            self._need_open()
            self._synchronise()

    def stream(self) -> Stream:
        """A new stream, whose launches are ordered among themselves only."""
        with self._guard:
            self._need_open()
            return self._stream()

    def _stream(self) -> Stream:
        return Stream(self)



