"""Compiles C text to a WebAssembly module with the compiler of the package ziglang."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from ztorch.codegen.cc import FLAGS, first_errors
from ztorch.codegen.object_cache import cached, canonical_text
from ztorch.codegen.targets import Target
from ztorch.errors import DeviceError, ZtorchError
from ztorch.host.settings import child_environment

PACKAGE = "ziglang"
COMPILER = (sys.executable, "-m", PACKAGE, "cc", "-target", "wasm32-freestanding", "-msimd128",
            "-mbulk-memory", "-fvisibility=default", *(flag for flag in FLAGS if flag != "-fPIC"))
LINKER = (sys.executable, "-m", PACKAGE, "wasm-ld", "--no-entry", "--export-dynamic",
          "--gc-sections", "--strip-all", "-z", f"stack-size={1 << 20}")


def available() -> bool:
    """Whether the compiler is installed."""
    return importlib.util.find_spec(PACKAGE) is not None


def assemble(text: str, target: Target) -> bytes:
    """The module of a text. It exports all functions that are not static, and imports nothing.

    >>> assemble("int one(void) { return 1; }", target)[:4]     # doctest: +SKIP
    b'\\x00asm'
    """
    if not available():
        raise DeviceError(f"WebAssembly needs the package {PACKAGE}: pip install {PACKAGE}")
    identity = (" ".join((*COMPILER[1:], *LINKER[1:])), _version(), text, canonical_text(target))
    return cached(identity, lambda: _compiled(text))


@functools.cache
def _version() -> str:
    return importlib.metadata.version(PACKAGE)


def _compiled(text: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="ztorch-") as folder:
        source, module = Path(folder, "module.c"), Path(folder, "module.wasm")
        source.write_text(text, "ascii")
        _run([*COMPILER, "-c", "module.c", "-o", "module.o"], folder)
        _run([*LINKER, "module.o", "-o", "module.wasm"], folder)
        return module.read_bytes()


def _run(command: list[str], folder: str) -> None:
    process = subprocess.run(
        command, cwd=folder, capture_output=True, check=False,
        env=child_environment(ZIG_GLOBAL_CACHE_DIR=folder, ZIG_LOCAL_CACHE_DIR=folder))
    if process.returncode:
        raise ZtorchError(f"{PACKAGE} refused the rendered text for WebAssembly: "
                          f"{first_errors(process.stderr)}")
