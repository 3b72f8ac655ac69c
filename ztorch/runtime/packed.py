"""A compiled program of this CPU as one string of bytes, for a cache.

    8 bytes    size of the header
    header     JSON: the spec of the program, and the size of its code
    code       what is loaded
    params     the rest: first values of states and constants
"""

from __future__ import annotations

import json

import numpy as np

from ztorch.host.memory import aligned
from ztorch.runtime.program_checks import check_params, check_symbols
from ztorch.runtime.spec import ProgramSpec

LENGTH = 8  # bytes of the header's size


def pack(spec: ProgramSpec, code: bytes, params: np.ndarray) -> bytes:
    """A program as bytes."""
    header = json.dumps([spec.to_json(), len(code)], allow_nan=False).encode()
    return b"".join((len(header).to_bytes(LENGTH, "little"), header, code, params.tobytes()))


def unpack(packed: bytes) -> tuple[ProgramSpec, bytes, np.ndarray] | None:
    """The spec, code and params of a program; None if the bytes are no such program."""
    start = LENGTH + int.from_bytes(packed[:LENGTH], "little")
    try:
        described, size = json.loads(packed[LENGTH:start])
        spec = ProgramSpec.from_json(described)
        check_params(spec)
        check_symbols(spec)
    except (ValueError, TypeError, RecursionError):  # BadValue is a ValueError
        return None
    if spec.backend != "cpu" or type(size) is not int or not (
            0 <= size == len(packed) - start - spec.params_bytes):
        return None
    code = packed[start:start + size]
    if not all(b"\0%s\0" % f.symbol.encode() in code for f in spec.functions.values()):
        return None
    params = aligned(max(spec.params_bytes, 1))[:spec.params_bytes]
    params[:] = np.frombuffer(packed, np.uint8, spec.params_bytes, start + size)
    return spec, code, params
