"""NVIDIA's command-line programs, where they are installed."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

from ztorch.errors import Unsupported

PACKAGES = {"nvdisasm": "nvidia-cuda-nvdisasm", "ptxas": "nvidia-cuda-nvcc"}


@functools.cache
def installed(name: str) -> str:
    """The path of a program: on the PATH, or in a package of NVIDIA's; empty if not installed."""
    program = shutil.which(name)
    if program is None and (packages := importlib.util.find_spec("nvidia")) is not None:
        program = next((str(path) for place in packages.submodule_search_locations or ()
                        for path in sorted(Path(place).glob(f"*/bin/{name}"))), None)
    return program or ""


def disassembled(cubin: bytes) -> str:
    """The instructions of a cubin's kernels.

    Raises:
        Unsupported: nvdisasm is not installed, or does not know this code.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.cubin")
        path.write_bytes(cubin)
        return _output("nvdisasm", "--print-code", str(path))


@functools.cache
def ptxas_version() -> str:
    """The last line of `ptxas --version`; empty where it is not installed."""
    return _output("ptxas", "--version").strip().rsplit("\n", 1)[-1] if installed("ptxas") else ""


def by_ptxas(text: str, chip: str) -> tuple[bytes, str]:
    """The machine code of a text for one chip, and the log of ptxas.

    Raises:
        Unsupported: ptxas is not installed, or refuses the text.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, code = Path(folder, "kernels.ptx"), Path(folder, "kernels.cubin")
        source.write_text(text)
        log = _output("ptxas", "--verbose", f"--gpu-name={chip}", str(source), "-o", str(code))
        return code.read_bytes(), log


def _output(name: str, *args: str) -> str:
    """The output of a program."""
    if not installed(name):
        raise Unsupported(f"this needs {name}, which is not installed; pip install "
                          f"{PACKAGES[name]}")
    process = subprocess.run([installed(name), *args], capture_output=True, text=True, check=False)
    if process.returncode:
        raise Unsupported(f"{name} refuses the code: {process.stderr.strip()}")
    return process.stdout + process.stderr
