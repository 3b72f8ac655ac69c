"""A child process that runs LLVM for other machines, because some errors abort the process.

The child starts with the first module and serves all threads of this process, one module at a time.
It exits when its input is closed, which also happens if this process crashes. If the child crashes
or takes too long, that module gets an error, and the next module a new child.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, BinaryIO

from ztorch.codegen.llvm import MachineOptions, object_file
from ztorch.errors import ZtorchError
from ztorch.locks import new_lock

MAX_MODULES = 500  # modules per child, since LLVM never frees some memory
MAX_SECONDS = 600.0  # time limit of one module
# The head of a message. Request: bytes of the options, bytes of the text. Response: whether the
# module failed, bytes of the object or of the error message.
_HEAD = struct.Struct("<QQ")

_lock = new_lock()  # held while communicating with the child


class _Child:
    """A running child and its pipes, which are unbuffered: closing one writes nothing."""

    def __init__(self) -> None:
        # A file, because a pipe that nobody reads would fill up.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the pipes)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ztorch.codegen.llvm_child"], bufsize=0, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors, cwd=Path(__file__).parents[2])
        self.modules = 0  # number of modules compiled so far

    def compile(self, text: bytes, options: MachineOptions) -> tuple[bool, bytes] | None:
        """Whether the module failed, and its object file or the error; None if the child exited."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.modules += 1
        self._errors.seek(0)
        self._errors.truncate()
        head = json.dumps(options).encode()
        watchdog = threading.Timer(MAX_SECONDS, self.process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            _write(self.process.stdin, _HEAD.pack(len(head), len(text)) + head + text)
            failed, size = _HEAD.unpack(_read(self.process.stdout, _HEAD.size))
            return bool(failed), _read(self.process.stdout, size)
        except (BrokenPipeError, EOFError):
            return None
        finally:
            watchdog.cancel()

    def failure(self) -> str:
        """The reason why the child exited: the end of its error output."""
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return f"it was killed, after {MAX_SECONDS:g} s or for lack of memory"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return " ".join(lines[-3:]) or f"it exited with code {code}"

    def end(self) -> None:
        """Kills the child and waits for it."""
        self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Closes this process's ends of the pipes."""
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            assert pipe is not None
            pipe.close()


_child: _Child | None = None


def object_file_in_child(text: str, options: MachineOptions) -> bytes:
    """The object file of a module, like `llvm.object_file`.

    >>> from ztorch.codegen.llvm import MachineOptions
    >>> arm = MachineOptions("neon", "aarch64-unknown-linux-gnu", "generic", ("neon",), 1)
    >>> object_file_in_child("define i32 @one() { ret i32 1 }", arm)[:4]
    b'\\x7fELF'
    """
    with _lock:
        child = _running()
        try:
            response = child.compile(text.encode(), options)
        except BaseException:  # the pipes may hold half a response
            _end()
            raise
        if response is None:
            reason = child.failure()
            _end()
            kernels = ", ".join(re.findall(r"^define .*@(\w+)\(", text, re.MULTILINE)[:3])
            raise ZtorchError(f"LLVM could not generate code for {options.target} "
                              f"(module with {kernels or 'no kernels'}): {reason}")
    failed, content = response
    if failed:
        raise ZtorchError(content.decode())
    return content


def _running() -> _Child:
    """The child. A new one is started if there is none, or if it has compiled MAX_MODULES
    modules."""
    global _child
    if _child is not None and (_child.modules >= MAX_MODULES or _child.process.poll() is not None):
        _end()
    if _child is None:
        _child = _Child()
    return _child


def _end() -> None:
    global _child
    if _child is not None:
        _child.end()
        _child = None


def _leave_to_parent() -> None:
    """After a fork: closes the pipes, so that the child sees its input end with the parent."""
    global _child
    if _child is not None:
        _child.process.returncode = 0  # this process must not wait for it
        _child.close()
        _child = None


def _write(pipe: IO[bytes], content: bytes) -> None:
    """Writes all bytes: an unbuffered pipe may take only some of them."""
    rest = memoryview(content)
    while rest:
        rest = rest[pipe.write(rest):]


def _read(pipe: IO[bytes], size: int) -> bytes:
    """Reads so many bytes; raises EOFError if the pipe ends before."""
    parts = []
    while size:
        part = pipe.read(size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def serve(requests: BinaryIO, responses: BinaryIO) -> None:
    """Compiles modules until the input ends. This runs in the child."""
    while head := requests.read(_HEAD.size):
        sizes = _HEAD.unpack(head)
        target, triple, cpu, features, *others = json.loads(requests.read(sizes[0]))
        options = MachineOptions(target, triple, cpu, tuple(features), *others)
        try:
            failed, content = False, object_file(requests.read(sizes[1]).decode(), options)
        except ZtorchError as error:
            failed, content = True, str(error).encode()
        responses.write(_HEAD.pack(failed, len(content)) + content)
        responses.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    serve(sys.stdin.buffer, sys.stdout.buffer)
else:
    atexit.register(_end)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_leave_to_parent)
