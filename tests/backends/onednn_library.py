"""A library with the functions of oneDNN, which checks what it gets."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("pretended_onednn.c")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def pretended_onednn(folder: Path, runtime: int = 2, major: int = 3, refuses: int = 0) -> Path:
    path = folder / "libdnnl.so.3"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", f"-DRUNTIME={runtime}", f"-DMAJOR={major}",
                    f"-DREFUSES={refuses}", "-o", path, SOURCE], check=True)
    return path
