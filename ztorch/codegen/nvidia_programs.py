"""NVIDIA's command-line programs: finds and runs nvdisasm and ptxas."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

from ztorch.errors import Unsupported

PACKAGES = {"nvdisasm": "nvidia-cuda-nvdisasm", "ptxas": "nvidia-cuda-nvcc"}  # on PyPI


@functools.cache
def installed(name: str) -> str:
    """The path of a program, on the PATH or in a package of NVIDIA; empty if not installed."""
    program = shutil.which(name)
    if program is None and (packages := importlib.util.find_spec("nvidia")) is not None:
        program = next((str(path) for folder_path in packages.submodule_search_locations or ()
                        for path in sorted(Path(folder_path).glob(f"*/bin/{name}"))), None)
    return program or ""


def disassemble(cubin: bytes) -> str:
    """The instructions of the kernels in a cubin, as text.

    Raises:
        Unsupported: nvdisasm is not installed, or refuses the code.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.cubin")
        path.write_bytes(cubin)
        return _output("nvdisasm", "--print-code", str(path))


@functools.cache
def ptxas_version() -> str:
    """The last line of `ptxas --version`; empty if it is not installed."""
    return _output("ptxas", "--version").strip().rsplit("\n", 1)[-1] if installed("ptxas") else ""


def assemble_with_ptxas(text: str, chip: str) -> tuple[bytes, str]:
    """The cubin of a PTX text for one chip, and the log of ptxas.

    Raises:
        Unsupported: ptxas is not installed, or refuses the text.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, code = Path(folder, "kernels.ptx"), Path(folder, "kernels.cubin")
        source.write_text(text)
        log = _output("ptxas", "--verbose", f"--gpu-name={chip}", str(source), "-o", str(code))
        return code.read_bytes(), log


def _output(name: str, *args: str) -> str:
    """Runs a program and returns its output."""
    if not installed(name):
        raise Unsupported(f"this needs {name}, which is not installed; pip install "
                          f"{PACKAGES[name]}")
    process = subprocess.run([installed(name), *args], capture_output=True, text=True, check=False)
    if process.returncode:
        raise Unsupported(f"{name} refuses the code: {process.stderr.strip()}")
    return process.stdout + process.stderr
