"""The first values of weights, drawn when one of them is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ztorch.host.processor import usable_cores
from ztorch.locks import new_rlock

Writer = Callable[[np.ndarray], None]  # writes the first value of a state to the block of params


class FirstValues:
    """First values of states that nothing has needed so far.

    To draw those of a large model takes longer than to find its code in the cache. A state that is
    set before it is read, as by `load_weights`, is never drawn. Values do not depend on the time
    and the order in which they are drawn.

    Args:
        writers: What writes the value of each state, by name. Each may run beside others.

    Examples:
        >>> block = np.zeros(3)
        >>> first = FirstValues({"a": lambda p: p.put(0, 1), "b": lambda p: p.put([1, 2], 2)})
        >>> first.forget("a")
        >>> first.write(block)
        >>> block.tolist(), first.is_written
        ([0.0, 2.0, 2.0], True)
    """

    def __init__(self, writers: Mapping[str, Writer]):
        self._writers = dict(writers)
        self._lock = new_rlock()  # held while values are written, so that no later ones are lost

    @property
    def is_written(self) -> bool:
        """Whether no state is left."""
        return not self._writers

    def write(self, params: np.ndarray) -> None:
        """Writes the values of all states that are left, on all cores: NumPy draws and copies
        without Python's lock."""
        with self._lock:
            if not self._writers:
                return
            from concurrent.futures import ThreadPoolExecutor  # slow to import

            with ThreadPoolExecutor(usable_cores(), "ztorch weights") as threads:
                for _ in threads.map(lambda writer: writer(params), self._writers.values()):
                    pass
            self._writers.clear()  # not before: an interrupt leaves them to the next one who asks

    def write_one(self, name: str, params: np.ndarray) -> None:
        """Writes the value of one state if it is left."""
        with self._lock:
            if name in self._writers:
                self._writers[name](params)
                del self._writers[name]

    def forget(self, name: str) -> None:
        """Leaves out a state, because another value replaces it."""
        with self._lock:
            self._writers.pop(name, None)
