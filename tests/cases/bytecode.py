"""Bytecode of test files in a new checkout, written by a second process.

pytest rewrites the asserts of a test file where it imports it, and keeps the bytecode beside it. For all
files that takes five seconds, in each worker. Here one process does it, beginning at the last file, while
the run imports ztorch and collects from the first: they meet in the middle. `python -m tests.cases.bytecode`
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

TESTS = Path(__file__).parent.parent


def begin() -> None:
    """Starts the process where the last folder has no bytecode of this Python."""
    last = max(p for p in TESTS.iterdir() if p.is_dir() and any(p.glob("test_*.py")))
    if not any(last.glob(f"__pycache__/test_*{sys.implementation.cache_tag}*")):
        subprocess.Popen([sys.executable, "-m", "tests.cases.bytecode"], cwd=TESTS.parent,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def write() -> None:
    """Writes what is missing, until the process that asked for it has ended."""
    from _pytest.assertion import rewrite

    parent = os.getppid()
    for path in sorted(TESTS.rglob("test_*.py"), reverse=True):
        folder = rewrite.get_cache_dir(path)
        bytecode = folder / f"{path.stem}{rewrite.PYC_TAIL}"
        if os.getppid() != parent:
            return
        if not bytecode.exists():
            folder.mkdir(parents=True, exist_ok=True)
            source, code = rewrite._rewrite_test(path, None)  # type: ignore[arg-type]
            rewrite._write_pyc(SimpleNamespace(trace=str), code, source, bytecode)  # type: ignore[arg-type]


if __name__ == "__main__":
    write()
