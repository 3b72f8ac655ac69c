"""Writes static libraries (`ar` archives with a symbol index) and objects that only hold data."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from ztorch.abi import BUFFER_ALIGN
from ztorch.codegen.elf.object import (
    MACHINE_NUMBERS,
    SHF_ALLOC,
    SHF_WRITE,
    SHT_PROGBITS,
    STB_GLOBAL,
    STB_LOCAL,
    STT_OBJECT,
    STV_HIDDEN,
    ElfSymbol,
    Object,
    Section,
    read_object,
)
from ztorch.codegen.elf.write import NO_SECTION, NO_SYMBOL, object_bytes
from ztorch.errors import LinkError

_STB_WEAK = 2  # a definition that another one may replace
_MAGIC = b"!<arch>\n"
_HEADER_BYTES = 60  # size of a member's header
_SHORT_NAME_BYTES = 15  # longer names are in a member of their own
_MAX_BYTES = 1 << 32  # offsets of the index have 32 bits


def static_library(members: Mapping[str, bytes]) -> bytes:
    """Packs ELF objects (by file name) into a GNU archive, for linkers, `nm` and `ranlib`.

    >>> library = static_library({"digits.o": code, "weights.o": weights})     # doctest: +SKIP

    Two objects that define the same symbol are an error: a linker would silently choose one.
    """
    index = _index(members)
    names = "".join(f"{name}/\n" for name in members if _is_long(name)).encode()
    symbols = b"".join(symbol + b"\0" for symbol, _ in index)
    # The members follow the index, which holds their offsets: so compute its size first.
    at = len(_MAGIC) + _HEADER_BYTES + _padded(4 + 4 * len(index) + len(symbols))
    at += _HEADER_BYTES + _padded(len(names)) if names else 0
    labels, offsets, long_at = [], [], 0
    for name, data in members.items():
        labels.append(f"/{long_at}" if _is_long(name) else f"{name}/")
        long_at += len(name.encode()) + 2 if _is_long(name) else 0
        offsets.append(at)
        at += _HEADER_BYTES + _padded(len(data))
    if at >= _MAX_BYTES:  # before anything is copied
        raise LinkError(f"a static library of {at} bytes exceeds the 4 GiB of its index")
    table = struct.pack(f">{1 + len(index)}I", len(index), *(offsets[n] for _, n in index))
    head = [_MAGIC, _member("/", table + symbols), *([_member("//", names)] if names else [])]
    return b"".join([*head, *map(_member, labels, members.values())])


def _index(members: Mapping[str, bytes]) -> list[tuple[bytes, int]]:
    """The symbols that members define, each with the number of its member."""
    index: list[tuple[bytes, int]] = []
    owners: dict[bytes, str] = {}  # symbol -> file name
    for number, (name, data) in enumerate(members.items()):
        if not name or set(name) & set("/\n\0"):
            raise LinkError(f"{name!r} cannot name a member of a static library")
        for symbol, weak in _definitions(data):
            if symbol in owners and not weak:
                owner = owners[symbol]
                raise LinkError(f"both {owner!r} and {name!r} define {symbol.decode()!r}")
            owners.setdefault(symbol, name)
            index.append((symbol, number))
    return index


def _is_long(name: str) -> bool:
    return len(name.encode()) > _SHORT_NAME_BYTES


def data_object(symbol: str, data: bytes, machine: str, writable: bool) -> bytes:
    """A relocatable object whose only symbol is `data`, aligned like a buffer.

    It puts weights into a static library without a compiler. The symbol is hidden: code that is
    linked with the object can use it, but a shared library made from it does not export it.

    >>> read_object(data_object("digits_weights", bytes(64), "x86_64", False)).symbols[1].size
    64
    """
    if machine not in MACHINE_NUMBERS:
        raise LinkError(f"no data objects for the machine {machine!r}, only for "
                        f"{' and '.join(MACHINE_NUMBERS)}")
    if not symbol or "\0" in symbol:
        raise LinkError(f"{symbol!r} cannot name a symbol")
    name = ".data" if writable else ".rodata"
    flags = SHF_ALLOC | SHF_WRITE if writable else SHF_ALLOC
    sections = [
        NO_SECTION,
        Section(name, SHT_PROGBITS, flags, len(data), BUFFER_ALIGN, 0, 0, memoryview(data)),
        # The stack is not executable.
        Section(".note.GNU-stack", SHT_PROGBITS, 0, 0, 1, 0, 0, memoryview(b"")),
    ]
    symbols = [NO_SYMBOL,
               ElfSymbol(symbol, STT_OBJECT, STB_GLOBAL, 1, 0, len(data), STV_HIDDEN)]
    return object_bytes(Object(MACHINE_NUMBERS[machine], 0, sections, symbols, []))


def _definitions(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """The global symbols that an object defines, and whether each is weak."""
    for symbol in read_object(data).symbols:
        if symbol.bind != STB_LOCAL and symbol.section and symbol.name:
            yield symbol.name.encode(), symbol.bind == _STB_WEAK


def _member(label: str, data: bytes) -> bytes:
    """A member with its header. Owner, group and time are zero, so that equal contents give equal
    archives."""
    head = f"{label:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)


def _padded(size: int) -> int:
    """The size with the padding of a member: to an even number of bytes."""
    return size + size % 2
