"""Where our linker draws its lines: the last thing it takes and the first it refuses."""

from __future__ import annotations

import struct
from functools import cache

import pytest

from tests.cases.elf_objects import undefined_symbols
from ztorch.codegen.cpuid import EBX, ECX, CpuidQuery, cpuid_queries
from ztorch.codegen.elf.contents import Blob
from ztorch.codegen.elf.layout import ADDRESS_LIMIT
from ztorch.codegen.elf.link import link
from ztorch.codegen.elf.object import SHF_ALLOC, SHT_RELA, Relocation, read_object
from ztorch.codegen.elf.reloc import AARCH64, X86_64
from ztorch.codegen.elf.unwind import entries
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


def sections(obj: bytes | bytearray) -> list[tuple[int, ...]]:
    table, = struct.unpack_from("<Q", obj, 40)
    count, = struct.unpack_from("<H", obj, 60)
    return [struct.unpack_from("<IIQQQQIIQQ", obj, table + 64 * k) for k in range(count)]


def pointers(obj: bytes | bytearray) -> int:
    """Where the relocations of the table of pointers begin."""
    return next(s[4] for s, read in zip(sections(obj), read_object(bytes(obj)).sections, strict=True)
                if read.type == SHT_RELA and read.name.startswith(".rela.data"))


def with_pointer(offset: int = 0, addend: int = 0, add: bool = True) -> bytes:
    """The object with the first entry of its table changed: its offset and its addend."""
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
        with pytest.raises(LinkError, match=f"uses undefined symbols: {listed}; ztorch libraries import nothing"):
            linked(compiled(source))
        with pytest.raises(LinkError, match=f"uses undefined symbols: '{names[-1]}';"):
            linked(compiled(source), blobs={n: Blob(b"1234", 4) for n in names[:-1]})


def test_alignments_up_to_a_page() -> None:
    source = "@w = global [4 x i8] c\"abcd\", align {}\ndefine ptr @at() {{ ret ptr @w }}"
    assert linked(compiled(source.format(4096)))
    with pytest.raises(LinkError, match="aligned to 8192, over a page"):
        linked(compiled(source.format(8192)))
    outside = "@w = external hidden global [4 x i8]\ndefine ptr @at() { ret ptr @w }"
    assert linked(compiled(outside), blobs={"w": Blob(b"abcd", 4, 4096)})
    for align in (0, 3, 8192):
        with pytest.raises(LinkError, match=f"alignment {align} is not a power of 2 up to"):
            linked(compiled(outside), blobs={"w": Blob(b"abcd", 4, align)})


def test_a_blob_is_in_writable_or_constant_memory() -> None:
    source = "@w = external hidden global [4 x i8]\ndefine ptr @at() { ret ptr @w }"
    names = {(True, True): ".data", (True, False): ".rodata", (False, True): ".bss", (False, False): ".bss"}
    for (stored, writable), name in names.items():
        library = linked(compiled(source), blobs={"w": Blob(b"abcd" if stored else None, 4, 64, writable)})
        parts = dict(zip(section_names(library), sections(library), strict=True))
        assert parts[name][5] == 4 and parts[name][8] == 64
        if stored:
            assert library[parts[name][4]:parts[name][4] + 4] == b"abcd"
        assert bool(parts[name][2] & 1) == (name != ".rodata")
        strings = parts[".strtab"][4]
        symbols = [struct.unpack_from("<IBBHQQ", library, parts[".symtab"][4] + at)
                   for at in range(0, parts[".symtab"][5], 24)]
        (symbol,) = [s for s in symbols if library[strings + s[0]:].startswith(b"w\0")]
        assert (symbol[1] & 15, symbol[4], symbol[5]) == (1, parts[name][3], 4)  # an object, there, so long


def section_names(library: bytes) -> list[str]:
    rows = sections(library)
    strings = rows[struct.unpack_from("<H", library, 62)[0]][4]
    return [library[strings + r[0]:library.index(b"\0", strings + r[0])].decode() for r in rows]


