"""Streams and events: work in orders of its own, and marks in them to wait for.

What is handed to one stream happens in order; streams wait for one another only where they are told
to. A driver with a single queue puts all streams into it, which is a stricter order than was asked
for and never a wrong one; a driver with more overrides `Device._stream`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ztorch.errors import DeviceError

if TYPE_CHECKING:
    from ztorch.backends.device import Device, Recording


class Event:
    """A mark in a stream: reached once all that came before it there is done."""

    def __init__(self, stream: Stream):
        self.stream = stream
        self._reached: float | None = None

    def done(self) -> bool:
        """Whether it was reached; does not wait."""
        return self._reached is not None

    def synchronise(self) -> None:
        """Waits until it is reached."""
        if self._reached is None:
            self.stream.synchronise()

    def seconds_since(self, earlier: Event) -> float:
        """The time between two marks that were reached, as far as the host saw it."""
        if self._reached is None or earlier._reached is None:
            raise DeviceError(f"{self.stream.device.id}: the time between events is known once "
                              "both are reached; synchronise first")
        return self._reached - earlier._reached

    def reached(self) -> None:
        """Called by streams."""
        if self._reached is None:
            self._reached = time.perf_counter()


class Stream:
    """An order of launches on a device with one queue."""

    def __init__(self, device: Device):
        self.device = device
        self._marks: list[Event] = []

    def run(self, recording: Recording) -> None:
        """Replays the launches after all that this stream was given before."""
        self.device.run(recording)

    def event(self) -> Event:
        """A mark after all that this stream was given so far."""
        mark = Event(self)
        self._marks.append(mark)
        return mark

    def wait(self, event: Event) -> None:
        """What this stream is given from now on happens after the event."""
        if event.stream.device is not self.device:
            raise DeviceError(f"{self.device.id}: an event of {event.stream.device.id}; wait for "
                              "it on the host with its synchronise()")

    def synchronise(self) -> None:
        """Waits until all that this stream was given is done."""
        self.device.synchronise()
        marks, self._marks = self._marks, []
        for mark in marks:
            mark.reached()
