"""How many different sectors of each memory a workgroup touches. Caches load each of them once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

NONE = np.empty(0, np.int64)


@dataclass
class Touched:
    """Of one memory: the sectors that sampled trips of loops touch, and how many all trips do."""

    sectors: np.ndarray = field(default_factory=lambda: NONE)  # sorted, each once
    count: float = 0.0  # of sectors in all trips

    def then(self, other: Touched) -> Touched:
        """Memory that is touched by two pieces of code that run one after the other."""
        return Touched(np.union1d(self.sectors, other.sectors),
                       self.count + other.count * new_share(other, self))


Footprint = dict[tuple[str, bool], Touched]  # by the name of the memory, and whether it is written


def new_share(later: Touched, earlier: Touched) -> float:
    """The share of the later sectors that were not touched earlier."""
    if not len(later.sectors):
        return 0.0
    return float(np.isin(later.sectors, earlier.sectors, invert=True).mean())


def joined(parts: Iterable[Footprint]) -> Footprint:
    """The footprint of code that runs one after the other."""
    whole: Footprint = {}
    for part in parts:
        for key, touched in part.items():
            whole[key] = whole[key].then(touched) if key in whole else touched
    return whole


def repeated(first: Footprint, second: Footprint, more: float) -> Footprint:
    """The footprint of a loop, of which each trip after the first touches as many new sectors as
    the second does. `more` trips follow the first.

    >>> first, second = Touched(np.arange(4), 4), Touched(np.arange(2, 6), 4)
    >>> repeated({("x", False): first}, {("x", False): second}, 9)["x", False].count
    22.0
    """
    whole = joined([first, second])
    for key, touched in second.items():
        before = first.get(key, Touched())
        grown = touched.count * new_share(touched, before)
        whole[key] = Touched(whole[key].sectors, before.count + grown * more)
    return whole
