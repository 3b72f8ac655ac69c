"""Compiles C text to an object file with the system's C compiler, in a child process."""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from ztorch.codegen.elf.object import MACHINE_NUMBERS
from ztorch.codegen.object_cache import cached, canonical_text
from ztorch.codegen.targets import Target
from ztorch.errors import DeviceError, ZtorchError
from ztorch.host.c_compiler import compiler

# Strict C99 without fused operations, and without references to symbols outside the object: no
# errno, no stack protector. (The text itself stops GCC from turning loops into memset.)
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-ffreestanding",
         "-fno-stack-protector")
ARCH_FLAGS = {"aarch64": ("-mno-outline-atomics",)}  # outline atomics call libgcc


def assemble(text: str, target: Target) -> bytes:
    """The object file of a module, from the cache if the same compiler built it before.

    >>> assemble("int one(void) { return 1; }", target("c"))[:4]     # doctest: +SKIP
    b'\\x7fELF'
    """
    key = (*_identity(text, target), canonical_text(target))
    obj = cached(key, lambda: _compiled(text, target, "-c"))
    machine = int.from_bytes(obj[18:20], "little")  # e_machine, if it is an ELF object
    if obj[:4] == b"\x7fELF" and machine != MACHINE_NUMBERS.get(target.arch, machine):
        raise DeviceError(f"{shlex.join(compiler())} generates code for another machine than this "
                          f"{target.arch}. For another machine, export the model as C source: "
                          "ztorch export --so --device c")
    return obj


def _identity(text: str, target: Target) -> list[str | bytes]:
    """Everything that the object depends on: the preprocessed text, which includes the system's
    headers, and the compiler's report of its version, programs and options."""
    command = _command(target)
    process = subprocess.run([*command, "-x", "c", "-v", "-E", "-"], input=text.encode("ascii"),
                             capture_output=True, check=False)
    return [shlex.join(command), text, process.stdout, process.stderr,
            _programs(tuple(compiler()))]


@functools.cache
def _programs(command: tuple[str, ...]) -> str:
    """The program files of a compiler, with size and modification time."""
    paths = [shutil.which(command[0]) or command[0]]
    for name in ("cc1", "as"):
        process = subprocess.run([*command, f"-print-prog-name={name}"], capture_output=True,
                                 text=True, check=False)
        paths.append(shutil.which(process.stdout.strip()) or "")
    files = [Path(path) for path in paths if path]
    return repr([(str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns) for f in files])


def assembly(text: str, target: Target) -> str:
    """The assembly text of a module, for display."""
    return _compiled(text, target, "-S").decode()


def _compiled(text: str, target: Target, stage: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="ztorch-") as folder:
        out = Path(folder, "module")
        process = subprocess.run(
            [*_command(target), "-x", "c", stage, "-", "-o", str(out)],
            input=text.encode("ascii"), capture_output=True, check=False)
        if process.returncode:
            raise ZtorchError(f"{shlex.join(compiler())} refused the rendered text for "
                              f"{target.name}: {first_errors(process.stderr)}")
        return out.read_bytes()


def _command(target: Target) -> list[str]:
    return [*compiler(), *FLAGS, *ARCH_FLAGS.get(target.arch, ())]


def first_errors(stderr: bytes) -> str:
    """The first three error messages of a compiler, or its first lines if none says "error".

    >>> first_errors(b"a.c:1: warning: w\\na.c:2: error: e")
    'a.c:2: error: e'
    """
    lines = stderr.decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if "error" in line] or lines or ["it printed no message"]
    return " ".join(errors[:3])
