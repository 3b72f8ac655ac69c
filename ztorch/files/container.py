"""The container of an artifact: a zip whose members are stored one after the other.

Members are not compressed: a small file cannot expand to a large one, the bytes do not depend on a
version of zlib, and the bytes that are used are those that were hashed. Any zip tool can list and
unpack it, but the reader accepts only this layout, in which every byte is accounted for. The zip's
comment, its seal, is the hash of the manifest, which has the hashes of the other members.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
from collections.abc import Callable

from ztorch.errors import ArtifactError

MANIFEST = "manifest.json"
DATE = (1980, 1, 1, 0, 0, 0)  # of every member, so that equal programs have equal bytes
UNIX = 3  # the system on which members were made, by their headers
RIGHTS = 0o100644 << 16  # of a regular file that its owner may write and all may read

_END = struct.Struct("<4s4H2IH")  # end of central directory
_ENTRY = struct.Struct("<4s6H3I5H2I")  # one member in the central directory
_LOCAL = struct.Struct("<4s5H3I2H")  # the header in front of the member, which repeats it
_SEAL_BYTES = 64  # of the comment, a hexadecimal SHA-256
_MAX_MEMBERS = 256  # far more than any program has
_MAX_MANIFEST = 16 << 20  # bytes of JSON
_NAME = re.compile(rb"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99})?")

AGAIN = "copy or download it again, or write it again with program.save()"


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file, which is read once: the bytes that were checked are those that run."""
    where = os.fspath(path)
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ArtifactError(f"{where} is not a regular file; pass the path of a .zt file")
            return file.read()
    except IsADirectoryError:
        raise ArtifactError(f"{where} is a folder; pass the path of a .zt file") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        raise ArtifactError(f"cannot read {where}: {getattr(error, 'strerror', None) or error}; "
                            "check the path") from None


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # opening a pipe would block


def members(data: bytes, where: str) -> dict[str, memoryview]:
    """The members by name, in order. `where`: the name of the file in errors."""
    def bad(problem: str, fix: str = AGAIN) -> ArtifactError:
        return ArtifactError(f"{where} {problem}; {fix}")

    if data[:4] != b"PK\3\4":
        start = bytes(data[:4]).hex(" ") or "nothing"
        raise bad(f"is not a ztorch artifact: it starts with {start}, not with a zip member",
                  "pass a file that program.save() wrote")
    if where.endswith(".keras"):
        raise bad("is a file of Keras", f"load it with zt.load_model({where!r})")
    end = len(data) - _END.size - _SEAL_BYTES
    if end < 0 or data[end:end + 4] != b"PK\5\6":
        raise bad("is truncated, has bytes after its end, or was packed by another tool: it does "
                  "not end with ztorch's seal")
    _, disk, first_disk, entries_here, count, size, start_at, comment = _END.unpack_from(data, end)
    if disk or first_disk or entries_here != count or comment != _SEAL_BYTES:
        raise bad("has a damaged end record")
    if not 1 <= count <= _MAX_MEMBERS:
        raise bad(f"claims {count} members; an artifact has 1 to {_MAX_MEMBERS}")
    if start_at + size != end:
        raise bad(f"has a damaged end record: its directory of {size} bytes at {start_at} does not "
                  f"end at {end}")
    contents = _walk(memoryview(data), start_at, end, count, bad)
    seal = bytes(data[-_SEAL_BYTES:])
    if MANIFEST not in contents:
        raise bad(f"has no member {MANIFEST}")
    manifest = contents[MANIFEST]
    if len(manifest) > _MAX_MANIFEST:
        raise bad(f"has a {MANIFEST} of {len(manifest)} bytes; at most {_MAX_MANIFEST} are read")
    if hashlib.sha256(manifest).hexdigest().encode() != seal:
        raise bad(f"is damaged: the hash of its member {MANIFEST} is not the one in its seal")
    return contents


def _walk(data: memoryview, at: int, end: int, count: int,
          bad: Callable[[str], ArtifactError]) -> dict[str, memoryview]:
    """Reads directory and members side by side, which must match and leave no gaps."""
    contents: dict[str, memoryview] = {}
    directory, position = at, 0
    for k in range(count):
        if at + _ENTRY.size > end:
            raise bad(f"has a damaged directory: entry {k} of {count} is truncated")
        (mark, made_by, version, flags, method, _, _, _, packed, size, name_size, extra, comment,
         disk, text, rights, offset) = _ENTRY.unpack_from(data, at)
        if mark != b"PK\1\2" or extra or comment or disk or at + _ENTRY.size + name_size > end:
            raise bad(f"has a damaged directory: entry {k} of {count} is not a stored member")
        raw = bytes(data[at + _ENTRY.size:at + _ENTRY.size + name_size])
        name = raw.decode("ascii", "backslashreplace")
        if not _NAME.fullmatch(raw) or ".." in name:
            raise bad(f"has a member named {name[:80]!r}, which no artifact has")
        if name in contents:
            raise bad(f"has two members named {name!r}")
        if method or flags:
            raise bad(f"has a member {name!r} that is compressed or encrypted (method {method}, "
                      f"flags {flags}); ztorch stores members uncompressed")
        if packed != size:
            raise bad(f"has a member {name!r} of two sizes, {packed} and {size} bytes")
        body = position + _LOCAL.size + name_size
        if offset != position or body + size > directory:
            raise bad(f"is damaged: member {name!r} of {size} bytes is not at {offset}")
        # The local header repeats the directory's entry, from the version to the name's length.
        if (bytes(data[position:position + 4]) != b"PK\3\4"
                or bytes(data[body - name_size:body]) != raw
                or data[position + 4:position + 30] != data[at + 6:at + 32]):
            raise bad(f"is damaged: the header of member {name!r} differs from the directory")
        if text or rights != RIGHTS or made_by != UNIX << 8 | version:
            raise bad(f"is damaged, or was packed by another tool: member {name!r} has other "
                      "attributes than ztorch writes")
        contents[name] = data[body:body + size]
        position, at = body + size, at + _ENTRY.size + name_size
    if at != end or position != directory:
        raise bad("is damaged: it has bytes that belong to no member")
    return contents


def check(contents: dict[str, memoryview], name: str, size: int, sha256: str,
          where: str) -> None:
    """Checks a member against its size and hash in the manifest."""
    if name not in contents:
        raise ArtifactError(f"{where} lacks the member {name!r} that its manifest lists; {AGAIN}")
    data = contents[name]
    if len(data) != size:
        raise ArtifactError(f"{where}: member {name!r} has {len(data)} bytes, its manifest says "
                            f"{size}; {AGAIN}")
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ArtifactError(f"{where}: member {name!r} is damaged: its hash is not the one in the "
                            f"manifest; {AGAIN}")
