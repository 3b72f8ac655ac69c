"""C text to an object file, by the C compiler of the system in a child process."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from ztorch.codegen.targets import Target
from ztorch.errors import DeviceError, ZtorchError
from ztorch.settings import current

NAMES = ("cc", "gcc", "clang")
# Strict C99, each operation rounded by itself, and nothing that would call what is not in the
# object: no errno, no guards of the stack. (That GCC makes no memset of a loop, the text says.)
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-ffreestanding",
         "-fno-stack-protector")
MORE = {"aarch64": ("-mno-outline-atomics",)}


def compiler() -> list[str]:
    """The command that compiles C: what CC says, else the first of those that most systems have.

    >>> compiler()     # doctest: +SKIP
    ['cc']
    """
    if chosen := current().cc:
        command = shlex.split(chosen)
        if not command or shutil.which(command[0]) is None:
            raise DeviceError(f"CC={chosen!r} is no compiler that can be run; set it to one, or to "
                              f"nothing to have {', '.join(NAMES)} looked for")
        return command
    for name in NAMES:
        if shutil.which(name):
            return [name]
    raise DeviceError(f"device 'c' needs a C compiler, and there is none called "
                      f"{', '.join(NAMES)}: install one (apt install gcc, dnf install gcc), or "
                      "name yours in CC")


def assemble(text: str, target: Target) -> bytes:
    """The object file of a module.

    >>> assemble("int one(void) { return 1; }", target("c"))[:4]     # doctest: +SKIP
    b'\\x7fELF'
    """
    return _compiled(text, target, "-c")


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
