"""Locks that are free in a forked child, where the thread that held one no longer runs."""

from __future__ import annotations

import os
import threading
import weakref

TYPE_CHECKING = False  # typing takes longer to import than all our modules of a cold start
if TYPE_CHECKING:
    from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """A lock.

    >>> with new_lock() as held:
    ...     held
    True
    """
    return _kept(threading.Lock())


def new_rlock() -> threading.RLock:
    """A reentrant lock.

    >>> lock = new_rlock()
    >>> with lock, lock:
    ...     pass
    """
    return _kept(threading.RLock())


class OwnLock:
    """A reentrant lock of an object. Copies of the object get another one.

    >>> lock = OwnLock()
    >>> with lock, lock:
    ...     pass
    """

    def __init__(self) -> None:
        self._lock = new_rlock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def __copy__(self) -> OwnLock:
        return OwnLock()

    def __deepcopy__(self, memo: Any) -> OwnLock:
        return OwnLock()

    def __reduce__(self) -> Any:
        return OwnLock, ()


def _kept(lock: Any) -> Any:
    _locks.add(lock)
    return lock


def _free() -> None:
    for lock in _locks:
        lock._at_fork_reinit()  # Python's own modules do this


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
