"""Ends a command soon after Ctrl-C, even in the middle of a long native call."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from ztorch.commands.group import STOPPED, Stopped
from ztorch.files import atomic

COMMANDS = ("bench", "verify", "run")  # commands with long calls that keep nothing
PATIENCE = 0.8  # seconds that Python has to end the command itself and clean up


def watch() -> None:
    """Ends the process soon after Ctrl-C. Python handles the signal only after a native call, and
    one training step of a large model takes many seconds. Files are written completely first."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)  # gets the number of each signal
    threading.Thread(target=_wait, args=(reader,), name="ztorch-stop", daemon=True).start()


def _wait(reader: int) -> None:
    while os.read(reader, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(PATIENCE)
    while atomic.unfinished:
        time.sleep(0.02)
    Stopped().show()
    sys.stderr.flush()
    os._exit(STOPPED)
