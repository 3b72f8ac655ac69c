"""Ctrl-C in the middle of a long native call, where Python only hears of it afterwards."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from ztorch.commands.group import STOPPED, Stopped
from ztorch.files import atomic

COMMANDS = ("bench", "verify", "run")  # whose calls may take long, and which keep nothing
PATIENCE = 0.8  # seconds in which Python may end the command itself, and clean up


def watch() -> None:
    """Ends the process soon after Ctrl-C, whatever it is at: a training step of a large model is
    one call of many seconds. A file that is being written is written to its end first."""
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)  # gets the number of each signal
    threading.Thread(target=_wait, args=(heard,), name="ztorch-stop", daemon=True).start()


def _wait(heard: int) -> None:
    while os.read(heard, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(PATIENCE)
    while atomic.unfinished:
        time.sleep(0.02)
    Stopped().show()
    sys.stderr.flush()
    os._exit(STOPPED)
