"""Finds data races: remembers who last touched each element of a memory, and in which epoch.

An epoch is the number of barriers a workgroup has passed. Two accesses of one element by different
threads, one of them a write, are ordered only if both threads belong to one workgroup and a
barrier lies between them. Running in lockstep hides such races, so they are looked for.
"""

from __future__ import annotations

import numpy as np

NOBODY, MANY = -1, -2


class _Log:
    """The last accesses of one sort (reads or writes), one entry per element."""

    def __init__(self, size: int):
        self.who = np.full(size, NOBODY, np.int64)
        self.group = np.full(size, NOBODY, np.int64)
        self.epoch = np.zeros(size, np.int64)

    def clashes(self, at: np.ndarray, who: np.ndarray, group: np.ndarray,
                epoch: np.ndarray) -> np.ndarray:
        """Which accesses are not ordered after the ones remembered here."""
        last = self.group[at]
        same_epoch = (self.epoch[at] == epoch) & (self.who[at] != who)
        return (last != NOBODY) & ((last != group) | same_epoch)

    def remember(self, at: np.ndarray, who: np.ndarray, group: np.ndarray,
                 epoch: np.ndarray) -> np.ndarray:
        """Note the accesses; returns which of them met another thread on their element."""
        shared = self.clashes(at, who, group, epoch)
        groups = (self.group[at] != NOBODY) & (self.group[at] != group)
        self.who[at], self.group[at], self.epoch[at] = who, group, epoch
        # Several threads on one element: the last entry won, so the others see a stranger.
        shared |= self.who[at] != who
        groups |= self.group[at] != group
        self.who[at[shared]] = MANY
        self.group[at[groups]] = MANY
        return shared


class Detector:
    """The access logs of one memory.

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
        self.reads, self.writes = _Log(size), _Log(size)

    def read(self, *access: np.ndarray) -> np.ndarray:
        bad = self.writes.clashes(*access)
        self.reads.remember(*access)
        return bad

    def write(self, *access: np.ndarray) -> np.ndarray:
        bad = self.reads.clashes(*access)
        return bad | self.writes.remember(*access)
