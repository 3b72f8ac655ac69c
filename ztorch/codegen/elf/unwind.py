"""The section .eh_frame_hdr, with which debuggers and profilers unwind the stack.

Objects have `.eh_frame` only if functions are marked `uwtable`. Unwinders then also need a sorted
table of (function, entry) pairs, `.eh_frame_hdr`, which the linker must add.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ztorch.errors import LinkError

_RELATIVE_32, _RELATIVE_64 = 0x1B, 0x1C  # encodings of a function's address in an entry


def entries(frame: bytes | memoryview) -> Iterator[tuple[int, str]]:
    """The offset of each function's entry, and the `struct` format of the address 8 bytes after
    it."""
    formats: dict[int, str] = {}
    at = 0
    while at + 4 <= len(frame):
        (size,) = struct.unpack_from("<I", frame, at)
        if size == 0:
            return
        end = at + 4 + size
        if size < 4 or end > len(frame):
            raise LinkError(f"damaged .eh_frame: entry at {at} has {size} bytes")
        (back,) = struct.unpack_from("<I", frame, at + 4)
        if back == 0:
            formats[at] = _address_format(bytes(frame[at + 8 : end]))
        else:
            form = formats.get(at + 4 - back)
            if form is None or at + 8 + struct.calcsize(form) > end:
                raise LinkError(f"damaged .eh_frame: the entry at {at} has no CIE")
            yield at, form
        at = end


def search_table(frame: bytes, frame_at: int, table_at: int) -> bytes:
    """The `.eh_frame_hdr` of a patched `.eh_frame`.

    Args:
        frame: The `.eh_frame`.
        frame_at: Its address in the library.
        table_at: The address of the `.eh_frame_hdr` in the library.
    """
    rows = []
    for entry, form in entries(frame):
        (distance,) = struct.unpack_from(form, frame, entry + 8)
        function = frame_at + entry + 8 + distance
        rows.append((function - table_at, frame_at + entry - table_at))
    # Version 1, then the encodings of the address of .eh_frame, of the number of rows (unsigned 32
    # bits), and of the rows (32 bits, relative to this section).
    head = struct.pack("<4BiI", 1, _RELATIVE_32, 0x03, 0x3B, frame_at - table_at - 4, len(rows))
    try:
        return head + b"".join(struct.pack("<ii", *row) for row in sorted(rows))
    except struct.error:
        raise LinkError("unwind table: a function is more than 2 GiB away") from None


def table_size(frame: bytes | memoryview) -> int:
    """The size in bytes of the `.eh_frame_hdr` for an `.eh_frame`."""
    return 12 + 8 * sum(1 for _ in entries(frame))


def _address_format(head: bytes) -> str:
    """The address format of a group of entries, from its head (CIE)."""
    kind, _, rest = head[1:].partition(b"\0")
    if not kind.startswith(b"zR"):
        raise LinkError(f"unwind information of an unknown type {kind!r}")
    # Skip four variable-length numbers: code and data alignment, return register, length.
    for _ in range(4):
        stop = next((i for i, byte in enumerate(rest) if byte < 0x80), len(rest))
        rest = rest[stop + 1 :]
    form = {_RELATIVE_32: "<i", _RELATIVE_64: "<q"}.get(rest[0] if rest else -1)
    if form is None:
        raise LinkError("unwind information with an unknown address encoding")
    return form