# -- tables for loaders and debuggers --------------------------------------------------------------


UNWOUND = "".join(f"define i32 @f{k}(i32 %a) uwtable {{ %r = add i32 %a, {k}  ret i32 %r }}\n" for k in range(5))


def test_unwind_entries_end_with_a_mark_and_are_sorted_in_their_table() -> None:
    """Entries of an object come in the order of its functions, so their order is changed here."""
    obj = bytearray(compiled(UNWOUND))
    at = next(s[4] for s, read in zip(sections(obj), read_object(bytes(obj)).sections, strict=True)
              if read.type == SHT_RELA and read.name == ".rela.eh_frame")
    first, last = RELA.unpack_from(obj, at), RELA.unpack_from(obj, at + 4 * RELA.size)
    RELA.pack_into(obj, at, first[0], last[1], last[2])
    RELA.pack_into(obj, at + 4 * RELA.size, last[0], first[1], first[2])
    library = link(bytes(obj), soname="l.so", exports=["f0"])
    parts = dict(zip(section_names(library), sections(library), strict=True))
    frame, table = parts[".eh_frame"], parts[".eh_frame_hdr"]
    whole = next(s.size for s in read_object(bytes(obj)).sections if s.name == ".eh_frame")
    assert frame[5] == whole + 4 and library[frame[4] + whole:frame[4] + frame[5]] == bytes(4)
    count, = struct.unpack_from("<I", library, table[4] + 8)
    rows = [struct.unpack_from("<ii", library, table[4] + 12 + 8 * k) for k in range(count)]
    assert count == 5 and rows == sorted(rows)
    assert [table[3] + r[0] for r in rows] == sorted(table[3] + r[0] for r in rows)
    entries = [e for _, e in rows]
    assert entries != sorted(entries), "the entries were to be out of order"


def test_unwind_entries_are_inside_their_section_and_hold_an_address() -> None:
    head = b"\0\0\0\0" + b"\x01zR\0\x01\x78\x10\x01\x1b\0\0\0"  # addresses are distances of 32 bits
    group = struct.pack("<I", len(head)) + head

    def function(size: int, address: bytes = bytes(4)) -> bytes:
        return struct.pack("<II", size, len(group) + 4) + address

    assert list(entries(group + function(8))) == [(len(group), "<i")]
    assert list(entries(group + bytes(4) + function(8))) == []  # zero marks the end
    with pytest.raises(LinkError, match=f"entry at {len(group)} has 9 bytes"):
        list(entries(group + function(9)))
    with pytest.raises(LinkError, match=f"entry at {len(group)} has no CIE"):
        list(entries(group + function(7)))


def test_the_hash_table_of_exports_ends_with_an_odd_hash() -> None:
    """As the loader's chain does; the last bit of all others is clear."""
    exports = [f"f{k}" for k in range(5)]
    library = link(compiled(UNWOUND), soname="l.so", exports=exports)
    parts = dict(zip(section_names(library), sections(library), strict=True))
    at, size = parts[".gnu.hash"][4], parts[".gnu.hash"][5]
    hashes = struct.unpack_from("<5I", library, at + size - 20)
    assert [h & 1 for h in hashes] == [0, 0, 0, 0, 1]


def test_a_section_has_the_largest_alignment_of_its_parts() -> None:
    source = ("@a = global [4 x i8] c\"abcd\", align 256\n@b = global i8 1, align 1\n"
              "define ptr @at() { ret ptr @a }\ndefine ptr @by() { ret ptr @b }")
    outside = "@w = external hidden global [4 x i8]\n@v = external hidden global i8\n" + (
        "define ptr @at() { ret ptr @w }\ndefine ptr @by() { ret ptr @v }")
    for obj, blobs in ((compiled(source), {}), (compiled(outside), {
            "w": Blob(b"abcd", 4, 256, True), "v": Blob(b"x", 1, 1, True)})):
        library = link(obj, soname="l.so", exports=["at"], blobs=blobs)
        parts = dict(zip(section_names(library), sections(library), strict=True))
        assert parts[".data"][8] == 256 and parts[".data"][3] % 256 == 0


