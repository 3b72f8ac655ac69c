"""Loading compiled code from bytes: the traps of dlopen, and damage of every kind."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import struct
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ztorch.backends import library
from ztorch.backends.library import check_library, load_library
from ztorch.codegen.elf.contents import Blob
from ztorch.codegen.elf.link import link
from ztorch.errors import ArtifactError

llvm = pytest.importorskip("llvmlite.binding")

MACHINE = platform.machine()
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or MACHINE not in ("x86_64", "aarch64"), reason="loads ELF libraries"
)


@cache
def answering(number: int, machine: str = MACHINE) -> bytes:
    """A library whose `answer()` is a number, and whose file is as large for every number."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = f"{machine}-unknown-linux-gnu"
    source = "@w = external hidden global i32\ndefine i32 @answer() { %r = load i32, ptr @w"
    module = llvm.parse_assembly(source + "  ret i32 %r }")
    module.triple = triple
    target = llvm.Target.from_triple(triple)
    obj = target.create_target_machine(reloc="pic", codemodel="small").emit_object(module)
    blobs = {"w": Blob(struct.pack("<i", number), 4)}
    return link(bytes(obj), soname="libanswer.so", exports=["answer"], blobs=blobs)


def test_the_same_name_never_means_the_same_code() -> None:
    first, second = load_library(answering(1), "model"), load_library(answering(2), "model")
    assert (first.answer(), second.answer(), first.answer()) == (1, 2, 1)
    assert first is not second


def test_the_same_code_is_loaded_once() -> None:
    again = bytes(bytearray(answering(3)))
    assert load_library(answering(3), "one") is load_library(again, "two")


def test_it_stays_mapped_until_workers_have_left_it() -> None:
    class Pool:
        ended: int | None = 7

        def runs_ended(self) -> int | None:
            return self.ended

    def mapped() -> int:
        load_library(answering(99), "another")  # which is dropped at once, and then all are looked at
        gc.collect()
        return Path("/proc/self/maps").read_text().count("inside")

    for later in (8, None):  # None: a forked child has no workers
        pool, library = Pool(), load_library(answering(98), "inside")
        library.pools.add(pool)
        del library
        gc.collect()
        assert mapped() > 0
        pool.ended = later
        assert mapped() == 0


def test_what_nothing_refers_to_is_unmapped() -> None:
    def descriptors_and_maps() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("dropped")

    before = descriptors_and_maps()
    for number in range(100, 120):
        answer = load_library(answering(number), "dropped").answer
        assert answer() == number
    del answer
    gc.collect()
    assert descriptors_and_maps() == before
    held = [load_library(answering(number), "dropped") for number in range(100, 120)]
    assert [one.answer() for one in held] == list(range(100, 120))
    assert descriptors_and_maps()[0] == before[0]


def test_threads_get_one_handle() -> None:
    actual, start = [], threading.Barrier(8)

    def load() -> None:
        start.wait()
        actual.append(load_library(answering(4), "threads"))

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(actual) == 8 and len(set(map(id, actual))) == 1


def test_the_file_in_memory_is_sealed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    kept, made = library._memory_file, []
    monkeypatch.setattr(library, "_memory_file", lambda *how: (made.append(kept(*how)), os.dup(made[-1]))[1])
    loaded = load_library(answering(5), "odd name/é")
    [descriptor] = made
    assert loaded.answer() == 5
    assert fcntl.fcntl(descriptor, 1034) & 0xF == 0xF
    with pytest.raises(PermissionError):
        os.write(descriptor, b"x")
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    assert "ztorch-odd_name__" in Path("/proc/self/maps").read_text()
    assert not os.get_inheritable(descriptor)


def test_a_path_used_before_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody loads from /proc/self/fd/N and closes N, which the next file then gets."""
    descriptor = os.memfd_create("theirs")
    os.write(descriptor, answering(6))
    theirs = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    os.close(descriptor)
    made = []

    def memory_file(code: bytes, label: str) -> int:
        made.append(os.memfd_create(label))
        os.write(made[-1], code)
        return made[-1]

    monkeypatch.setattr(library, "_memory_file", memory_file)
    ours = load_library(answering(7), "ours")
    assert made == [descriptor]  # the trap was set ...
    assert (theirs.answer(), ours.answer()) == (6, 7)  # ... and not stepped into


def test_without_files_in_memory_a_temporary_one_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*args: object) -> int:
        raise PermissionError("vm.memfd_noexec")

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert load_library(answering(8), "temporary").answer() == 8
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(ArtifactError, match="set TMPDIR"):
        load_library(answering(9), "nowhere")


def test_a_full_disk_is_named() -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))  # bytes, of files in memory, too
    try:
        with pytest.raises(ArtifactError, match=r"cannot write compiled code to .*; set TMPDIR"):
            load_library(answering(77), "answer")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_kernels_that_demand_the_noexec_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    create, asked = os.memfd_create, []

    def demanding(name: str, flags: int) -> int:
        asked.append(flags)
        if not flags & 8:
            raise PermissionError("vm.memfd_noexec=2")
        return create(name, flags)

    monkeypatch.setattr(os, "memfd_create", demanding)
    assert load_library(answering(10), "sealed").answer() == 10
    assert asked == [3, 11]


def test_a_dump_is_left_for_profilers(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    loaded = load_library(answering(11), "dumped", dump_dir=str(folder))
    (file,) = folder.iterdir()
    assert file.name.startswith("dumped-") and file.read_bytes() == answering(11)
    assert loaded._name == str(file) and loaded.answer() == 11
    file.unlink()
    assert load_library(answering(11), "dumped", dump_dir=str(folder)) is loaded
    assert file.exists()


def test_code_for_another_machine_is_named() -> None:
    other = "aarch64" if MACHINE == "x86_64" else "x86_64"
    with pytest.raises(ArtifactError, match=f"for {other}, this machine is {MACHINE}"):
        load_library(answering(1, other), "foreign")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"", "not an ELF library"),
        (b"MZ" * 100, "not an ELF library"),
        (b"\x7fELF" + bytes(200), "not a 64-bit little-endian shared library"),
    ],
)
def test_other_files_are_refused(code: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        load_library(code, "other")


def test_libraries_without_a_hash_are_refused() -> None:
    code = bytearray(answering(1))
    for i in range(code[56]):
        at = 64 + 56 * i
        if struct.unpack_from("<I", code, at)[0] == 4:
            code[at] = 0
    with pytest.raises(ArtifactError, match="no hash of itself"):
        check_library(bytes(code))


def test_every_truncation_is_refused() -> None:
    code = answering(1)
    for size in range(0, len(code), 13):
        with pytest.raises(ArtifactError):
            load_library(code[:size], "short")


def test_a_flipped_bit_of_the_code_is_refused() -> None:
    code = bytearray(answering(1))
    code[code.index(struct.pack("<i", 1), code.index(b"libanswer.so"))] ^= 2
    with pytest.raises(ArtifactError, match="do not match its own hash"):
        check_library(bytes(code))


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_every_flipped_bit_is_refused(data: st.DataObject) -> None:
    code = bytearray(answering(1))
    at = data.draw(st.integers(0, len(code) - 1))
    code[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ArtifactError):
        load_library(bytes(code), "flipped")


def test_importing_costs_nothing() -> None:
    """No compiler, no NumPy, no driver: only the libraries that Python needs for ctypes."""
    check = (
        "import sys, ztorch.errors; before = set(sys.modules); import ztorch.backends.library;"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before};"
        "assert not new & {'numpy', 'llvmlite', 'jinja2', 'fcntl'}, new"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
