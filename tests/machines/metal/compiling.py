"""Kernels in Metal's language, compiled as C++ by this machine (see shim/metal_stdlib)."""

from __future__ import annotations

import atexit
import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.machines.metal.fake import Mac

SHIM = Path(__file__).with_name("shim")
COMPILER = shutil.which("g++")
# A compiled kernel runs once or twice, so the time goes into compiling it.
FLAGS = ("-std=c++17", "-O0", "-ffp-contract=off", "-fPIC", "-w")
KERNEL = re.compile(r"max_total_threads_per_threadgroup\(([\d* ]+)\)\]\]\s*kernel void (\w+)\((.*?)\) \{\n"
                    r"(.*?)\n\}\n", re.S)


def launchers(text: str) -> str:
    """A plain function for each kernel, and Metal's attributes of the kernel."""
    result = []
    for threads, name, parameters, body in KERNEL.findall(text):
        count = len(re.findall(r"\[\[buffer\(\d+\)\]\]", parameters))
        assert [int(n) for n in re.findall(r"\[\[buffer\((\d+)\)\]\]", parameters)] == list(range(count))
        arguments = "".join(f"launching::any{{launching::buffers[{k}]}}, " for k in range(count))
        alone = "threadgroup_barrier" not in body and "simd_" not in body
        result.append(
            f'extern "C" void run_{name}(void **b, const uint *g, const uint *t) {{\n'
            f"  launching::all(b, g, t, {str(alone).lower()}, [](uint3 at) {{ "
            f"{name}({arguments}launching::group, at); }});\n}}\n"
            f'extern "C" const uint buffers_{name} = {count}, most_{name} = {threads};\n')
    return "\n".join(result)


@functools.cache
def parsed_header() -> str:
    """A folder with the shim as g++ keeps it once it is parsed, which takes most of a compilation."""
    folder = tempfile.mkdtemp(prefix="zt_metal_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copy(SHIM / "metal_stdlib", folder)
    subprocess.run([COMPILER or "g++", *FLAGS, "-x", "c++-header", f"{folder}/metal_stdlib",
                    "-o", f"{folder}/metal_stdlib.gch"], check=True, capture_output=True)
    return folder


@functools.lru_cache(maxsize=64)
def compiled(text: str) -> ctypes.CDLL:
    """The kernels of a text; tests of one device compile the same few again and again."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "kernels.cc"), Path(folder, "kernels.so")
        # a group's memory is one for all its threads, as they take turns
        held = re.sub(r"^  threadgroup (?=\w+ \w+\[)", "  static ", text, flags=re.M)
        source.write_text(held + launchers(text))
        subprocess.run([COMPILER or "g++", *FLAGS, "-shared", f"-I{parsed_header()}", source, "-o", out],
                       check=True, capture_output=True)
        return ctypes.CDLL(str(out))


class Library:
    def __init__(self, mac: Mac, text: str):
        self.mac = mac
        self.names = [name for _, name, _, _ in KERNEL.findall(text)]
        self.code = compiled(text)

    def newFunctionWithName_(self, name: str) -> Function | None:
        self.mac.said("newFunction", name)
        return Function(self, name) if name in self.names else None


class Function:
    def __init__(self, library: Library, name: str):
        self.name, self.run = name, getattr(library.code, f"run_{name}")
        self.buffers = ctypes.c_uint.in_dll(library.code, f"buffers_{name}").value
        self.most = ctypes.c_uint.in_dll(library.code, f"most_{name}").value