def test_a_library_of_more_than_the_address_space_is_refused() -> None:
    outside = "@w = external hidden global [4 x i8]\ndefine ptr @at() { ret ptr @w }"
    with pytest.raises(LinkError, match=r"needs \d+ bytes of address space"):
        linked(compiled(outside), blobs={"w": Blob(None, ADDRESS_LIMIT, 64, True)})


def test_a_load_of_an_address_is_rewritten_only_where_it_is_a_plain_one() -> None:
    """`mov symbol@GOT, reg` becomes `lea`; another instruction or addend keeps its table entry."""
    code = memoryview(bytes.fromhex("488b0500000000"))
    other = memoryview(bytes.fromhex("48030500000000"))  # add, not mov

    def wants(kind: int, addend: int = -4, at: int = 3, text: memoryview = code) -> bool:
        return X86_64.needs_got_entry(Relocation(1, at, kind, 1, addend), text)

    rewritable = (41, 42)  # R_X86_64_GOTPCRELX, R_X86_64_REX_GOTPCRELX
    for kind in rewritable:
        assert not wants(kind)
        assert wants(kind, addend=-8) and wants(kind, text=other)
        assert wants(kind, at=1, text=memoryview(b"\0\0\x8b"))  # nothing of it stands before
    assert wants(9)  # R_X86_64_GOTPCREL promises nothing about its instruction
    assert not wants(2) and not wants(4)
    assert all(AARCH64.needs_got_entry(Relocation(1, 0, k, 1, 0), code) for k in (311, 312))


# -- objects ---------------------------------------------------------------------------------------


def test_a_symbol_may_be_at_the_end_of_its_section_and_not_beyond() -> None:
    obj = bytearray(compiled(POINTERS))
    read = read_object(bytes(obj))
    table = next(s for s in sections(obj) if s[1] == 2)
    number = next(k for k, s in enumerate(read.symbols) if s.name == "at")
    size = read.sections[read.symbols[number].section].size
    for value, fits in ((size, True), (size + 1, False)):
        struct.pack_into("<Q", obj, table[4] + 24 * number + 8, value)
        if fits:
            assert read_object(bytes(obj)).symbols[number].value == size
        else:
            with pytest.raises(LinkError, match="symbol 'at' is outside its section"):
                read_object(bytes(obj))


def test_a_relocation_names_a_symbol_that_exists() -> None:
    obj = bytearray(compiled(POINTERS))
    count = len(read_object(bytes(obj)).symbols)
    for symbol, exists in ((count - 1, True), (count, False)):
        struct.pack_into("<I", obj, pointers(obj) + 12, symbol)
        if exists:
            assert symbol in {r.symbol for r in read_object(bytes(obj)).relocations}
        else:
            with pytest.raises(LinkError, match=f"names symbol {count}"):
                read_object(bytes(obj))


def test_section_names_are_in_an_existing_section() -> None:
    obj = bytearray(compiled(POINTERS))
    count, names = struct.unpack_from("<2H", obj, 60)
    assert names < count
    for number in (count, count + 1):
        struct.pack_into("<H", obj, 62, number)
        with pytest.raises(LinkError, match=f"section names in section {number} of {count}"):
            read_object(bytes(obj))


def test_instructions_that_need_permission_request_it() -> None:
    """A processor may have AVX while the system does not save its registers."""
    osxsave, avx, fma = 1 << 27, 1 << 28, 1 << 12  # bits of ecx of leaf 1, in the makers' manuals
    assert cpuid_queries(["avx", "fma"]) == ((CpuidQuery(1, ECX, osxsave | avx | fma),), 0b110)
    assert cpuid_queries(["ssse3"]) == ((CpuidQuery(1, ECX, 1 << 9),), 0)
    asked, saved = cpuid_queries(["avx512f"])
    assert saved == 0b11100110 and asked == (CpuidQuery(1, ECX, osxsave), CpuidQuery(7, EBX, 1 << 16))
