"""Streams (ordered sequences of work) and events (points in a stream that can be waited for).

Work in one stream runs in order. Streams wait for each other only at events. The classes here are
for drivers with a single queue, which all streams share: a stricter order than necessary, but
always correct. A driver with several queues overrides `Device._stream`.
"""

from __future__ import annotations

import time
from typing import Protocol

from ztorch.backends.handles import Recording
from ztorch.errors import ConfigError, DeviceError


class Queue(Protocol):
    """The methods of a device that a stream uses."""

    id: str

    def run(self, recording: Recording) -> None: ...

    def synchronize(self) -> None: ...


class Event:
    """A point in a stream, reached when all earlier work of the stream is done."""

    def __init__(self, stream: Stream):
        self.stream = stream
        self._reached: float | None = None

    def done(self) -> bool:
        """Whether the event is known to be reached. Does not wait."""
        return self._reached is not None

    def synchronize(self) -> None:
        """Waits until the event is reached."""
        if self._reached is None:
            self.stream.synchronize()

    def seconds_since(self, earlier: Event) -> float:
        """Seconds between two reached events, measured on the host."""
        if self._reached is None or earlier._reached is None:
            raise not_reached(self.stream.device.id)
        return self._reached - earlier._reached

    def reached(self) -> None:
        """Records the time; called by the stream."""
        if self._reached is None:
            self._reached = time.perf_counter()


def not_reached(device: str) -> DeviceError:
    """The error for a time between events that are not both reached."""
    return DeviceError(f"{device}: the time between two events is known when both are reached; "
                       "call their synchronize() first")


class Stream:
    """An ordered sequence of launches on a device with one queue."""

    def __init__(self, device: Queue):
        self.device = device
        self._events: list[Event] = []

    def run(self, recording: Recording) -> None:
        """Runs a recording after all earlier work of this stream."""
        self.device.run(recording)

    def event(self) -> Event:
        """An event after all earlier work of this stream."""
        event = Event(self)
        self._events.append(event)
        return event

    def wait(self, event: Event) -> None:
        """Makes later work of this stream wait for the event."""
        if not isinstance(event, Event):
            raise ConfigError(f"{self.device.id}: a stream waits for an event, not for {event!r}")
        if event.stream.device is not self.device:
            raise DeviceError(f"{self.device.id}: an event of {event.stream.device.id} is on "
                              "another device; wait for it on the host with its synchronize()")

    def synchronize(self) -> None:
        """Waits until all work of this stream is done."""
        self.device.synchronize()
        events, self._events = self._events, []
        for event in events:
            event.reached()
