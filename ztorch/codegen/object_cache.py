"""Code that was assembled before: in memory, and in files that all processes of a user share.

An entry is found by a digest of everything its code depends on, which each assembler lists: the
text, the row of the target, the assembler's own source, and which LLVM or C compiler it runs. A
file's content is checked before it is used, so that a damaged one is a miss. Files are written
beside their place and renamed, and those unused for longest go when the folder grows too large. A
folder that cannot be read or written costs the gain, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from ztorch.host import settings

MOST_BYTES = 256 << 20  # of files; a large network's object takes one or two MiB
MOST_IN_MEMORY = 64 << 20  # bytes of code that one process keeps
DIGEST = 32  # bytes of a SHA-256

_lock = threading.Lock()
_memory: OrderedDict[bytes, bytes] = OrderedDict()
_unchecked = MOST_BYTES  # bytes written since the folder's size was last looked at


def cached(parts: Iterable[str | bytes], assemble: Callable[[], bytes]) -> bytes:
    """The code for these parts of a key: what was kept of an earlier call, else a new one's.

    >>> with settings.using(cache=None):
    ...     cached(["text", "target"], lambda: b"code")
    b'code'
    """
    folder = settings.current().cache
    if folder is None:
        return assemble()
    key = _digest(parts)
    code = _remembered(key)
    if code is None:
        path = Path(folder, "objects", key.hex())
        code = _read(path, key)
        if code is None:
            code = assemble()
            _write(path, key, code)
        _remember(key, code)
    return code


def row(value: Any) -> str:
    """A dataclass with all its fields as text, the same in every process: sets are sorted.

    >>> row(frozenset({"b", "a"}))
    "{'a', 'b'}"
    """
    if is_dataclass(value):
        inner = (f"{f.name}={row(getattr(value, f.name))}" for f in fields(value))
        return f"{type(value).__name__}({', '.join(inner)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(row, value))})"
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(row, value))) + "}"
    return repr(value)


def forget() -> None:
    """Drops what this process keeps in memory; files stay."""
    with _lock:
        _memory.clear()


def _digest(parts: Iterable[str | bytes]) -> bytes:
    """Each part with its length before it, so that no two lists of parts run together."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.digest()


def _remembered(key: bytes) -> bytes | None:
    with _lock:
        code = _memory.get(key)
        if code is not None:
            _memory.move_to_end(key)
        return code


def _remember(key: bytes, code: bytes) -> None:
    with _lock:
        _memory[key] = code
        while sum(map(len, _memory.values())) > MOST_IN_MEMORY:
            _memory.popitem(last=False)


def _read(path: Path, key: bytes) -> bytes | None:
    """A file's code, if it is whole and was written for this key by someone we trust."""
    try:
        if not _private(path.parent):
            return None
        content = path.read_bytes()
    except OSError:
        return None
    check, code = content[:DIGEST], content[DIGEST:]
    if check != hashlib.sha256(key + code).digest():
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # used now: others go first
    return code


def _write(path: Path, key: bytes, code: bytes) -> None:
    global _unchecked
    partial = path.with_name(f".{os.getpid()}.{threading.get_ident()}.partial")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _private(path.parent):
            return
        try:
            partial.write_bytes(hashlib.sha256(key + code).digest() + code)
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        _unchecked += len(code)
        if _unchecked > MOST_BYTES // 32:  # not at each write: it looks at every file
            _unchecked = 0
            _shrink(path.parent)
    except OSError:  # a disk that is full, or may not be written
        pass


def _private(folder: Path) -> bool:
    """Whether only this user can put code into a folder: what lies there will be run."""
    if not hasattr(os, "geteuid"):
        return folder.is_dir()
    status = folder.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _shrink(folder: Path) -> None:
    """Removes the files that were used longest ago until the others fit; other processes may do
    the same at the same time."""
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            status = entry.stat()
            files.append((status.st_mtime_ns, status.st_size, entry.path))
    size = sum(s for _, s, _ in files)
    for _, bytes_, path in sorted(files):
        if size <= MOST_BYTES:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        size -= bytes_
