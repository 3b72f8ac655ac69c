"""Slow iterators are read in a separate thread, while the program computes."""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, Full, Queue
from time import perf_counter
from typing import Generic, TypeVar

from ztorch.errors import DataError

T = TypeVar("T")

AHEAD = 2  # items that may wait: more would only take memory
# Seconds that an item takes from which a thread reads the next ones. Handing one over takes some
# 50 microseconds, and the thread that computes waits up to 5 ms for one that runs Python.
SLOW = 2e-3
WAKE = 0.1  # seconds after which a thread that waits looks whether anybody still wants its items


@dataclass(frozen=True)
class _End:
    """After the last item."""

    error: BaseException | None  # that the iterator raised


Entry = tuple[T] | _End


class ReadAhead(Generic[T]):
    """The items of an iterator, in their order. From the third on, if the two before took long,
    they are read before they are asked for.

    Args:
        items: The items to read, from now on in a thread with a copy of the context.
        copy: Copies an item whose array the source will overwrite.
            It is called in the thread alone.
    """

    def __init__(self, items: Iterator[T], copy: Callable[[T], T]):
        self._items, self._copy = items, copy
        self._read = 0
        self._slow = True  # whether all items after the first took long
        self._queue: Queue[Entry[T]] | None = None
        self._thread: threading.Thread | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._queue is None and self._read > 2 and self._slow:
            self._queue, self._thread = _started(self)
        if self._queue is not None:
            return self._next_entry()
        start = perf_counter()
        item = next(self._items)
        self._read += 1
        if self._read > 1:  # the first one may open files
            self._slow &= perf_counter() - start > SLOW
        return item

    def _next_entry(self) -> T:
        assert self._queue is not None and self._thread is not None
        while True:
            try:
                entry = self._queue.get(timeout=WAKE)
                break
            except Empty:
                if not self._thread.is_alive() and self._queue.empty():
                    raise DataError("the thread that reads batches ahead has gone, as it does in a "
                                    "forked child; begin training there") from None
        if isinstance(entry, _End):
            self._queue.put(entry)  # a second request gets the same answer
            raise StopIteration if entry.error is None else entry.error
        return entry[0]


def _started(reader: ReadAhead[T]) -> tuple[Queue[Entry[T]], threading.Thread]:
    """The queue into which a thread puts the items that come, and at last how they ended. The
    thread ends when the reader is gone."""
    queue: Queue[Entry[T]] = Queue(AHEAD)
    unwanted = threading.Event()
    weakref.finalize(reader, unwanted.set).atexit = False
    items, copy = reader._items, reader._copy

    def put(entry: Entry[T]) -> None:
        while not unwanted.is_set():
            try:
                return queue.put(entry, timeout=WAKE)
            except Full:
                continue

    def read() -> None:
        try:
            for item in items:
                put((copy(item),))
                if unwanted.is_set():
                    return
            put(_End(None))
        except BaseException as error:
            put(_End(error))

    thread = threading.Thread(target=contextvars.copy_context().run, args=(read,),
                              name="ztorch-read-ahead", daemon=True)
    thread.start()
    return queue, thread
