"""Puts known faults into a copy of the code, one at a time, and says which the inner loop notices.

    python -m tools.faults             # all of them, room by room
    python -m tools.faults ops feed     # those of some rooms

Each fault is a file, a piece of its text that occurs once, and a replacement. The tests
are those of `pytest --few` in some files, the inner loop of development without the tests
that are too slow for it. A fault that no test notices is a test that is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.fault import Fault
from tools.known_faults import FAULTS

ROOT = Path(__file__).resolve().parent.parent


def place(fault: Fault, copy: Path) -> str:
    """Writes a fault into a copy of the code, and returns the text of the file before."""
    path = copy / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise SystemExit(f"{fault.file} holds {fault.old!r} {text.count(fault.old)} times, not "
                         "once: the table of known faults is out of date")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    return text


def fails(tests: str, copy: Path) -> bool:
    """Whether the inner loop fails. Files are not arguments, or their slow tests would run too."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--few", "-x", "-p", "no:cacheprovider",
         "-o", "testpaths=" + " ".join(f"tests/{name}" for name in tests.split())],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True,
        check=False)
    if ended.returncode > 2:  # below zero: the process crashed, which is noticed
        raise SystemExit(ended.stdout[-2000:] + ended.stderr[-2000:])
    return ended.returncode != 0


def main(rooms: list[str]) -> int:
    faults = [f for f in FAULTS if not rooms or f.room in rooms]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copy = Path(folder, "copy")
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache")
        shutil.copytree(ROOT, copy, ignore=ignored)
        for tests in dict.fromkeys(f.tests for f in faults):
            if fails(tests, copy):
                raise SystemExit(f"{tests}: these tests fail without any fault, and tell nothing")
        for fault in faults:
            text = place(fault, copy)
            caught = fails(fault.tests, copy)
            (copy / fault.file).write_text(text, encoding="utf-8")
            missed += not caught
            print(f"{'caught' if caught else 'MISSED'}  {fault.room:12} {fault.file}: "
                  f"{fault.old!r} -> {fault.new!r}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} caught")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
