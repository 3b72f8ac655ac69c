"""The C compilers that are here, and how strictly generated text is read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

COMPILERS = [n for n in ("gcc", "clang") if shutil.which(n)]
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror")
SANITIZED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

every_compiler = pytest.mark.parametrize("compiler", COMPILERS)
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no C compiler")


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True,
                          timeout=280)
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{command}\n{output[:4000]}"
    return output


def bits(a: np.ndarray) -> np.ndarray:
    """An array as bits that differ for any two numbers, but not for two NaNs."""
    if a.dtype.kind != "f":
        return a
    return np.where(np.isnan(a), np.nan, a).astype(a.dtype).view(f"u{a.dtype.itemsize}")
