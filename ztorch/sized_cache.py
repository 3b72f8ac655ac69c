"""A cache of results of one process, with a limit on its size."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from ztorch.locks import new_lock

K = TypeVar("K")
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """Values by key. When their total size exceeds the limit, the least recently used ones are
    dropped. Safe to share between threads.

    Args:
        most: The largest total size.

    Examples:
        >>> texts = SizedCache(10)
        >>> texts.put("a", "12345678", 8)
        >>> texts.put("b", "12", 2)
        >>> texts.get("a")
        '12345678'
        >>> texts.put("c", "1", 1)
        >>> texts.get("a"), texts.get("b"), texts.size
        ('12345678', None, 9)
    """

    def __init__(self, most: int):
        self.most = most
        self.size = 0  # of all values
        self._lock = new_lock()
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()  # each with its size

    def get(self, key: K) -> V | None:
        """The value of a key; None if it is absent or was dropped."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: K, value: V, size: int) -> None:
        """Sets the value of a key.

        Args:
            key: The key.
            value: Its value.
            size: The size of the value.
        """
        with self._lock:
            self.size += size - self._values.pop(key, (value, 0))[1]
            self._values[key] = value, size
            while self.size > self.most:
                _, (_, dropped) = self._values.popitem(last=False)
                self.size -= dropped

    def forget(self) -> None:
        """Drops all values."""
        with self._lock:
            self._values.clear()
            self.size = 0
