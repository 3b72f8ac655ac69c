"""The cache of objects on disk: damage, folders that cannot be used, size, and other processes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases.object_files import empty_cache, files, never
from ztorch.codegen import object_cache
from ztorch.codegen.object_cache import cached
from ztorch.host.settings import using
from ztorch.sized_cache import SizedCache

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with empty_cache(tmp_path) as objects:
        yield objects


# -- wrong files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [
    lambda data: b"", lambda data: data[:31], lambda data: data[:-1], lambda data: data + b"\0",
    *(lambda data, at=at: data[:at] + bytes([data[at] ^ 1]) + data[at + 1:] for at in (0, 31, 32, -1 - 1))])
def test_a_damaged_file_is_replaced(damage: Any, folder: Path) -> None:
    cached(["a"], lambda: b"the code")
    [path] = files(folder)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    object_cache.forget()
    assert cached(["a"], lambda: b"the code") == b"the code"
    assert path.read_bytes() == whole


def test_a_file_under_anothers_name_is_refused(folder: Path) -> None:
    cached(["a"], lambda: b"of a")
    [a] = files(folder)
    cached(["b"], lambda: b"of b")
    [b] = {*files(folder)} - {a}
    shutil.copy(a, b)
    object_cache.forget()
    assert cached(["b"], lambda: b"anew") == b"anew"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes of POSIX")
def test_a_folder_that_others_may_write_is_not_trusted(folder: Path) -> None:
    cached(["a"], lambda: b"mine")
    folder.chmod(0o777)
    object_cache.forget()
    assert cached(["a"], lambda: b"new") == b"new"
    cached(["b"], lambda: b"b")
    assert len(files(folder)) == 1  # nor is anything put there
    folder.chmod(0o700)
    object_cache.forget()
    assert cached(["a"], never) == b"mine"


# -- folders that cannot be used -------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["file/x", "file", "/dev/null/x", "/proc/none/x"])
def test_a_folder_that_cannot_be_is_no_error(at: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with using(cache=str(tmp_path / at)):
        assert cached(["a"], lambda: b"code") == b"code"
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_full_or_read_only_disk_is_no_error(number: int, folder: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    cached(["kept"], lambda: b"kept")

    def refused(self: Path, data: bytes) -> int:
        with open(self, "wb") as file:
            file.write(data[:5])  # the part that was written before the disk was full
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_bytes", refused)
    monkeypatch.setattr(os, "utime", lambda path: refused(Path(path), b""))
    object_cache.forget()
    assert cached(["a"], lambda: b"code") == b"code"
    assert len(files(folder)) == 1  # no half of a file stays


# -- size, and others at work ----------------------------------------------------------------------------


def test_the_least_recently_used_is_dropped_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "MAX_FILE_BYTES", 10 * 132)
    for k in range(10):
        cached([str(k)], lambda: bytes(100))
        newest = max(files(folder), key=lambda p: p.stat().st_mtime_ns)
        os.utime(newest, ns=(k, k))
    object_cache.forget()
    cached(["0"], never)  # used again: now the newest
    for k in range(10, 15):
        cached([str(k)], lambda: bytes(100))
    object_cache.forget()
    assert sum(p.stat().st_size for p in files(folder)) <= 10 * 132
    cached(["0"], never)
    for k in range(6, 15):
        cached([str(k)], never)
    made = []
    for k in range(1, 6):
        cached([str(k)], lambda k=k: made.append(k) or bytes(100))
    assert made == [1, 2, 3, 4, 5]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "_memory", SizedCache(1000))
    for k in range(30):
        cached([str(k)], lambda: bytes(100))
    assert object_cache._memory.size == 1000


WORK = """
import sys
from ztorch.codegen import object_cache
from ztorch.host.settings import using
object_cache.MAX_FILE_BYTES = 20_000
with using(cache=sys.argv[1]):
    for turn in range(300):
        k = turn * int(sys.argv[2]) % 31
        code = object_cache.cached([str(k)], lambda: bytes([k]) * (900 + k))
        assert code == bytes([k]) * (900 + k), k
        object_cache.forget()
"""


def test_processes_share_a_folder(tmp_path: Path, folder: Path) -> None:
    """They write, read and remove the same files at once, and each gets its own code."""
    work = [subprocess.Popen([sys.executable, "-c", WORK, str(tmp_path / "cache"), str(step)], cwd=ROOT,
                             stderr=subprocess.PIPE, text=True) for step in (1, 2, 3, 5)]
    for one in work:
        _, said = one.communicate(timeout=120)
        assert one.returncode == 0, said
    assert not [p for p in files(folder) if p.suffix == ".partial"]
    assert 0 < sum(p.stat().st_size for p in files(folder)) <= 20_000 + 4 * (20_000 // 32 + 932)


# -- in place -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("variables", "want"), [
    ({"ZTORCH_CACHE": "0", "XDG_CACHE_HOME": "/x"}, None),
    ({"ZTORCH_CACHE": "/mine", "XDG_CACHE_HOME": "/x"}, "/mine"),
    ({"XDG_CACHE_HOME": "/x"}, "/x/ztorch"), ({"HOME": "/home/me"}, "/home/me/.cache/ztorch"),
    ({"XDG_CACHE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.cache/ztorch")])
def test_the_folder_of_the_cache(variables: dict[str, str], want: str | None) -> None:
    clean = {n: v for n, v in os.environ.items() if n not in ("ZTORCH_CACHE", "XDG_CACHE_HOME")}
    code = "from ztorch.host.settings import current; print(current().cache)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                            cwd=ROOT, env={**clean, **variables}).stdout
    assert output.strip() == str(want)
