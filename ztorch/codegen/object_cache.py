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
from collections.abc import Callable, Iterable, Sequence
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
    return all_cached([parts], lambda _: [assemble()])[0]


def all_cached(keys: Sequence[Iterable[str | bytes]],
               assemble: Callable[[Sequence[int]], Iterable[bytes]]) -> list[bytes]:
    """The code for several keys: like `cached`, but what the cache does not hold is made at once.

    Args:
        keys: The keys, each with everything that its code depends on.
        assemble: Makes the code for the keys with these numbers.

    >>> with settings.using(cache=None):
    ...     all_cached([["a"], ["b"]], lambda missing: [b"code %d" % n for n in missing])
    [b'code 0', b'code 1']
    """
    folder = settings.current().cache
    if folder is None:
        return list(assemble(range(len(keys))))
    digests = [_digest(parts) for parts in keys]
    codes = [_find(folder, key) for key in digests]
    missing = [n for n, code in enumerate(codes) if code is None]
    if missing:
        for n, code in zip(missing, assemble(missing), strict=True):
            codes[n] = code
            _write(_path(folder, digests[n]), digests[n], code)
            _memory.put(digests[n], code, len(code))
    return [code for code in codes if code is not None]


def _find(folder: str, key: bytes) -> bytes | None:
    """The code for a key, in memory or in a file; None if there is none."""
    code = _memory.get(key)
    if code is None:
        code = _read(_path(folder, key), key)
        if code is not None:
            _memory.put(key, code, len(code))
    return code


def _path(folder: str, key: bytes) -> Path:
    return Path(folder, "objects", key.hex())


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
