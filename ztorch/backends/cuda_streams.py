"""Streams and events of CUDA: queues that wait for one another on the device."""

from __future__ import annotations

from typing import Any, Protocol

from ztorch.backends.handles import Recording
from ztorch.backends.streams import Event, Queue, Stream, not_reached


class Queues(Queue, Protocol):
    """The methods of a device that streams and events use."""

    def run_in(self, queue: Any, recording: Recording) -> None: ...

    def call_in(self, queue: Any, name: str, *args: Any) -> Any: ...

    def reached(self, event: Any) -> bool: ...

    def forget_stream(self, queue: Any) -> None: ...

    def forget_event(self, event: Any) -> None: ...


class CudaStream(Stream):
    """A queue of the device. The device reuses it once the stream is garbage-collected."""

    device: Queues

    def __init__(self, device: Queues, queue: Any):
        super().__init__(device)
        self.queue = queue

    def call(self, name: str, *args: Any) -> Any:
        """Calls a function of the driver for this stream."""
        return self.device.call_in(self.queue, name, *args)

    def run(self, recording: Recording) -> None:
        self.device.run_in(self.queue, recording)

    def event(self) -> CudaEvent:
        return CudaEvent(self)

    def wait(self, event: Event) -> None:
        super().wait(event)
        assert isinstance(event, CudaEvent)
        self.call("StreamWaitEvent", self.queue, event.handle, 0)

    def synchronize(self) -> None:
        self.call("StreamSynchronize", self.queue)

    def __del__(self) -> None:
        self.device.forget_stream(self.queue)


class CudaEvent(Event):
    """A point in a stream for which the device itself records the time."""

    stream: CudaStream

    def __init__(self, stream: CudaStream):
        super().__init__(stream)
        self.handle = stream.call("EventCreate", 0)
        stream.call("EventRecord", self.handle, stream.queue)

    def done(self) -> bool:
        return self.stream.device.reached(self.handle)

    def synchronize(self) -> None:
        self.stream.call("EventSynchronize", self.handle)

    def seconds_since(self, earlier: Event) -> float:
        if not isinstance(earlier, CudaEvent) or not (self.done() and earlier.done()):
            raise not_reached(self.stream.device.id)
        return self.stream.call("EventElapsedTime", earlier.handle, self.handle) / 1000

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self.stream.device.forget_event(self.handle)
