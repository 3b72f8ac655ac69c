"""Small PNG images, to embed in pages; written without a library."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # of PNG, by channels


def png(pixels: np.ndarray) -> bytes:
    """The bytes of a PNG file; `pixels` are uint8 of shape (height, width, 1, 3 or 4).

    >>> png(np.zeros((2, 3, 1), np.uint8))[:4]
    b'\\x89PNG'
    """
    height, width, channels = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8),  # each row starts with its filter: none
                           pixels.reshape(height, width * channels)], 1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join((
        _chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
        _chunk(b"IEND", b"")))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
