"""Static libraries, against binutils, gcc and a reader of our own."""

from __future__ import annotations

import mmap
import os
import platform
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path

import pytest

from ztorch.codegen.archive import data_object, static_library
from ztorch.errors import LinkError

llvm = pytest.importorskip("llvmlite.binding")

SOURCE = """
@weights = external hidden global [4 x float]
define internal float @twice(float %x) noinline { %r = fadd float %x, %x  ret float %r }
define float @scaled(i64 %i) {
  %p = getelementptr [4 x float], ptr @weights, i64 0, i64 %i
  %v = load float, ptr %p
  %r = call float @twice(float %v)
  ret float %r
}"""
LONG = "a_rather_long_name_of_an_object.o"


@cache
def compiled(triple: str, source: str = SOURCE) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(source)
    module.triple = triple
    target = llvm.Target.from_triple(triple)
    return bytes(target.create_target_machine(reloc="pic", codemodel="small").emit_object(module))


def zoo(machine: str = "x86_64", writable: bool = False) -> dict[str, bytes]:
    weights = struct.pack("<4f", 1, 2, 3, 4)
    return {
        "scaled.o": compiled(f"{machine}-unknown-linux-gnu"),
        LONG: data_object("weights", weights, machine, writable),
    }


def index_of(library: bytes) -> dict[str, bytes]:
    """Symbol -> the header of its member, read as the format is documented."""
    size = int(library[8 + 48 : 8 + 58])
    body = library[68 : 68 + size]
    (count,) = struct.unpack_from(">I", body)
    offsets = struct.unpack_from(f">{count}I", body, 4)
    names = body[4 + 4 * count :].split(b"\0")[:count]
    headers = [library[offset : offset + 60] for offset in offsets]
    return dict(zip([name.decode() for name in names], headers, strict=True))


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_index_leads_to_the_members(machine: str) -> None:
    library = static_library(zoo(machine))
    assert library == static_library(zoo(machine)) and library.startswith(b"!<arch>\n/ ")
    index = index_of(library)
    assert set(index) == {"scaled", "weights"}
    assert index["scaled"].startswith(b"scaled.o/ ") and index["weights"].startswith(b"/0 ")
    assert all(header.endswith(b"`\n") for header in index.values())


def test_objects_of_other_kinds_are_refused() -> None:
    """Of 32 bits, and of the other order of bytes."""
    obj = bytearray(data_object("weights", b"abcd", "x86_64", False))
    for at, value in ((4, 1), (5, 2)):
        other = obj[:]
        other[at] = value
        with pytest.raises(LinkError, match="not a 64-bit little-endian ELF object"):
            static_library({"weights.o": bytes(other)})
    assert set(index_of(static_library({"weights.o": bytes(obj)}))) == {"weights"}


def test_short_names_are_stored_in_the_header() -> None:
    obj = data_object("weights", b"abcd", "x86_64", False)
    for size, long in ((15, False), (16, True)):
        name = "n" * size
        library = static_library({name: obj})
        header = index_of(library)["weights"]
        assert header.startswith(b"/0 " if long else f"{name}/".encode())
        assert (b"//" in library) == long


def test_each_long_name_is_in_a_table() -> None:
    names = [f"{LONG}.{k}" for k in range(3)]
    library = static_library({n: data_object(f"weights{k}", b"abc", "x86_64", False) for k, n in enumerate(names)})
    table = library.index(b"//") + 60
    for k, header in enumerate(index_of(library).values()):
        start = table + int(header[1:16])
        assert library[start:library.index(b"/", start)].decode() == names[k]


def test_a_library_is_smaller_than_its_index_can_address(tmp_path: Path) -> None:
    """The member is a file with a hole, which nothing reads."""
    path = tmp_path / "weights.o"
    path.write_bytes(data_object("weights", b"abcd", "x86_64", False))
    os.truncate(path, 1 << 32)
    with path.open("rb") as file, pytest.raises(LinkError, match=r"of \d+ bytes exceeds the 4 GiB"):
        static_library({"weights.o": mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)})  # type: ignore[dict-item]


@pytest.mark.skipif(not shutil.which("nm") or not shutil.which("ar"), reason="needs binutils")
def test_binutils_agree(tmp_path: Path) -> None:
    (tmp_path / "libzoo.a").write_bytes(static_library(zoo()))

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout

    assert run("ar", "t", "libzoo.a").split() == ["scaled.o", LONG]
    index = run("nm", "-s", "libzoo.a").partition("\n\n")[0]
    assert "scaled in scaled.o" in index and f"weights in {LONG}" in index
    run("ar", "x", "libzoo.a")
    assert (tmp_path / LONG).read_bytes() == zoo()[LONG]
    seen = run("readelf", "-aW", LONG)
    assert "HIDDEN" in seen and "Warning" not in seen
    run("ranlib", "libzoo.a")


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="runs x86-64 code")
@pytest.mark.parametrize("writable", [False, True])
def test_gcc_links_a_program_with_it(writable: bool, tmp_path: Path) -> None:
    (tmp_path / "libzoo.a").write_bytes(static_library(zoo("x86_64", writable)))
    (tmp_path / "main.c").write_text(
        "float scaled(long); int main(void) { return !(scaled(3) == 8.0f); }\n"
    )
    for extra in ([], ["-static"], ["-no-pie"]):
        command = ["gcc", *extra, "main.c", "libzoo.a", "-o", "main"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        assert subprocess.run([tmp_path / "main"]).returncode == 0


def test_what_cannot_be_packed() -> None:
    obj = zoo()["scaled.o"]
    with pytest.raises(LinkError, match=r"both 'a\.o' and 'b\.o' define 'scaled'"):
        static_library({"a.o": obj, "b.o": obj})
    with pytest.raises(LinkError, match="cannot name a member"):
        static_library({"a/b.o": obj})
    with pytest.raises(LinkError, match="not an ELF object"):
        static_library({"a.o": b"int main"})
    with pytest.raises(LinkError, match="no data objects for the machine 'vax'"):
        data_object("w", b"", "vax", False)
    with pytest.raises(LinkError, match="cannot name a symbol"):
        data_object("", b"", "x86_64", False)
    assert index_of(static_library({})) == {}
