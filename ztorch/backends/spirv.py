"""Reads the declarations of a SPIR-V module, which a backend checks before loading it."""

from __future__ import annotations

import struct
from typing import NamedTuple

MAGIC = 0x07230203
CAPABILITY, ENTRY_POINT, DECORATE, FUNCTION, BINDING = 17, 15, 71, 54, 33


class Needs(NamedTuple):
    """The requirements that a module declares."""

    capabilities: frozenset[int]  # numbers from the SPIR-V standard
    bindings: int  # number of buffers that it binds
    names: frozenset[str]  # names of its kernels


def needs(code: bytes) -> Needs:
    """The requirements of a module; ValueError if it is damaged.

    All instructions are checked up to the end, so that no driver follows a wrong length out of the
    code.
    """
    if len(code) < 20 or len(code) % 4 or struct.unpack_from("<I", code)[0] != MAGIC:
        raise ValueError("it is not a SPIR-V module")
    words = struct.unpack(f"<{len(code) // 4}I", code)
    capabilities, bindings, names, at, declarations = set(), 0, set(), 5, True
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
    return Needs(frozenset(capabilities), bindings, frozenset(names))
