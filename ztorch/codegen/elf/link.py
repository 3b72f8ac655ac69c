"""The linker: links objects from LLVM into an ELF shared library without imports.

Objects without imports are the easy case: there are no symbols to find in other libraries and no
lazy binding. Several objects are merged into one first (`merge.py`). The linker places the
sections, patches addresses and writes the tables that the loader needs. The library works with
dlopen, gcc, gdb, perf and strip. Equal input gives equal bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from ztorch.codegen.elf import unwind
from ztorch.codegen.elf.contents import Blob, Contents
from ztorch.codegen.elf.layout import ADDRESS_LIMIT, Layout, OutputSection, present
from ztorch.codegen.elf.object import (
    RELA,
    SECTION,
    SHF_WRITE,
    STB_LOCAL,
    STT_FUNC,
    STT_NOTYPE,
    STT_OBJECT,
    ElfSymbol,
    Object,
    Relocation,
    read_object,
)
from ztorch.codegen.elf.reloc import MACHINES, PatchSite
from ztorch.codegen.elf.tables import BUILD_ID_BYTES, Name, Tables
from ztorch.errors import LinkError


def link(
    obj: bytes | Object,
    *,
    soname: str,
    exports: Sequence[str],
    blobs: Mapping[str, Blob] | None = None,
) -> bytes:
    """Links a relocatable object (x86-64 or aarch64) into a shared library.

    A blob that the object does not declare is left out.

    >>> library = link(obj, soname="libdigits.so", exports=["digits_predict"],
    ...                blobs={"weights": Blob(data, len(data))})     # doctest: +SKIP

    Args:
        obj: The object.
        soname: The name of the library.
        exports: The functions that other code can look up.
        blobs: The contents of symbols that the object declares as external. Default: none.

    Raises:
        LinkError: Another symbol is undefined, or the object has something unsupported.
    """
    source = obj if isinstance(obj, Object) else read_object(obj)
    return _LibraryLinker(source, soname, exports, blobs or {}).run()


class _LibraryLinker:
    """One link: `__init__` decides the contents and the layout, `run` fills the image."""

    def __init__(
        self, source: Object, soname: str, exports: Sequence[str], blobs: Mapping[str, Blob]
    ) -> None:
        if source.machine not in MACHINES:
            raise LinkError(f"no linker for ELF machine {source.machine}")
        if not soname or "\0" in soname:
            raise LinkError(f"{soname!r} cannot name a library")
        self.source, self.machine = source, MACHINES[source.machine]
        self.contents = Contents(source, blobs, self.machine.page)
        self.parts = self.contents.parts
        self.relocations: list[tuple[Relocation, bool]] = []  # with whether it uses a .got entry
        self.pointers: list[Relocation] = []  # absolute addresses, which the loader adjusts
        self.got_offsets: dict[int, int] = {}  # offset in .got of the entry of each symbol
        self.sort_relocations()
        if frame := self.unwind_entries():
            self.parts[".eh_frame_hdr"].add(b"", unwind.table_size(frame))
        relative = len(self.pointers) + len(self.got_offsets)
        self.tables = Tables(self.parts, soname, self.names(exports), relative)
        self.layout = Layout(self.parts, self.machine.page)

    def run(self) -> bytes:
        image = bytearray(self.layout.section_table + SECTION.size * (1 + len(present(self.parts))))
        for part in self.parts.values():
            part.write(image, part.offset)
        self.tables.fill(image)
        self.fill_pointers(image)
        for relocation, through_got in self.relocations:
            self.patch(image, relocation, through_got)
        self.fill_unwind_table(image)
        self.layout.write_headers(image, self.parts, self.machine.number, self.source.flags)
        # The hash of all other bytes: tools identify files by it, and our loader checks it.
        at = self.parts[".note.gnu.build-id"].offset + 16  # behind the head of the note
        image[at : at + BUILD_ID_BYTES] = hashlib.sha256(image).digest()[:BUILD_ID_BYTES]
        return bytes(image)

    def sort_relocations(self) -> None:
        """Checks each relocation, and separates absolute addresses and uses of .got entries."""
        for relocation in self.source.relocations:
            if relocation.section not in self.contents.locations:
                continue
            section = self.source.sections[relocation.section]
            width = self.machine.widths.get(relocation.kind)
            if width is None:
                raise self.error(relocation, f"this type is not supported on {self.machine.name}")
            if relocation.offset + width > len(section.data):
                raise self.error(relocation, "outside its section")
            if self.contents.location(self.source.symbols[relocation.symbol]) is None:
                raise self.error(relocation, "its symbol has no address")
            if relocation.kind != self.machine.pointer:
                through_got = self.machine.needs_got_entry(relocation, section.data)
                self.relocations.append((relocation, through_got))
                if through_got and relocation.symbol not in self.got_offsets:
                    self.got_offsets[relocation.symbol] = self.parts[".got"].add(b"", 8, align=8)
            elif section.flags & SHF_WRITE:
                self.pointers.append(relocation)
            else:
                raise self.error(relocation, "an absolute address in read-only memory")

    def names(self, exports: Sequence[str]) -> list[Name]:
        """The exported functions, and local symbols for debuggers and profilers."""
        remaining = set(exports)
        if len(remaining) != len(exports):
            twice = sorted(n for n in exports if exports.count(n) > 1)
            raise LinkError(f"exported twice: {twice}")
        names = []
        for symbol in self.source.symbols:
            location = self.contents.location(symbol)
            if symbol.name in remaining and not symbol.undefined and symbol.bind != STB_LOCAL:
                remaining.remove(symbol.name)
                self.check_export(symbol, location)
                exported = True
            else:
                hidden = not symbol.name or symbol.name.startswith(".L")
                if hidden or symbol.type not in (STT_NOTYPE, STT_OBJECT, STT_FUNC):
                    continue
                exported = False
            if location is not None:
                kind, size = symbol.type, symbol.size
                if symbol.undefined:
                    kind, size = STT_OBJECT, self.contents.blobs[symbol.name][2]
                names.append(Name(symbol.name.encode(), kind, *location, size, exported))
        if remaining:
            missing = ", ".join(map(repr, sorted(remaining)))
            raise LinkError(
                f"cannot export {missing}: the object defines no such external function (LLVM may"
                " change the calling convention of internal ones)"
            )
        return names

    def check_export(self, symbol: ElfSymbol,
                     location: tuple[OutputSection, int] | None) -> None:
        if symbol.type != STT_FUNC or location is None or location[0].name != ".text":
            raise LinkError(
                f"cannot export {symbol.name!r}: it is data, and a program that links to the"
                " library may get its own copy; export a function that returns the address"
            )

    def address(self, index: int) -> int:
        location = self.contents.location(self.source.symbols[index])
        assert location is not None  # checked in sort_relocations
        return location[0].address + location[1]

    def fill_pointers(self, image: bytearray) -> None:
        rows = []
        for relocation in self.pointers:
            part, offset = self.contents.locations[relocation.section]
            value = self.address(relocation.symbol) + relocation.addend
            if not 0 <= value < ADDRESS_LIMIT:
                raise self.error(relocation, f"points to {value:#x}, outside the library")
            rows.append((part.address + offset + relocation.offset, value))
        got = self.parts[".got"].address
        rows += [(got + offset, self.address(index)) for index, offset in self.got_offsets.items()]
        for i, (place, value) in enumerate(rows):
            at = self.parts[".rela.dyn"].offset + i * RELA.size
            RELA.pack_into(image, at, place, self.machine.relative, value)

    def patch(self, image: bytearray, relocation: Relocation, through_got: bool) -> None:
        part, offset = self.contents.locations[relocation.section]
        offset += relocation.offset
        got = self.parts[".got"].address
        site = PatchSite(
            image,
            at=part.offset + offset,
            place=part.address + offset,
            target=self.address(relocation.symbol),
            addend=relocation.addend,
            got_entry=got + self.got_offsets[relocation.symbol] if through_got else None,
        )
        try:
            self.machine.patch(relocation.kind, site)
        except ValueError as error:
            raise self.error(relocation, str(error)) from None

    def unwind_entries(self) -> bytes:
        frame = self.parts[".eh_frame"]
        image = bytearray(frame.size)
        frame.write(image, 0)
        return bytes(image)

    def fill_unwind_table(self, image: bytearray) -> None:
        table, frame = self.parts[".eh_frame_hdr"], self.parts[".eh_frame"]
        if table.size:
            patched = bytes(image[frame.offset : frame.offset + frame.size])
            rows = unwind.search_table(patched, frame.address, table.address)
            image[table.offset : table.offset + table.size] = rows

    def error(self, relocation: Relocation, reason: str) -> LinkError:
        section = self.source.sections[relocation.section].name
        symbol = self.source.symbols[relocation.symbol]
        inside = symbol.section < len(self.source.sections)
        name = symbol.name or (self.source.sections[symbol.section].name if inside else "?")
        return LinkError(
            f"relocation {relocation.kind} in {section!r} at {relocation.offset:#x}"
            f" to {name!r}: {reason}"
        )
