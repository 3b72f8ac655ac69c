"""A cache of assembled code, in memory and in files that all processes of a user share.

The key of an entry is a digest of everything that its code depends on: the text, the target's row,
the assembler's source, and the LLVM or C compiler that it runs. A file is checked before use; a
damaged one is a miss. Files are written under a temporary name and renamed. If the folder grows too
large, the least recently used files are removed. A folder that cannot be read or written is not an
error; nothing is cached then.
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
from ztorch.sized_cache import SizedCache

MAX_FILE_BYTES = 256 << 20  # of all files; the object of a large network has one or two MiB
MAX_MEMORY_BYTES = 8 << 20  # of the entries that one process keeps in memory
CHECKED_SHARE = 32  # the folder's size is checked after writes of a 32nd of MAX_FILE_BYTES
DIGEST_BYTES = 32  # size of a SHA-256 digest

_memory: SizedCache[bytes, bytes] = SizedCache(MAX_MEMORY_BYTES)  # code by key
_unchecked = MAX_FILE_BYTES  # bytes written since the folder's size was last checked


def cached(parts: Iterable[str | bytes], assemble: Callable[[], bytes]) -> bytes:
    """The code for a key: from the cache, or from `assemble` if the cache does not hold it.

    Args:
        parts: The key: everything that the code depends on.
        assemble: Makes the code.

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


def canonical_text(value: Any) -> str:
    """The same text for equal values in all processes: dataclasses with all fields, sets sorted.

    >>> canonical_text(frozenset({"b", "a"}))
    "{'a', 'b'}"
    """
    if is_dataclass(value):
        inner = (f"{f.name}={canonical_text(getattr(value, f.name))}" for f in fields(value))
        return f"{type(value).__name__}({', '.join(inner)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(canonical_text, value))})"
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(canonical_text, value))) + "}"
    return repr(value)


def forget() -> None:
    """Clears the cache in memory; files remain."""
    _memory.forget()


def _digest(parts: Iterable[str | bytes]) -> bytes:
    """A digest of the parts with their lengths, so that different lists have different digests."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.digest()


def _read(path: Path, key: bytes) -> bytes | None:
    """The code in a file; None if it is missing, damaged, of another key, or not private."""
    try:
        if not _private(path.parent):
            return None
        content = path.read_bytes()
    except OSError:
        return None
    stored, code = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if stored != hashlib.sha256(key + code).digest():
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
        if _unchecked > MAX_FILE_BYTES // CHECKED_SHARE:
            _unchecked = 0
            _shrink(path.parent)
    except OSError:  # the disk is full or read-only
        pass


def _private(folder: Path) -> bool:
    """Whether only this user can write to a folder, whose code will be executed."""
    if not hasattr(os, "geteuid"):
        return folder.is_dir()
    status = folder.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _shrink(folder: Path) -> None:
    """Removes the least recently used files until the others fit. Other processes may do so at the
    same time."""
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            status = entry.stat()
            files.append((status.st_mtime_ns, status.st_size, entry.path))
    size = sum(s for _, s, _ in files)
    for _, nbytes, path in sorted(files):
        if size <= MAX_FILE_BYTES:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        size -= nbytes
