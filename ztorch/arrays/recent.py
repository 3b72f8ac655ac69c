"""A cache that drops the entries that were not used recently."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A cache of at most `capacity` values by key, in two generations.

    When the new generation holds half of the capacity, it becomes the old one, and the previous old
    one is dropped. A value of the old generation that is used moves to the new one. So a hit takes
    one lookup, and no order of use is kept.

    Args:
        capacity: The maximum number of values.

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
        # The new generation: always the same dict, so that native functions can look into it.
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
