"""Cache of assembled code: in memory, and in files that all processes of a user share.

The key of an entry is a digest of everything that its code depends on. Each assembler lists it:
the text, the target's row, the assembler's own source, and the LLVM or C compiler it runs. A file
is checked before use; a damaged one is a miss. Files are written under a temporary name and
renamed. If the folder grows too large, the least recently used files are removed. If it cannot be
read or written, there is no cache, but no error either.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from ztorch.host import settings
from ztorch.remembered import Remembered

MOST_BYTES = 256 << 20  # of all files; the object of a large network has one or two MiB
MOST_IN_MEMORY = 8 << 20  # bytes of code that one process keeps; the rest comes from the files
DIGEST = 32  # bytes of a SHA-256 digest

_memory: Remembered[bytes, bytes] = Remembered(MOST_IN_MEMORY)  # code by its key
_unchecked = MOST_BYTES  # bytes written since the folder's size was last checked


def cached(parts: Iterable[str | bytes], assemble: Callable[[], bytes]) -> bytes:
    """The code for a key with these parts: from the cache, or else from `assemble`.

    >>> with settings.using(cache=None):
    ...     cached(["text", "target"], lambda: b"code")
    b'code'
    """
    folder = settings.current().cache
    if folder is None:
        return assemble()
    key = _digest(parts)
    code = _memory.get(key)
    if code is None:
        path = Path(folder, "objects", key.hex())
        code = _read(path, key)
        if code is None:
            code = assemble()
            _write(path, key, code)
        _memory.put(key, code, len(code))
    return code


def row(value: Any) -> str:
    """A value as text, dataclasses with all fields. Sets are sorted: equal in all processes.

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
    """Clears the cache in memory; files remain."""
    _memory.forget()


def _digest(parts: Iterable[str | bytes]) -> bytes:
    """A digest of the parts. Each has its length before it, so different lists never coincide."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.digest()


def _read(path: Path, key: bytes) -> bytes | None:
    """The code in a file, if it is undamaged, was written for this key and is private."""
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
        os.utime(path)  # marks it as recently used
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
        if _unchecked > MOST_BYTES // 32:  # not at each write, because it scans all files
            _unchecked = 0
            _shrink(path.parent)
    except OSError:  # the disk is full or read-only
        pass


def _private(folder: Path) -> bool:
    """Whether only this user can write to a folder: the code in it will be executed."""
    if not hasattr(os, "geteuid"):
        return folder.is_dir()
    status = folder.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _shrink(folder: Path) -> None:
    """Removes the least recently used files until the others fit.

    Other processes may do the same at the same time.
    """
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            status = entry.stat()
            files.append((status.st_mtime_ns, status.st_size, entry.path))
    size = sum(s for _, s, _ in files)
    for _, nbytes, path in sorted(files):
        if size <= MOST_BYTES:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        size -= nbytes
