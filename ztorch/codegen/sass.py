"""NVIDIA's machine code as text, which nvdisasm writes where it is installed."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

from ztorch.errors import Unsupported

PACKAGE = "nvidia-cuda-nvdisasm"


@functools.cache
def disassembler() -> str:
    """Where nvdisasm is: on the PATH, or in a package of NVIDIA's; empty if nowhere."""
    program = shutil.which("nvdisasm")
    if program is None and (packages := importlib.util.find_spec("nvidia")) is not None:
        program = next((str(path) for place in packages.submodule_search_locations or ()
                        for path in sorted(Path(place).glob("*/bin/nvdisasm"))), None)
    return program or ""


def disassembled(cubin: bytes) -> str:
    """The instructions of a cubin's kernels.

    Raises:
        Unsupported: nvdisasm is not installed, or does not know this code.
    """
    if not disassembler():
        raise Unsupported(f"machine code of NVIDIA's GPUs is shown by nvdisasm, which is not "
                          f"installed; pip install {PACKAGE}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(cubin)
        process = subprocess.run([disassembler(), "--print-code", str(path)], capture_output=True,
                                 text=True, check=False)
    if process.returncode:
        raise Unsupported(f"nvdisasm refuses the code: {process.stderr.strip()}")
    return process.stdout
