"""The NumPy definition of asynchronous copies.

A copy completes when its thread waits for its group, and not before. From its start until then no
thread, not even its own, may access the elements that it writes. For the race detector its thread
writes them twice: when the copy starts and when it completes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ztorch.ir.kernel import Instr
from ztorch.ir.lockstep import Lockstep, Watched

Step = Callable[[], None]  # runs one instruction


@dataclass
class CopyInFlight:
    """The same copy by several threads, in flight."""

    at: int  # number of its instruction
    store: Watched  # that it writes
    places: np.ndarray  # in the store, by thread and element
    data: np.ndarray  # the elements that will be there
    threads: np.ndarray  # mask of those that have started it


@dataclass
class CopyGroup:
    """Copies that threads wait for together."""

    threads: np.ndarray  # mask of those that have not waited for it yet
    copies: list[CopyInFlight] = field(default_factory=list)


class Copies:
    """The copies of a launch that are in flight. The machine is passed to methods, not stored: it
    refers to this object, and a reference cycle would free memory late."""

    def __init__(self) -> None:
        self.open: list[CopyInFlight] = []  # in no group yet
        self.groups: list[CopyGroup] = []  # the oldest first

    def start(self, m: Lockstep, at: int, instr: Instr, target: Watched, source: Watched,
              keys: tuple) -> Step:
        """A copy of `elements` neighbors; zeros for threads that are not inside."""
        attrs = instr.attrs
        lanes = np.arange(attrs["elements"])

        def step() -> None:
            to, origin, inside = (m.regs[k] for k in keys)
            places, live = m.reach(at, target, to + (attrs["off"] + lanes), None)
            read, _ = m.reach(at, source, origin + (attrs["source_off"] + lanes), inside)
            shape = (m.threads, len(lanes))
            data = np.where(np.broadcast_to(inside, shape), np.broadcast_to(
                source.data[np.where(inside, read, 0)], shape), np.zeros(1, source.data.dtype))
            places = np.broadcast_to(places, shape)
            m.touch(at, target, "write", places, live)
            if target.in_flight_to is None:
                target.in_flight_to = np.zeros(target.data.size, bool)
            threads = np.broadcast_to(m.present(), (m.threads, 1))[:, 0].copy()
            target.in_flight_to[places[threads]] = True
            self.open.append(CopyInFlight(at, target, places, data, threads))
        return step

    def commit(self, m: Lockstep) -> None:
        """Ends a group of the copies that the active threads have started."""
        active = np.broadcast_to(m.present(), (m.threads, 1))[:, 0]
        ended = [replace(c, threads=c.threads & active) for c in self.open]
        others = [replace(c, threads=c.threads & ~active) for c in self.open]
        self.groups.append(CopyGroup(active.copy(), [c for c in ended if c.threads.any()]))
        self.open = [c for c in others if c.threads.any()]

    def wait(self, m: Lockstep, pending: int) -> None:
        """Completes all groups of the active threads but the last `pending` of each."""
        active = np.broadcast_to(m.present(), (m.threads, 1))[:, 0]
        newer = np.zeros(m.threads, np.int64)
        for group in reversed(self.groups):
            landing = group.threads & active & (newer >= pending)
            newer += group.threads
            group.threads &= ~landing
            for copy in group.copies:
                _land(m, copy, copy.threads & landing)
        self.groups = [g for g in self.groups if g.threads.any()]


def _land(m: Lockstep, copy: CopyInFlight, threads: np.ndarray) -> None:
    if not threads.any():
        return
    places = copy.places[threads]
    assert copy.store.in_flight_to is not None
    copy.store.in_flight_to[places] = False
    copy.store.data[places] = copy.data[threads]
    m.touch(copy.at, copy.store, "write", copy.places, threads[:, None])
