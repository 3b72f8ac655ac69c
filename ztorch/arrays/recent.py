"""A table that drops the entries least recently used."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most `capacity` values by their keys; those that were not used for long are dropped.

    When half of the capacity is full, its entries become the old ones, and the old ones before
    them are dropped unless they were used since. So finding a value takes one lookup.

    Args:
        capacity: How many values are kept at most.

    Examples:
        >>> table = Recent(4)
        >>> for k in range(10):
        ...     table.put(k, -k)
        ...     assert table.get(0) == 0
        >>> len(table) <= 4, table.get(9), table.get(5)
        (True, -9, None)
    """

    def __init__(self, capacity: int):
        self._half = capacity // 2
        self._old: dict[K, V] = {}
        # Those used of late: always the same dict, to look into where missing some does no harm.
        self.newest: dict[K, V] = {}
        self.find = self.newest.get

    def get(self, key: K) -> V | None:
        """The value of a key, or None."""
        value = self.newest.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Sets the value of a key."""
        if len(self.newest) >= self._half and key not in self.newest:
            self._old = dict(self.newest)
            self.newest.clear()
        self.newest[key] = value
        self._old.pop(key, None)

    def __len__(self) -> int:
        return len(self.newest) + len(self._old)
