"""Worker threads of CPU programs. They wait inside one native call, so a run needs no Python.

The code of the workers is part of every compiled library (`workers` in templates/llvm and
templates/c). This file owns the threads and the control block that they watch. A worker spins for a
while, then sleeps in the operating system until the next run.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.abi import (
    BUSY,
    CONTROL_BLOCK,
    CONTROL_OFFSETS,
    FRAME_SLOTS,
    NO_CORE,
    SHARING,
    SHARING_RULE,
    WORKER_ENTRY,
)
from ztorch.backends.library import LoadedLibrary
from ztorch.host.memory import aligned
from ztorch.host.settings import current
from ztorch.locks import new_lock


class Workers:
    """A pool of `count` workers; the calling thread is worker 0."""

    def __init__(self, count: int, library: ctypes.CDLL):
        self.count = count
        self.lock = new_lock()
        self.block = aligned(CONTROL_BLOCK.itemsize).view(CONTROL_BLOCK)
        self.block["workers"] = count
        self.block["spin"] = current().spin
        self.block["caller"] = NO_CORE
        self.block["syscall"] = ctypes.cast(ctypes.CDLL(None).syscall, ctypes.c_void_p).value or 0
        self.control = ctypes.c_void_p(self.block.ctypes.data)
        self._busy = ctypes.c_int32.from_address(self.block.ctypes.data + CONTROL_OFFSETS["busy"])
        self._busy.value = BUSY["starting"]
        self.gone = False  # whether its threads no longer exist
        self._lone = ctypes.c_int32.from_address(self.block.ctypes.data + CONTROL_OFFSETS["lone"])
        self._is_lone = False
        self.library = library  # the workers wait in its code between runs
        run = library[WORKER_ENTRY]
        run.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32]
        run.restype = None
        for number in range(1, count):
            threading.Thread(target=run, args=(self.control, number, 0), daemon=True,
                             name=f"ztorch-worker-{number}").start()

    def run(self, library: LoadedLibrary, once: Callable[[], object], frame: Any,
            lone: bool = False) -> None:
        """Runs a function of a library on all workers.

        Args:
            library: The library.
            once: Calls the function with `frame`.
            frame: The arguments of the function; the control block is one of them.
            lone: Whether one worker runs loops of short kernels. Default: `False`.
        """
        with self.lock:
            library.pools.add(self)
            self._busy.value = BUSY["yes"]
            if lone != self._is_lone:  # workers read its cache line
                self._lone.value = self._is_lone = lone
            frame[FRAME_SLOTS["control"]] = self.control.value
            try:
                once()
            finally:  # also if Ctrl-C raises an exception right after the native call
                frame[FRAME_SLOTS["control"]] = None  # a run by one worker must not use the pool
                self._busy.value = BUSY["no"]

    def runs_ended(self) -> int | None:
        """How many runs have ended, modulo 2^32; None if the threads no longer exist."""
        running = self._busy.value == BUSY["yes"]
        return None if self.gone else int(self.block["generation"][0]) - running

    def sharing(self, library: LoadedLibrary) -> np.ndarray:
        """The record with which a native function of CPython runs a library on these workers. It
        holds the interpreter's lock, so it needs no other lock."""
        library.pools.add(self)
        clock = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0
        fields = {"control": self.block.ctypes.data, "clock": clock,
                  "penalty": SHARING_RULE["least_rest"]}
        return np.array([fields.get(name, 0) for name in SHARING], np.int64)

    def forget(self) -> None:
        """Keeps native functions from waiting for these workers after a fork."""
        self._busy.value, self.gone = BUSY["yes"], True


_pools: dict[int, Workers] = {}
_making = new_lock()


def workers(count: int, library: ctypes.CDLL) -> Workers:
    """The pool of this process with `count` workers; it is created at first use."""
    pool = _pools.get(count)
    if pool is None:
        with _making:
            pool = _pools.get(count)
            if pool is None:
                pool = _pools[count] = Workers(count, library)
    return pool


def _forget_after_fork() -> None:
    """A forked child has no worker threads: it starts its own."""
    for pool in _pools.values():
        pool.forget()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
