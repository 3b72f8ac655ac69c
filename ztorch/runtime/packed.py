"""A compiled program as a byte string, for a cache.

    8 bytes    size of the header
    header     JSON: the spec of the program, and the size of its code
    code       the code to load
    constants  the parts of params that the spec lists as constants

Weights and other states are not included: they would fill the cache, and the caller has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import accumulate

import numpy as np

from ztorch.runtime.program_checks import check_params, check_symbols
from ztorch.runtime.spec import ProgramSpec

SIZE_BYTES = 8  # bytes of the header's size


def pack(spec: ProgramSpec, code: bytes, constants: Iterable[np.ndarray]) -> bytes:
    """A program as bytes, with its code and the contents of its constants."""
    header = json.dumps([spec.to_json(), len(code)], allow_nan=False).encode()
    return b"".join((len(header).to_bytes(SIZE_BYTES, "little"), header, code,
                     *(data.tobytes() for data in constants)))


def unpack(packed: bytes) -> tuple[ProgramSpec, bytes, list[np.ndarray]] | None:
    """The spec, code and constants of a program; None if the bytes are not a packed program."""
    start = SIZE_BYTES + int.from_bytes(packed[:SIZE_BYTES], "little")
    try:
        description, size = json.loads(packed[SIZE_BYTES:start])
        spec = ProgramSpec.from_json(description)
        check_params(spec)
        if spec.backend == "cpu":
            check_symbols(spec)
    except (ValueError, TypeError, RecursionError):  # BadValue is a ValueError
        return None
    sizes = [nbytes for _, nbytes in spec.constants]
    if type(size) is not int or not 0 <= size == len(packed) - start - sum(sizes):
        return None
    code = packed[start:start + size]
    if not _has_all(code, spec):
        return None
    ends = [*accumulate(sizes, initial=start + size)]
    return spec, code, [np.frombuffer(packed, np.uint8, nbytes, first)
                        for nbytes, first in zip(sizes, ends[:-1], strict=True)]


def _has_all(code: bytes, spec: ProgramSpec) -> bool:
    """Whether the code contains every function, or every kernel, of the spec."""
    if spec.backend == "cpu":
        return all(b"\0%s\0" % f.symbol.encode() in code for f in spec.functions.values())
    return all(first + nbytes <= len(code) for _, first, nbytes, _ in spec.entries)
