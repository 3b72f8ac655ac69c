"""C text to an object file, by the C compiler of the system in a child process."""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from ztorch.codegen.elf_object import EM_AARCH64, EM_X86_64
from ztorch.codegen.object_cache import cached, row
from ztorch.codegen.targets import Target
from ztorch.errors import DeviceError, ZtorchError
from ztorch.host.c_compiler import compiler

# Strict C99, each operation rounded by itself, and nothing that would call what is not in the
# object: no errno, no guards of the stack. (That GCC makes no memset of a loop, the text says.)
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-ffreestanding",
         "-fno-stack-protector")
MACHINES = {"x86_64": EM_X86_64, "aarch64": EM_AARCH64}
MORE = {"aarch64": ("-mno-outline-atomics",)}


def assemble(text: str, target: Target) -> bytes:
    """The object file of a module, from the cache if the same compiler made it before.

    >>> assemble("int one(void) { return 1; }", target("c"))[:4]     # doctest: +SKIP
    b'\\x7fELF'
    """
    obj = cached((*_identity(text, target), row(target)), lambda: _compiled(text, target, "-c"))
    machine = int.from_bytes(obj[18:20], "little")
    if obj[:4] == b"\x7fELF" and machine != MACHINES.get(target.arch, machine):
        raise DeviceError(f"{shlex.join(compiler())} makes code for another machine; device 'c' is "
                          f"this one, {target.arch}. To take a model elsewhere, export it as C "
                          "source: ztorch export --so --device c")
    return obj


def _identity(text: str, target: Target) -> list[str | bytes]:
    """What the object depends on: the text after the preprocessor, which has read the system's
    headers, and what the compiler says of itself and of the programs and options it will use."""
    command = [*compiler(), *FLAGS, *MORE.get(target.arch, ())]
    seen = subprocess.run([*command, "-x", "c", "-v", "-E", "-"], input=text.encode("ascii"),
                          capture_output=True, check=False)
    return [shlex.join(command), text, seen.stdout, seen.stderr, _programs(tuple(compiler()))]


@functools.cache
def _programs(command: tuple[str, ...]) -> str:
    """The files that a compiler is made of, by size and time."""
    paths = [shutil.which(command[0]) or command[0]]
    for name in ("cc1", "as"):
        seen = subprocess.run([*command, f"-print-prog-name={name}"], capture_output=True,
                              text=True, check=False)
        paths.append(shutil.which(seen.stdout.strip()) or "")
    files = [Path(path) for path in paths if path]
    return repr([(str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns) for f in files])


def assembly(text: str, target: Target) -> str:
    """The same as readable machine code, for people."""
    return _compiled(text, target, "-S").decode()


def _compiled(text: str, target: Target, stage: str) -> bytes:
    command = compiler()
    with tempfile.TemporaryDirectory(prefix="ztorch-") as folder:
        out = Path(folder, "module")
        done = subprocess.run(
            [*command, *FLAGS, *MORE.get(target.arch, ()), "-x", "c", stage, "-", "-o", str(out)],
            input=text.encode("ascii"), capture_output=True, check=False)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            why = [line for line in lines if "error" in line] or lines or ["it says nothing"]
            raise ZtorchError(f"{shlex.join(command)} refused the rendered text for {target.name}: "
                              f"{' '.join(why[:3])}")
        return out.read_bytes()
