"""Parity for benchmarks.gpu: every op and every model of the zoo on a GPU, as the tests compare
them with float64. A GPU that computes wrong numbers need not be fast."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.gpu_cases import Case, Measured, Sizes
from benchmarks.timing import Effort
from ztorch.runtime.devices import ListedDevice

ROOT = Path(__file__).parent.parent
SECONDS = {"every op": 180, "every model of the zoo": 120}  # that a run may take
TESTS = {"every op": "tests/backends/test_every_op.py",
         "every model of the zoo": "tests/backends/test_zoo.py"}


def cases(d: ListedDevice, z: Sizes) -> list[Case]:
    """A row for each kind of test; none where a processor plays the GPU: the suite tests these."""
    if d.kind == "cpu":
        return []
    return [Case(name, partial(run, d, name)) for name in TESTS]


def run(d: ListedDevice, name: str, effort: Effort) -> Measured:
    """Runs the tests of a backend; an error with their last lines where some fail."""
    backend = d.id.split(":")[0]
    command = [sys.executable, "-m", "pytest", TESTS[name], "-x", "-p", "no:cacheprovider",
               "-k", backend]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False,
                             timeout=SECONDS[name])
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{name}: not done after {SECONDS[name]} s; {' '.join(command)} shows "
                           "how far it comes") from None
    lines = ran.stdout.strip().splitlines()
    if ran.returncode:
        wrong = [line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))]
        raise RuntimeError(f"{name}: {'; '.join((wrong or lines)[-6:])}")
    passed = re.search(r"\d+ passed", lines[-1]) if lines else None
    return Measured([], 0.0, passed[0] if passed else lines[-1])
