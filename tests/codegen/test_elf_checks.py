"""Our linker's checks of relocations and symbols, each at the last value that is right."""

from __future__ import annotations

import struct

import pytest

from tests.cases.elf_objects import compiled
from ztorch.codegen.elf.contents import Blob
from ztorch.codegen.elf.layout import ADDRESS_LIMIT
from ztorch.codegen.elf.link import link
from ztorch.codegen.elf.object import SHT_RELA, read_object
from ztorch.errors import LinkError

ADDRESS_KIND = 1  # R_X86_64_64: a plain address, which the loader relocates
RELATIVE = 8  # R_X86_64_RELATIVE: how the library asks for it
ENTRY = struct.Struct("<QQq")  # offset, symbol and kind, addend
TABLE = """
@table = internal constant [2 x ptr] [ptr @first, ptr @second]
define internal i32 @first(i32 %a) noinline { ret i32 %a }
define internal i32 @second(i32 %a) noinline { %r = add i32 %a, 1  ret i32 %r }
define i32 @choose(i64 %which, i32 %a) {
  %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 %which
  %f = load ptr, ptr %p
  %r = call i32 %f(i32 %a)
  ret i32 %r
}
"""
READS_WEIGHTS = """
@weights = external hidden global [4 x i32]
define ptr @f() { ret ptr @weights }
"""


def pointers(obj: bytes) -> list[int]:
    """Where the entries of plain addresses are in the file."""
    places = []
    for section in read_object(obj).sections:
        if section.type == SHT_RELA:
            start = obj.index(bytes(section.data))
            places += [at for at in range(start, start + len(section.data), ENTRY.size)
                       if ENTRY.unpack_from(obj, at)[1] & 0xFFFFFFFF == ADDRESS_KIND]
    return places


def changed(obj: bytes, at: int, offset: int = 0, addend: int = 0) -> bytes:
    """The object with one relocation moved, or pointing elsewhere."""
    old = ENTRY.unpack_from(obj, at)
    data = bytearray(obj)
    ENTRY.pack_into(data, at, old[0] + offset, old[1], old[2] + addend)
    return bytes(data)


def linked(obj: bytes) -> bytes:
    return link(obj, soname="l.so", exports=["choose"])


def addresses(library: bytes) -> list[int]:
    """The loader's work, by the library's own list."""
    headers = [struct.unpack_from("<IIQQQQIIQQ", library, at) for at in range(
        struct.unpack_from("<Q", library, 40)[0], len(library), 64)]
    _, _, _, _, offset, size, *_ = next(h for h in headers if h[1] == SHT_RELA)
    rows = list(ENTRY.iter_unpack(library[offset:offset + size]))
    assert {info for _, info, _ in rows} == {RELATIVE}
    return [value for _, _, value in rows]


def test_an_address_is_relocated_to_the_ends_of_the_library_and_no_further() -> None:
    obj = compiled(TABLE, "x86_64")
    at = pointers(obj)[0]
    value = addresses(linked(obj))[0]
    for there in (0, ADDRESS_LIMIT - 1):
        assert addresses(linked(changed(obj, at, addend=there - value)))[0] == there
    for outside in (-1, ADDRESS_LIMIT):
        with pytest.raises(LinkError, match=rf"points to {outside:#x}, outside the library"):
            linked(changed(obj, at, addend=outside - value))


def test_a_relocation_ends_with_its_section_and_not_later() -> None:
    obj = compiled(TABLE, "x86_64")
    last = pointers(obj)[-1]
    assert ENTRY.unpack_from(obj, last)[0] == 8  # of 16 bytes, so that it ends where they do
    assert len(addresses(linked(obj))) == 2
    for further in (1, 8, 1 << 40):
        with pytest.raises(LinkError, match="outside its section"):
            linked(changed(obj, last, offset=further))


def test_each_import_is_a_separate_error() -> None:
    """One that is missing among others that are there."""
    obj = compiled(READS_WEIGHTS, "x86_64")
    blob = Blob(bytes(16), 16)
    assert link(obj, soname="l.so", exports=["f"], blobs={"weights": blob})
    with pytest.raises(LinkError, match=r"^the compiled code uses undefined symbols: 'weights'; ztorch lib"):
        link(obj, soname="l.so", exports=["f"])
    both = compiled("declare i32 @abs(i32)\n" + READS_WEIGHTS
                    + "define i32 @g(i32 %x) { %r = call i32 @abs(i32 %x)  ret i32 %r }", "x86_64")
    with pytest.raises(LinkError, match=r"^the compiled code uses undefined symbols: 'abs'; ztorch libraries"):
        link(both, soname="l.so", exports=["f"], blobs={"weights": blob})


def test_a_blob_is_as_long_as_its_bytes() -> None:
    obj = compiled(READS_WEIGHTS, "x86_64")
    for size in (15, 17, -1):
        with pytest.raises(LinkError, match=f"blob 'weights': size is {size} but there are 16"):
            link(obj, soname="l.so", exports=["f"], blobs={"weights": Blob(bytes(16), size)})
    for align in (0, 3, 8192):
        with pytest.raises(LinkError, match=f"blob 'weights': alignment {align} is not a power of 2"):
            link(obj, soname="l.so", exports=["f"], blobs={"weights": Blob(bytes(16), 16, align)})
    for align in (1, 4096):
        link(obj, soname="l.so", exports=["f"], blobs={"weights": Blob(bytes(16), 16, align)})
