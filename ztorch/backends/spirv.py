"""Reads the requirements of a SPIR-V module, which backends check before they load it."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ztorch.backends.handles import KernelEntry
from ztorch.errors import DeviceError

MAGIC = 0x07230203  # the first word of a module
HEADER_WORDS = 5  # magic, version, generator, bound of ids, schema
CAPABILITY, ENTRY_POINT, DECORATE, FUNCTION = 17, 15, 71, 54  # opcodes
BINDING = 33  # the decoration of a buffer with its number


class Requirements(NamedTuple):
    """The requirements that a module declares."""

    capabilities: frozenset[int]  # numbers of the SPIR-V standard
    bindings: int  # number of buffers that it binds
    names: frozenset[str]  # names of its kernels


def requirements(code: bytes) -> Requirements:
    """The requirements of a module; ValueError if it is damaged.

    Checks the lengths of all instructions, so that no driver reads beyond the end of the code.
    """
    if (len(code) < 4 * HEADER_WORDS or len(code) % 4
            or struct.unpack_from("<I", code)[0] != MAGIC):
        raise ValueError("it is not a SPIR-V module")
    words = struct.unpack(f"<{len(code) // 4}I", code)
    capabilities, bindings, names = set(), 0, set()
    at, declarations = HEADER_WORDS, True
    while at < len(words):
        count, opcode = words[at] >> 16, words[at] & 0xFFFF
        if not count or at + count > len(words):
            raise ValueError(f"its instruction at word {at} does not end within it")
        if opcode == FUNCTION:
            declarations = False
        elif declarations and opcode == CAPABILITY and count == 2:
            capabilities.add(words[at + 1])
        elif declarations and opcode == ENTRY_POINT and count > 3:
            names.add(code[4 * at + 12:4 * (at + count)].partition(b"\0")[0].decode("latin-1"))
        elif declarations and opcode == DECORATE and count == 4 and words[at + 2] == BINDING:
            bindings = max(bindings, words[at + 3] + 1)
        at += count
    return Requirements(frozenset(capabilities), bindings, frozenset(names))


def kernel_requirements(device: str, entry: KernelEntry, code: bytes) -> Requirements:
    """The requirements of a kernel's module; a DeviceError if it is damaged or lacks the kernel."""
    try:
        required = requirements(code)
    except ValueError as error:
        raise DeviceError(f"{device}: the code of kernel {entry.name!r}: {error}") from None
    if entry.name not in required.names:
        raise DeviceError(f"{device}: the code has no kernel {entry.name!r}")
    return required
