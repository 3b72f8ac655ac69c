"""Loads compiled code (bytes) into this process.

dlopen has two pitfalls. It identifies libraries by path: for a new file at an old path, or for a
reused descriptor number, it silently returns the old library, which is another model's code. And
it trusts the file: a truncated one causes a SIGBUS later. Therefore:

- each library gets its own sealed memory file, under a path that was never used before;
- equal code is loaded once;
- the bytes are checked before loading, and the build id of the mapped library after it.

The file is closed once it is mapped, and a library is unmapped when nothing refers to it: a process
may compile and drop any number of programs.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import struct
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ztorch.errors import ArtifactError
from ztorch.locks import new_lock

_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}  # by e_machine of the ELF header
_HOST = {"amd64": "x86_64", "arm64": "aarch64"}  # other names that uname reports
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4  # types of segments
_SHARED_LIBRARY = 3  # ET_DYN, the type of an ELF file
_HEADER_BYTES, _SEGMENT_BYTES = 64, 56  # sizes of the ELF header and of a program header
_NOTE_HEAD_BYTES = 16  # size of the note of the build id, without the id
_ID_BYTES = 20  # length of the build id

# Flags of memfd_create, and commands and seals of fcntl. The standard library lacks some of them.
_CLOEXEC, _ALLOW_SEALING, _NOEXEC_SEAL = 1, 2, 8
_ADD_SEALS, _SEAL, _SHRINK, _GROW, _WRITE = 1033, 1, 2, 4, 8
_LINK_MAP = 2  # RTLD_DI_LINKMAP, a request of dlinfo

_loaded: weakref.WeakValueDictionary[bytes, LoadedLibrary] = weakref.WeakValueDictionary()
_lock = new_lock()
_numbers = itertools.count(1)  # numbers of memory files, for their paths


class WorkerPool(Protocol):
    """Worker threads that may execute code of a library; `workers.py` has the class."""

    def runs_ended(self) -> int | None:
        """How many of their runs have ended; None if the threads no longer exist."""


# Libraries to be unmapped: the handle, and how many runs of each pool had ended at that time.
_dropped: deque[tuple[int, dict[WorkerPool, int | None]]] = deque()


class LoadedLibrary(ctypes.CDLL):
    """Compiled code that is mapped into this process."""

    def __init__(self, path: str):
        super().__init__(path)
        self.pools: set[WorkerPool] = set()  # the pools that have run it


def load_library(code: bytes, name: str, dump_dir: str | None = None) -> LoadedLibrary:
    """Loads a shared library made by ztorch. Equal code returns the same handle.

    >>> load_library(code, "digits").digits_predict(x, y, params, arena)     # doctest: +SKIP

    The code is unmapped when nothing refers to the handle or to one of its functions. An address
    alone does not keep it mapped.

    Args:
        code: The shared library.
        name: A label in memory maps.
        dump_dir: A folder to write the library to, and to load it from. Default None: a memory
            file, which profilers cannot read after the process has ended.

    Raises:
        ArtifactError: The code is damaged, or made for another machine.
    """
    code = bytes(code)
    key = hashlib.sha256(code).digest()
    label = "".join(c if c.isascii() and (c.isalnum() or c in "-._") else "_" for c in name)[:100]
    with _lock:
        library = _loaded.get(key)
        if library is None:
            library = _loaded[key] = _load(code, label or "library", key, dump_dir)
            # Not at the end of the process, when workers still wait inside the code.
            weakref.finalize(library, _drop, library._handle, library.pools).atexit = False
        elif dump_dir is not None:
            _dump(code, label or "library", key, dump_dir)
        return library


def _drop(handle: int, pools: set[WorkerPool]) -> None:
    """Unmaps a library as soon as no worker executes its code.

    When a run ends, a worker may still be in the last instructions of its barrier. It has left them
    once a later run of the same pool has ended.
    """
    _dropped.append((handle, {pool: pool.runs_ended() for pool in pools}))
    for _ in range(len(_dropped)):
        try:
            handle, runs_before = _dropped.popleft()
        except IndexError:  # another thread has emptied the queue
            return
        if all((now := pool.runs_ended()) is None or now != n for pool, n in runs_before.items()):
            _dlclose()(handle)
        else:
            _dropped.append((handle, runs_before))


@functools.cache
def _dlclose() -> Callable[[int], int]:
    """The C function that unmaps a library; cached, as `ctypes.CDLL` creates a class each time."""
    close = ctypes.CDLL(None).dlclose
    close.argtypes = [ctypes.c_void_p]
    return close


def entry(library: ctypes.CDLL, name: str, addresses: int) -> Callable[..., None]:
    """A function of a loaded library whose parameters are `addresses` pointers and three longs."""
    function = library[name]
    function.argtypes = [ctypes.c_void_p] * addresses + [ctypes.c_long] * 3
    function.restype = None
    return function


def check_library(code: bytes) -> tuple[int, bytes]:
    """Checks a shared library and returns the offset of its build id and the build id.

    The build id is the hash of all other bytes, so a single flipped bit is detected.

    Raises:
        ArtifactError: The code is damaged, or made for another machine.
    """
    _check_header(code)
    at = _build_id_offset(code)
    build_id = code[at : at + _ID_BYTES]
    digest = hashlib.sha256(code[:at])
    digest.update(bytes(_ID_BYTES))
    digest.update(memoryview(code)[at + _ID_BYTES :])
    if digest.digest()[:_ID_BYTES] != build_id:
        raise ArtifactError("damaged library: its contents do not match its own hash")
    return at, build_id


def _check_header(code: bytes) -> None:
    """Raises an error unless this is an ELF library for this machine."""
    if len(code) < _HEADER_BYTES or code[:4] != b"\x7fELF":
        raise ArtifactError(f"not an ELF library ({len(code)} bytes, starts with {code[:4]!r})")
    if not hasattr(os, "uname") or os.uname().sysname in ("Darwin", "Windows"):
        raise ArtifactError("this code is an ELF library, which this operating system cannot load")
    elf_type, machine = struct.unpack_from("<HH", code, 16)
    if code[4:7] != b"\x02\x01\x01" or elf_type != _SHARED_LIBRARY:
        raise ArtifactError(f"not a 64-bit little-endian shared library (ELF type {elf_type})")
    arch = _MACHINES.get(machine, f"ELF machine {machine}")
    host = os.uname().machine
    if arch != _HOST.get(host, host):
        raise ArtifactError(f"this code is for {arch}, this machine is {host}: compile again")


def _build_id_offset(code: bytes) -> int:
    """The offset of the build id; an error if the library is truncated, or has none."""
    segments_at, sections_at = struct.unpack_from("<QQ", code, 32)
    entry, count, section_entry, section_count = struct.unpack_from("<4H", code, 54)
    ends = [segments_at + entry * count, sections_at + section_entry * section_count]
    kinds, note = set(), 0
    if entry != _SEGMENT_BYTES or ends[0] > len(code):
        raise ArtifactError(f"truncated library: {len(code)} bytes, its headers need {ends[0]}")
    for i in range(count):
        fields = struct.unpack_from("<IIQQQQQQ", code, segments_at + _SEGMENT_BYTES * i)
        segment_kind, _, offset, _, _, file_bytes, memory_bytes, _ = fields
        ends.append(offset + file_bytes)
        kinds.add(segment_kind)
        if file_bytes > memory_bytes and segment_kind == _PT_LOAD:
            raise ArtifactError("damaged library: a segment larger in the file than in memory")
        if segment_kind == _PT_NOTE and file_bytes == _NOTE_HEAD_BYTES + _ID_BYTES:
            note = offset
    if max(ends) > len(code):
        raise ArtifactError(f"truncated library: {len(code)} bytes of {max(ends)}")
    if not note or not {_PT_LOAD, _PT_DYNAMIC} <= kinds:
        raise ArtifactError("not a library made by ztorch: it carries no hash of itself")
    return note + _NOTE_HEAD_BYTES


def _load(code: bytes, label: str, key: bytes, dump_dir: str | None) -> LoadedLibrary:
    at, build_id = check_library(code)
    if dump_dir is not None:
        return _open(_dump(code, label, key, dump_dir), at, build_id)
    descriptor = _memory_file(code, label)
    if descriptor is not None:
        try:
            return _open(new_path(descriptor), at, build_id)
        except ArtifactError:
            pass  # /proc is not mounted, or the system forbids executable memory files
        finally:
            os.close(descriptor)  # the mapping remains
    return _open_temporary(code, label, at, build_id)


def new_path(descriptor: int) -> str:
    """A path of an open file that was never used before, although descriptors are reused: "/." and
    "//." in the path change nothing, and encode the bits of a counter."""
    steps = "".join("//." if bit == "1" else "/." for bit in f"{next(_numbers):b}")
    return f"/proc/self/fd{steps}/{descriptor}"


def _open(path: str, at: int, build_id: bytes) -> LoadedLibrary:
    try:
        library = LoadedLibrary(path)
    except OSError as error:
        raise ArtifactError(f"the system refuses to load compiled code: {error}") from None
    # If other code used and closed the same path before, dlopen returned that library.
    base = _load_address(library)
    if base is not None and ctypes.string_at(base + at, len(build_id)) != build_id:
        raise ArtifactError(f"the system returned another library for {path}, loaded earlier")
    return library


def _load_address(library: ctypes.CDLL) -> int | None:
    """The address at which a library is mapped; None if the C library does not report it."""
    try:
        dlinfo = ctypes.CDLL(None).dlinfo
    except AttributeError:
        return None
    link_map = ctypes.c_void_p()
    if dlinfo(ctypes.c_void_p(library._handle), _LINK_MAP, ctypes.byref(link_map)):
        return None
    return ctypes.c_size_t.from_address(link_map.value).value if link_map.value else None


def _memory_file(code: bytes, label: str) -> int | None:
    """The descriptor of a sealed memory file with these bytes; None if there are no such files."""
    if not hasattr(os, "memfd_create"):
        return None
    import fcntl  # only on Unix

    for flags in (_CLOEXEC | _ALLOW_SEALING, _CLOEXEC | _ALLOW_SEALING | _NOEXEC_SEAL):
        try:
            descriptor = os.memfd_create(f"ztorch-{label}", flags)
        except OSError:
            continue  # some kernels require _NOEXEC_SEAL, older ones do not know it
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(code)
            fcntl.fcntl(descriptor, _ADD_SEALS, _WRITE | _SHRINK | _GROW | _SEAL)
            return descriptor
        except OSError:
            os.close(descriptor)
    return None


def _open_temporary(code: bytes, label: str, at: int, build_id: bytes) -> LoadedLibrary:
    import tempfile  # slow to import and rarely needed

    try:
        descriptor, path = tempfile.mkstemp(prefix=f"ztorch-{label}-", suffix=".so")
    except OSError as error:
        raise ArtifactError(f"no folder to write compiled code to: {error}; set TMPDIR") from None
    try:
        with open(descriptor, "wb") as file:
            file.write(code)
        return _open(path, at, build_id)
    except OSError as error:  # such as a full disk
        raise ArtifactError(f"cannot write compiled code to {path}: {error.strerror or error}; set "
                            "TMPDIR to a folder with space") from None
    finally:
        os.unlink(path)  # the mapping remains


def _dump(code: bytes, label: str, key: bytes, folder: str) -> str:
    """Writes the library to `folder`, under a name with the hash of the code, and returns the path.
    A file that may be mapped is replaced, never overwritten in place."""
    import tempfile

    path = os.path.join(os.path.abspath(folder), f"{label}-{key.hex()[:16]}.so")
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(dir=folder, suffix=".so")
        with open(descriptor, "wb") as file:
            file.write(code)
        os.replace(partial, path)
    except OSError as error:
        raise ArtifactError(f"cannot write compiled code to {folder}: {error}") from None
    return path
