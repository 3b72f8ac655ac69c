"""Worker threads for CPU programs: parked inside one native call, so dispatch costs no Python.

The code of the workers is part of every compiled library (templates/llvm/workers.ll.j2); this file
owns the threads and the control block they watch. A worker spins for a while, then sleeps in the
kernel until the next run.
"""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np

from ztorch.host.settings import current

CONTROL_BYTES = 512


class Workers:
    """A pool in which the calling thread is worker 0 of `count`."""

    def __init__(self, count: int, library: ctypes.CDLL):
        self.count = count
        self.lock = threading.Lock()
        raw = np.zeros(CONTROL_BYTES + 64, np.uint8)
        start = -raw.ctypes.data % 64
        self._block = raw[start:start + CONTROL_BYTES]
        syscall = ctypes.cast(ctypes.CDLL(None).syscall, ctypes.c_void_p).value or 0
        self._block[200:208].view(np.int64)[0] = count
        self._block[208:216].view(np.int64)[0] = current().spin
        self._block[216:224].view(np.uint64)[0] = syscall
        self.control = ctypes.c_void_p(self._block.ctypes.data)
        run = library.zt_worker
        run.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32]
        run.restype = None
        for k in range(1, count):
            threading.Thread(target=run, args=(self.control, k, 0), daemon=True,
                             name=f"ztorch-worker-{k}").start()


_pools: dict[int, Workers] = {}
_making = threading.Lock()


def workers(count: int, library: ctypes.CDLL) -> Workers:
    """The pool of this process with so many workers, made when first asked for."""
    pool = _pools.get(count)
    if pool is None:
        with _making:
            pool = _pools.get(count)
            if pool is None:
                pool = _pools[count] = Workers(count, library)
    return pool


def _forget() -> None:
    """In a forked child no worker thread exists: start over."""
    global _making
    _pools.clear()
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
