"""Our linker against the processor, readelf, gcc and damaged input."""

from __future__ import annotations

import ctypes
import platform
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cases.elf_objects import (
    BLOBS,
    EXPORTS,
    HOST,
    SOURCE,
    TRIPLES,
    compiled,
    linked,
    undefined_symbols,
)
from ztorch.codegen.archive import data_object
from ztorch.codegen.elf.contents import Blob
from ztorch.codegen.elf.link import link
from ztorch.codegen.elf.object import read_object
from ztorch.errors import LinkError

native = pytest.mark.skipif(
    platform.system() != "Linux" or HOST not in TRIPLES, reason="runs the library"
)


def check_numbers(zoo: ctypes.CDLL) -> None:
    zoo.scaled.restype = zoo.momentum.restype = ctypes.c_float
    zoo.count.restype = ctypes.c_int64
    zoo.arena_address.restype = ctypes.c_void_p
    zoo.momentum.argtypes = [ctypes.c_int64, ctypes.c_float]
    long = ctypes.c_int64
    assert zoo.direct(5) == 105
    assert zoo.indirect(long(0), 6, 7) == 13
    assert zoo.indirect(long(1), 6, 7) == 42
    assert [zoo.scaled(long(i)) for i in range(4)] == [10, 40, 90, 160]
    assert zoo.sizes() == 9 + 80 + 4
    assert [zoo.count(), zoo.count()] == [6, 7]
    assert [zoo.remember(long(999), 3), zoo.remember(long(999), 4)] == [0, 3]
    assert [zoo.momentum(2, 0.5), zoo.momentum(2, 0.5)] == [3.5, 7.5]
    assert zoo.arena_address() % 64 == 0
    assert [zoo.choose(i) for i in range(7)] == [11, 22, 35, 132, 59, 330, -1]


@native
def test_the_library_runs(tmp_path: Path) -> None:
    path = tmp_path / "libzoo.so"
    path.write_bytes(linked())
    check_numbers(ctypes.CDLL(str(path)))


@pytest.mark.parametrize("machine", TRIPLES)
def test_equal_input_gives_equal_bytes(machine: str) -> None:
    assert linked(machine) == linked(machine)


