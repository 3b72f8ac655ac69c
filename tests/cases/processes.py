"""Processes and threads of tests."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def killed_after_writing(code: str, path: Path) -> None:
    """Runs a script that writes a file again and again, and kills it soon after the first time."""
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=ROOT,
                               env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        until = time.monotonic() + 60
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)
    finally:
        process.kill()
        process.wait()


def in_threads(work: Callable[[int], None], numbers: list[int]) -> None:
    """Calls a function with each number, in threads that run together."""
    threads = [threading.Thread(target=work, args=(n,)) for n in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
