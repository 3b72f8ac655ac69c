"""Finds data races: records which thread last accessed each element, and in which epoch.

An epoch is the number of barriers a workgroup has passed. Two accesses to one element by different
threads, at least one a write, are a race unless both threads are in the same workgroup and there is
a barrier between the accesses. Running in lockstep hides races, so they are checked explicitly.
"""

from __future__ import annotations

import numpy as np

NOBODY, MANY = -1, -2  # in place of a thread or workgroup: no access yet, several of them
NO_RACE = np.zeros(1, bool)  # the mask of any number of accesses, none of which races


class _Log:
    """The last reads, or the last writes, of a memory: one entry per element."""

    def __init__(self, size: int):
        self.thread = np.full(size, NOBODY, np.int64)
        self.group = np.full(size, NOBODY, np.int64)  # a workgroup
        self.epoch = np.full(size, -1, np.int64)  # barriers passed before the access; -1: none yet
        self.empty = True  # as most are: inputs are only read, and few memories have atomics

    def clashes(self, at: np.ndarray, thread: np.ndarray, group: np.ndarray,
                epoch: np.ndarray) -> np.ndarray:
        """Mask of the accesses that are not ordered after those in the log."""
        if self.empty:
            return NO_RACE
        last = self.group.take(at)
        same_epoch = (self.epoch.take(at) == epoch) & (self.thread.take(at) != thread)
        return same_epoch | ((last != group) & (last != NOBODY))

    def remember(self, at: np.ndarray, thread: np.ndarray, group: np.ndarray,
                 epoch: np.ndarray) -> np.ndarray:
        """Log the accesses. Returns a mask of those whose element another thread accesses too."""
        shared, last = self.clashes(at, thread, group, epoch), self.group.take(at)
        self.empty = False
        self.thread[at], self.group[at], self.epoch[at] = thread, group, epoch
        # If several of these threads access one element, the last one overwrote the entry.
        shared = shared | (self.thread.take(at) != thread)
        if shared.any():
            across_groups = (last != NOBODY) & (last != group) | (self.group.take(at) != group)
            self.thread[at[shared]] = MANY
            self.group[at[across_groups]] = MANY
        return shared


class Detector:
    """Detects races on one memory.

    `read`, `write` and `atomic` take arrays of elements, threads, workgroups and epochs, one
    entry per access, and return a mask of the accesses that race.

    >>> d = Detector(4)
    >>> me, you, group, epoch = (np.array([n]) for n in (0, 1, 0, 0))
    >>> d.write(np.array([2]), me, group, epoch).any()
    np.False_
    >>> d.read(np.array([2]), you, group, epoch).any()
    np.True_
    >>> d.read(np.array([2]), you, group, epoch + 1).any()  # a barrier in between
    np.False_
    """

    def __init__(self, size: int):
        self.size = size
        self.forget()

    def written_by(self, thread: int, group: int, epoch: int) -> np.ndarray:
        """The elements last written by a thread, or by others of its workgroup before its last
        barrier: what it can hand to a thread of another workgroup."""
        log = self.writes
        return np.flatnonzero((log.group == group) & ((log.thread == thread) | (log.epoch < epoch)))

    def hand_over(self, elements: np.ndarray, group: int, to: tuple[int, int, int]) -> None:
        """Elements of a workgroup are from now on as if another thread had written them; those that
        others have written since are not. `to`: the thread, its workgroup and its epoch."""
        log = self.writes
        own = elements[log.group[elements] == group]
        log.thread[own], log.group[own], log.epoch[own] = to

    def forget(self) -> None:
        """All threads have met: no access so far races with one that follows."""
        self.reads, self.writes, self.atomics = (_Log(self.size) for _ in range(3))

    def read(self, *access: np.ndarray) -> np.ndarray:
        self.reads.remember(*access)
        return self.writes.clashes(*access) | self.atomics.clashes(*access)

    def write(self, *access: np.ndarray) -> np.ndarray:
        racing = self.reads.clashes(*access) | self.atomics.clashes(*access)
        return racing | self.writes.remember(*access)

    def atomic(self, *access: np.ndarray) -> np.ndarray:
        """Atomic updates do not race with one another."""
        self.atomics.remember(*access)
        return self.reads.clashes(*access) | self.writes.clashes(*access)
