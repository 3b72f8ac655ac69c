"""Counts the different sectors of each memory that a workgroup touches: caches load each once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

NO_SECTORS = np.empty(0, np.int64)


@dataclass
class TouchedSectors:
    """The sectors of one memory that the evaluated trips of loops touch, and the number that all
    trips touch."""

    sectors: np.ndarray = field(default_factory=lambda: NO_SECTORS)  # sorted, each once
    count: float = 0.0  # number of sectors in all trips

    def followed_by(self, later: TouchedSectors) -> TouchedSectors:
        """The sectors that two pieces of code touch, one of which runs after the other."""
        return TouchedSectors(np.union1d(self.sectors, later.sectors),
                              self.count + later.count * new_share(later, self))


# The sectors by the name of the memory, and whether they are written.
Footprint = dict[tuple[str, bool], TouchedSectors]


def new_share(later: TouchedSectors, earlier: TouchedSectors) -> float:
    """The share of the later sectors that were not touched earlier."""
    if not len(later.sectors):
        return 0.0
    return float(np.isin(later.sectors, earlier.sectors, invert=True).mean())


def footprint_of_sequence(parts: Iterable[Footprint]) -> Footprint:
    """The footprint of pieces of code that run one after the other."""
    total: Footprint = {}
    for part in parts:
        for key, touched in part.items():
            total[key] = total[key].followed_by(touched) if key in total else touched
    return total


def footprint_of_loop(first: Footprint, second: Footprint, following: float) -> Footprint:
    """The footprint of a loop: each trip after the first is assumed to touch as many new sectors
    as the second. `following` trips come after the first.

    >>> first, second = TouchedSectors(np.arange(4), 4), TouchedSectors(np.arange(2, 6), 4)
    >>> footprint_of_loop({("x", False): first}, {("x", False): second}, 9)["x", False].count
    22.0
    """
    total = footprint_of_sequence([first, second])
    for key, touched in second.items():
        before = first.get(key, TouchedSectors())
        new_sectors = touched.count * new_share(touched, before)
        total[key] = TouchedSectors(total[key].sectors, before.count + new_sectors * following)
    return total
