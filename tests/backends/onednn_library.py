"""A library with the functions of oneDNN, which checks what it gets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.machines.compiled_c import library_of

SOURCE = Path(__file__).with_name("pretended_onednn.c")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def pretended_onednn(folder: Path, runtime: int = 2, major: int = 3, refuses: int = 0) -> Path:
    path = folder / "libdnnl.so.3"
    path.write_bytes(library_of(SOURCE, f"-DRUNTIME={runtime}", f"-DMAJOR={major}", f"-DREFUSES={refuses}"))
    return path
