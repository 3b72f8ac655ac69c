"""Streams and events: separate orders of work, and marks in them to wait for.

Work in one stream happens in order; streams wait for one another only where they are told to. The
classes here serve drivers with a single queue: all streams share it, which is a stricter order than
was asked for and never a wrong one. A driver with several queues overrides `Device._stream`.
"""

from __future__ import annotations

import time
from typing import Protocol

from ztorch.backends.handles import Recording
from ztorch.errors import DeviceError


class Queue(Protocol):
    """What a stream needs of its device."""

    id: str

    def run(self, recording: Recording) -> None: ...

    def synchronise(self) -> None: ...


class Event:
    """A mark in a stream: reached once all earlier work in the stream is done."""

    def __init__(self, stream: Stream):
        self.stream = stream
        self._reached: float | None = None

    def done(self) -> bool:
        """Whether it was reached. Does not wait."""
        return self._reached is not None

    def synchronise(self) -> None:
        """Waits until it is reached."""
        if self._reached is None:
            self.stream.synchronise()

    def seconds_since(self, earlier: Event) -> float:
        """The time between two events that were reached, as the host saw them."""
        if self._reached is None or earlier._reached is None:
            raise not_reached(self.stream.device.id)
        return self._reached - earlier._reached

    def reached(self) -> None:
        """Notes the time; called by its stream."""
        if self._reached is None:
            self._reached = time.perf_counter()


def not_reached(device: str) -> DeviceError:
    """The error of those who ask for the time between events too early."""
    return DeviceError(f"{device}: the time between events is known once both are reached; "
                       "synchronise first")


class Stream:
    """An order of launches on a device with one queue."""

    def __init__(self, device: Queue):
        self.device = device
        self._events: list[Event] = []

    def run(self, recording: Recording) -> None:
        """Replays launches after all earlier work of this stream."""
        self.device.run(recording)

    def event(self) -> Event:
        """An event after all earlier work of this stream."""
        event = Event(self)
        self._events.append(event)
        return event

    def wait(self, event: Event) -> None:
        """Later work of this stream happens after the event."""
        if event.stream.device is not self.device:
            raise DeviceError(f"{self.device.id}: an event of {event.stream.device.id}; wait for "
                              "it on the host with its synchronise()")

    def synchronise(self) -> None:
        """Waits until all work of this stream is done."""
        self.device.synchronise()
        events, self._events = self._events, []
        for event in events:
            event.reached()
