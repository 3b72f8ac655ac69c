"""Where our linker draws its lines: the last thing it takes and the first it refuses."""

from __future__ import annotations

import struct
from functools import cache

import pytest

from ztorch.codegen.elf import Blob, link, undefined_symbols
from ztorch.codegen.elf_layout import ADDRESS_LIMIT
from ztorch.codegen.elf_object import SHF_ALLOC, SHT_RELA, read_object
from ztorch.errors import LinkError

llvm = pytest.importorskip("llvmlite.binding")

POINTERS = """
@table = internal constant [2 x ptr] [ptr @one, ptr @two]
define internal i32 @one() { ret i32 1 }
define internal i32 @two() { ret i32 2 }
define ptr @at(i64 %i) {
  %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 %i
  %r = load ptr, ptr %p
  ret ptr %r
}
"""
RELA = struct.Struct("<QQq")


@cache
def compiled(source: str) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "x86_64-unknown-linux-gnu"
    module = llvm.parse_assembly(source)
    module.triple = triple
    machine = llvm.Target.from_triple(triple).create_target_machine(
        opt=1, reloc="pic", codemodel="small")
    return bytes(machine.emit_object(module))


def linked(obj: bytes, **more: object) -> bytes:
    return link(obj, soname="l.so", exports=["at"], **more)  # type: ignore[arg-type]


def sections(obj: bytes) -> list[tuple[int, ...]]:
    table, = struct.unpack_from("<Q", obj, 40)
    count, = struct.unpack_from("<H", obj, 60)
    return [struct.unpack_from("<IIQQQQIIQQ", obj, table + 64 * k) for k in range(count)]


def pointers(obj: bytes) -> int:
    """Where the relocations of the table of pointers begin."""
    return next(s[4] for s, read in zip(sections(obj), read_object(obj).sections, strict=True)
                if read.type == SHT_RELA and read.name.startswith(".rela.data"))


def with_pointer(offset: int = 0, addend: int = 0, add: bool = True) -> bytes:
    """The object with the first entry of its table changed: where it lies, and what is added."""
    obj = bytearray(compiled(POINTERS))
    at = pointers(obj)
    _, info, old = RELA.unpack_from(obj, at)
    RELA.pack_into(obj, at, offset, info, addend + old if add else addend)
    return bytes(obj)


def targets(library: bytes) -> list[int]:
    """The addresses in memory that the loader is told to write."""
    rela = next(s for s in sections(library) if s[1] == SHT_RELA and s[2] & SHF_ALLOC)
    return [RELA.unpack_from(library, rela[4] + k)[2] for k in range(0, rela[5], RELA.size)]


def test_a_pointer_may_be_the_last_eight_bytes_of_its_section_and_no_more() -> None:
    assert len(linked(with_pointer(offset=8))) > 0
    for beyond in (9, 15, 16, 1 << 40):
        with pytest.raises(LinkError, match=r"relocation 1 in '\.data\S*' at 0x\w+ to .*: outside its"):
            linked(with_pointer(offset=beyond))


def test_a_pointer_stays_within_the_address_space() -> None:
    first, second = targets(linked(compiled(POINTERS)))
    assert 0 < first < second
    assert targets(linked(with_pointer(addend=-first))) == [0, second]
    assert targets(linked(with_pointer(addend=ADDRESS_LIMIT - 1 - first))) == [ADDRESS_LIMIT - 1, second]
    with pytest.raises(LinkError, match="points to -0x1, outside the library"):
        linked(with_pointer(addend=-first - 1))
    with pytest.raises(LinkError, match="points to 0x800000000000, outside the library"):
        linked(with_pointer(addend=ADDRESS_LIMIT - first))


def test_one_missing_symbol_is_as_much_an_error_as_two() -> None:
    for names in (["expf"], ["expf", "logf"], ["a", "b", "c"]):
        calls = "".join(f"  %r{k} = call float @{n}(float %x)\n" for k, n in enumerate(names))
        source = "".join(f"declare float @{n}(float)\n" for n in names) + (
            f"define void @at(float %x) {{\n{calls}  ret void\n}}")
        listed = ", ".join(f"'{n}'" for n in names)
        assert undefined_symbols(compiled(source)) == names
        with pytest.raises(LinkError, match=f"would import {listed}; ztorch libraries import nothing"):
            linked(compiled(source))
        with pytest.raises(LinkError, match=f"would import '{names[-1]}';"):
            linked(compiled(source), blobs={n: Blob(b"1234", 4) for n in names[:-1]})


def test_alignments_up_to_a_page() -> None:
    source = "@w = global [4 x i8] c\"abcd\", align {}\ndefine ptr @at() {{ ret ptr @w }}"
    assert linked(compiled(source.format(4096)))
    with pytest.raises(LinkError, match="aligned to 8192, over a page"):
        linked(compiled(source.format(8192)))
    outside = "@w = external hidden global [4 x i8]\ndefine ptr @at() { ret ptr @w }"
    assert linked(compiled(outside), blobs={"w": Blob(b"abcd", 4, 4096)})
    for align in (0, 3, 8192):
        with pytest.raises(LinkError, match=f"alignment {align} is no power of 2 in a page"):
            linked(compiled(outside), blobs={"w": Blob(b"abcd", 4, align)})


def test_a_blob_lies_where_it_may_be_written_or_not() -> None:
    source = "@w = external hidden global [4 x i8]\ndefine ptr @at() { ret ptr @w }"
    names = {(True, True): ".data", (True, False): ".rodata", (False, True): ".bss", (False, False): ".bss"}
    for (stored, writable), name in names.items():
        library = linked(compiled(source), blobs={"w": Blob(b"abcd" if stored else None, 4, 64, writable)})
        parts = dict(zip(section_names(library), sections(library), strict=True))
        assert parts[name][5] == 4 and parts[name][8] == 64
        if stored:
            assert library[parts[name][4]:parts[name][4] + 4] == b"abcd"
        assert bool(parts[name][2] & 1) == (name != ".rodata")


def section_names(library: bytes) -> list[str]:
    rows = sections(library)
    strings = rows[struct.unpack_from("<H", library, 62)[0]][4]
    return [library[strings + r[0]:library.index(b"\0", strings + r[0])].decode() for r in rows]
