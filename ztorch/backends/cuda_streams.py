"""Streams and events of CUDA: queues on the device, which wait for one another there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztorch.backends.streams import Event, Stream
from ztorch.errors import DeviceError

if TYPE_CHECKING:
    from ztorch.backends.device import Recording
    from ztorch.backends.drivers.cuda import CudaDevice


class CudaStream(Stream):
    """A queue of the device, which takes it back when the stream is no more."""

    device: CudaDevice

    def __init__(self, device: CudaDevice, queue: Any):
        super().__init__(device)
        self.queue = queue

    def run(self, recording: Recording) -> None:
        self.device.run_in(self.queue, recording)

    def event(self) -> CudaEvent:
        return CudaEvent(self)

    def wait(self, event: Event) -> None:
        super().wait(event)
        assert isinstance(event, CudaEvent)
        self.device.order(self.queue, "cuStreamWaitEvent", self.queue, event.handle, 0)

    def synchronise(self) -> None:
        self.device.order(self.queue, "cuStreamSynchronize", self.queue)

    def __del__(self) -> None:
        self.device.forget(queue=self.queue)


class CudaEvent(Event):
    """A mark that the device itself passes, and notes the time."""

    stream: CudaStream

    def __init__(self, stream: CudaStream):
        super().__init__(stream)
        self.handle = stream.device.order(stream.queue, "cuEventCreate", 0)
        stream.device.order(stream.queue, "cuEventRecord", self.handle, stream.queue)

    def done(self) -> bool:
        return self.stream.device.reached(self.handle)

    def synchronise(self) -> None:
        self.stream.device.order(self.stream.queue, "cuEventSynchronize", self.handle)

    def seconds_since(self, earlier: Event) -> float:
        if not isinstance(earlier, CudaEvent) or not (self.done() and earlier.done()):
            raise DeviceError(f"{self.stream.device.id}: the time between events is known once "
                              "both are reached; synchronise first")
        return self.stream.device.order(
            self.stream.queue, "cuEventElapsedTime", earlier.handle, self.handle) / 1000

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self.stream.device.forget(event=self.handle)