@pytest.mark.parametrize("machine", TRIPLES)
@pytest.mark.skipif(not shutil.which("readelf"), reason="needs readelf")
def test_readelf_has_nothing_to_say(machine: str, tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(linked(machine))
    seen = subprocess.run(["readelf", "-aW", path], capture_output=True, text=True, check=True)
    assert seen.stderr == "" and "Warning" not in seen.stdout
    for expected in ("[libzoo.so]", "BIND_NOW", "GNU_RELRO", "GNU_EH_FRAME", "Build ID"):
        assert expected in seen.stdout, expected
    assert "NEEDED" not in seen.stdout and "RWE" not in seen.stdout
    assert "TEXTREL" not in seen.stdout


@pytest.mark.parametrize("machine", TRIPLES)
def test_segments_follow_the_loaders_rules(machine: str) -> None:
    library = linked(machine)
    page = {"x86_64": 0x1000, "aarch64": 0x10000}[machine]
    segments = [struct.unpack_from("<IIQQQQQQ", library, 64 + 56 * i) for i in range(library[56])]
    loads = [segment for segment in segments if segment[0] == 1]
    assert [rights for _, rights, *_ in loads] == [4, 5, 6, 6]
    end = 0
    for _, _, offset, address, _, filled, size, align in loads:
        assert align == page and offset % page == address % page
        assert address // page >= -(-end // page) and filled <= size
        assert offset + filled <= len(library)
        end = address + size
    (relro,) = [segment for segment in segments if segment[0] == 0x6474E552]
    assert relro[3] == loads[2][3] and (relro[3] + relro[6]) % page == 0


@native
def test_only_zeros_join_the_relro_segment(tmp_path: Path) -> None:
    source = """
    @arena = external hidden global [9000 x i32]
    define i32 @keep(i64 %i, i32 %v) {
      %p = getelementptr i32, ptr @arena, i64 %i
      %old = load i32, ptr %p
      store i32 %v, ptr %p
      ret i32 %old
    }"""
    blobs = {"arena": Blob(None, 36000, 64, True)}
    library = link(compiled(source), soname="libkeep.so", exports=["keep"], blobs=blobs)
    assert len(library) < 4096
    path = tmp_path / "libkeep.so"
    path.write_bytes(library)
    keep = ctypes.CDLL(str(path)).keep
    for i in (0, 8999):
        assert [keep(ctypes.c_int64(i), 7), keep(ctypes.c_int64(i), 8)] == [0, 7]


@native
def test_declarations_of_default_visibility_go_through_or_around_the_table(tmp_path: Path) -> None:
    """`mov` from the global offset table is rewritten; `cmp` and `add` keep their entry."""
    source = """
    @weights = external global [4 x i32]
    define i32 @at(i64 %i) {
      %p = getelementptr i32, ptr @weights, i64 %i
      %v = load i32, ptr %p
      ret i32 %v
    }
    define i1 @same(ptr %p) { %r = icmp eq ptr %p, @weights  ret i1 %r }
    define ptr @address() { ret ptr @weights }"""
    for opt in (0, 2):
        blobs = {"weights": Blob(struct.pack("<4i", 5, 6, 7, 8), 16)}
        exports = ["at", "same", "address"]
        library = link(compiled(source, HOST, opt), soname=f"l{opt}", exports=exports, blobs=blobs)
        path = tmp_path / f"lib{opt}.so"
        path.write_bytes(library)
        loaded = ctypes.CDLL(str(path))
        loaded.address.restype, loaded.same.restype = ctypes.c_void_p, ctypes.c_bool
        assert [loaded.at(ctypes.c_int64(i)) for i in range(4)] == [5, 6, 7, 8]
        assert loaded.same(ctypes.c_void_p(loaded.address()))
        assert not loaded.same(None)


@pytest.mark.parametrize("machine", TRIPLES)
def test_imports_are_compile_errors_with_their_name(machine: str) -> None:
    source = """
    declare float @expf(float)
    declare float @logf(float)
    define float @f(float %x) {
      %y = call float @expf(float %x)
      %z = call float @logf(float %y)
      ret float %z
    }"""
    obj = compiled(source, machine)
    assert undefined_symbols(obj) == ["expf", "logf"]
    with pytest.raises(LinkError, match="uses undefined symbols: 'expf', 'logf'; ztorch libraries import no"):
        link(obj, soname="libf.so", exports=["f"])


def test_only_functions_are_exported() -> None:
    source = "@w = global [4 x i32] zeroinitializer\ndefine internal void @i() { ret void }\n"
    obj = compiled(source + "@p = global ptr @i\ndefine void @f() { ret void }")
    with pytest.raises(LinkError, match="cannot export 'w': it is data"):
        link(obj, soname="l.so", exports=["f", "w"])
    with pytest.raises(LinkError, match="cannot export 'g': the object defines no such"):
        link(obj, soname="l.so", exports=["f", "g"])
    with pytest.raises(LinkError, match="cannot export 'g', 'i'"):
        link(obj, soname="l.so", exports=["i", "g"])
    with pytest.raises(LinkError, match=r"exported twice: \['f', 'f'\]"):
        link(obj, soname="l.so", exports=["f", "f"])


def test_blobs_are_checked() -> None:
    def blob(blob: Blob, name: str = "weights") -> None:
        linked(blobs=BLOBS | {name: blob})

    with pytest.raises(LinkError, match="size is 16 but there are 3 bytes"):
        blob(Blob(b"abc", 16))
    with pytest.raises(LinkError, match="alignment 48"):
        blob(Blob(None, 16, 48))
    with pytest.raises(LinkError, match="'direct': the object defines it already"):
        blob(Blob(None, 16), "direct")
    assert linked(blobs=BLOBS | {"unused": Blob(b"x" * 9999, 9999)}) == linked()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("@t = thread_local global i32 1\ndefine ptr @f() { ret ptr @t }", "'t' is a thread-local"),
        ("@c = common global i32 0\ndefine void @f() { ret void }", "'c' is .* common"),
        (
            "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]"
            " [{ i32, ptr, ptr } { i32 1, ptr @f, ptr null }]\ndefine void @f() { ret void }",
            r"(?s)'.ctors.*constructors",
        ),
        ("@a = global i32 1, align 1048576\ndefine ptr @f() { ret ptr @a }", "over a page"),
        ("@i = ifunc i32 (), ptr @f\ndefine ptr @f() { ret ptr null }", "'i' is .* indirect"),
    ],
)
def test_what_a_library_cannot_have(source: str, message: str) -> None:
    with pytest.raises(LinkError, match=message):
        link(compiled(source, "x86_64"), soname="l.so", exports=["f"])


