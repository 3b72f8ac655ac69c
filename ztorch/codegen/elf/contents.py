"""The contents of a library: which section each input section and each blob goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.abi import BUFFER_ALIGN
from ztorch.codegen.elf.layout import Bytes, OutputSection, new_parts
from ztorch.codegen.elf.object import (
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_TLS,
    SHF_WRITE,
    SHN_COMMON,
    SHT_NOBITS,
    SHT_NOTE,
    SHT_PROGBITS,
    STB_LOCAL,
    ElfSymbol,
    Object,
    Section,
)
from ztorch.errors import LinkError

_LARGE_MODEL = 0x10000000  # SHF_X86_64_LARGE
_UNWIND_DATA = 0x70000001  # SHT_X86_64_UNWIND
_STT_TLS, _STT_IFUNC = 6, 10
_CONSTRUCTORS = (".ctors", ".dtors")  # prefixes of sections with constructors in LLVM's old style


@dataclass(frozen=True)
class Blob:
    """The contents of a symbol that an object only declares, such as weights.

    Without data, the symbol refers to `size` zero bytes, which take no space in the file.

    >>> Blob(None, 4096, writable=True).align
    64
    """

    data: Bytes | None  # the contents; None for zeros
    size: int  # bytes
    align: int = BUFFER_ALIGN  # bytes, a power of 2
    writable: bool = False  # whether code may change it


class Contents:
    """The contents of each section of the library, and their offsets."""

    def __init__(self, source: Object, blobs: Mapping[str, Blob], page: int):
        self.source, self.page = source, page
        self.parts = new_parts()
        # Output section and offset of each input section, and of each blob, with its size.
        self.locations: dict[int, tuple[OutputSection, int]] = {}
        self.blobs: dict[str, tuple[OutputSection, int, int]] = {}
        self.place_sections()
        self.place_blobs(blobs)

    def place_sections(self) -> None:
        for symbol in self.source.symbols:
            if symbol.section == SHN_COMMON or symbol.type in (_STT_TLS, _STT_IFUNC):
                raise LinkError(f"{symbol.name!r} is a thread-local, indirect or common symbol, "
                                "which is not supported")
        for index, section in enumerate(self.source.sections):
            if section.flags & SHF_ALLOC and section.size and section.type != SHT_NOTE:
                part = self.parts[self.part_for(section)]
                self.locations[index] = part, part.add(section.data, section.size, section.align)
        if self.parts[".eh_frame"].size:
            self.parts[".eh_frame"].add(b"\0\0\0\0")  # the end marker

    def part_for(self, section: Section) -> str:
        has_bytes = section.type in (SHT_PROGBITS, SHT_NOBITS, _UNWIND_DATA)
        if not has_bytes or section.flags & SHF_TLS or section.name.startswith(_CONSTRUCTORS):
            raise LinkError(
                f"section {section.name!r} (type {section.type:#x}, flags {section.flags:#x}):"
                " a ztorch library has no constructors and no thread-local data"
            )
        if section.flags & _LARGE_MODEL:
            raise LinkError(f"section {section.name!r}: compile with the small code model")
        if section.align > self.page:
            raise LinkError(f"section {section.name!r} is aligned to {section.align}, over a page")
        if section.flags & SHF_EXECINSTR:
            if section.flags & SHF_WRITE or section.type == SHT_NOBITS:
                raise LinkError(f"section {section.name!r}: code cannot be writable or empty")
            return ".text"
        if section.name == ".eh_frame":
            return ".eh_frame"
        if not section.flags & SHF_WRITE:
            return ".rodata"
        if section.type == SHT_NOBITS:
            return ".bss"
        return ".data.rel.ro" if section.name.startswith(".data.rel.ro") else ".data"

    def place_blobs(self, blobs: Mapping[str, Blob]) -> None:
        missing = []
        for symbol in self.source.symbols:
            if not symbol.undefined:
                if symbol.name in blobs and symbol.bind != STB_LOCAL:
                    raise LinkError(f"blob {symbol.name!r}: the object defines it already")
            elif symbol.name not in blobs:
                missing.append(symbol.name)
            else:
                self.place_blob(symbol.name, blobs[symbol.name])
        if missing:
            names = ", ".join(f"'{name}'" for name in missing)
            raise LinkError(
                f"the compiled code uses undefined symbols: {names}; ztorch libraries import "
                "nothing"
            )

    def place_blob(self, name: str, blob: Blob) -> None:
        if blob.align < 1 or blob.align & (blob.align - 1) or blob.align > self.page:
            raise LinkError(f"blob {name!r}: alignment {blob.align} is not a power of 2 up to "
                            f"{self.page}")
        data = b"" if blob.data is None else memoryview(blob.data).cast("B")
        if blob.size < 0 or (blob.data is not None and len(data) != blob.size):
            raise LinkError(f"blob {name!r}: size is {blob.size} but there are {len(data)} bytes")
        stored = ".data" if blob.writable else ".rodata"
        part = self.parts[stored if blob.data is not None else ".bss"]
        self.blobs[name] = part, part.add(data, max(blob.size, 1), blob.align), blob.size

    def location(self, symbol: ElfSymbol) -> tuple[OutputSection, int] | None:
        """The output section of a symbol and its offset there; None if it has no address."""
        if symbol.undefined:
            blob = self.blobs.get(symbol.name)
            return blob and blob[:2]
        if symbol.section not in self.locations:
            return None
        part, offset = self.locations[symbol.section]
        return part, offset + symbol.value
