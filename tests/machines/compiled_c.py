"""Libraries in C that pretend to be others, each compiled once."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path


@functools.cache
def library_of(source: Path, *options: str) -> bytes:
    """The shared library that the C compiler makes of a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "library.so")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", *options, "-o", path, source], check=True)
        return path.read_bytes()