@native
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_gcc_links_a_program_to_it(tmp_path: Path) -> None:
    (tmp_path / "libzoo.so").write_bytes(linked())
    (tmp_path / "main.c").write_text(
        "int direct(int); float scaled(long); long count(void);\n"
        "int main(void) { return !(direct(1) == 101 && scaled(3) == 160.0f && count() == 6); }\n"
    )
    for extra in ([], ["-no-pie"], ["-Wl,-z,defs,-z,now"]):
        command = ["gcc", "-Wall", "-Werror", *extra, "main.c", "-o", "main", "-L.", "-lzoo"]
        subprocess.run([*command, "-Wl,-rpath,$ORIGIN"], cwd=tmp_path, check=True)
        assert subprocess.run([tmp_path / "main"]).returncode == 0
    subprocess.run(["strip", "libzoo.so"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"]).returncode == 0


@native
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_the_systems_linker_gives_the_same_numbers(tmp_path: Path) -> None:
    objects = {"zoo": compiled(SOURCE)}
    for name, blob in BLOBS.items():
        data = bytes(blob.size if blob.data is None else blob.data)
        objects[name] = data_object(name, data, HOST, blob.writable)
    for name, obj in objects.items():
        (tmp_path / f"{name}.o").write_bytes(obj)
    command = ["gcc", "-shared", "-nostdlib", "-o", "libzoo.so", *(f"{n}.o" for n in objects)]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    check_numbers(ctypes.CDLL(str(tmp_path / "libzoo.so")))


@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="needs qemu-aarch64")
@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-gcc"), reason="needs a cross gcc")
def test_aarch64_runs_in_an_emulator(tmp_path: Path) -> None:
    (tmp_path / "libzoo.so").write_bytes(linked("aarch64"))
    (tmp_path / "main.c").write_text(
        "int direct(int), sizes(void), choose(int), indirect(long, int, int); float scaled(long);\n"
        "int main(void) { return !(direct(1) == 101 && sizes() == 93 && choose(3) == 132 &&\n"
        "    scaled(3) == 160.0f && indirect(1, 6, 7) == 42); }\n"
    )
    command = ["aarch64-linux-gnu-gcc", "main.c", "-o", "main", "-L.", "-lzoo", "-Wl,-rpath,."]
    subprocess.run(command, cwd=tmp_path, check=True)
    run = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "./main"]
    assert subprocess.run(run, cwd=tmp_path).returncode == 0


@pytest.mark.skipif(not shutil.which("gdb"), reason="needs gdb")
@native
def test_debuggers_show_kernels_by_name() -> None:
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(linked())
        file.flush()
        command = ["gdb", "-batch", "-nx", "-ex", "info symbol times", file.name]
        seen = subprocess.run(command, capture_output=True, text=True)
    assert "times in section .text" in seen.stdout


@pytest.mark.parametrize("machine", TRIPLES)
def test_every_truncation_is_detected(machine: str) -> None:
    obj = compiled(SOURCE, machine)
    for size in range(0, len(obj), 7):
        with pytest.raises(LinkError):
            link(obj[:size], soname="l.so", exports=EXPORTS, blobs=BLOBS)


@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_objects_end_in_a_link_error_or_a_library(data: st.DataObject) -> None:
    """Never another exception; the output of a damaged object is not loaded here."""
    obj = bytearray(compiled(SOURCE, data.draw(st.sampled_from(sorted(TRIPLES)))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(obj) - 1))
        obj[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        library = link(bytes(obj), soname="l.so", exports=EXPORTS, blobs=BLOBS)
    except LinkError:
        return
    assert library[:4] == b"\x7fELF"


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_noise_is_no_object(noise: bytes) -> None:
    for start in (b"", b"\x7fELF\x02\x01\x01", b"\x7fELF\x01\x01\x01"):
        with pytest.raises(LinkError):
            read_object(start + noise)
