"""Decodes the blocks of GGUF files: quantized weights as float32.

A block holds 32 or 256 numbers: codes of few bits, with the scales that they are multiplied by and
the offsets that are added. Functions take blocks as rows of bytes, and return rows of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Decode = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class BlockType:
    """A type of quantized blocks."""

    name: str
    numbers: int  # in a block
    bytes: int  # of a block
    decode: Decode


BLOCK_TYPES: dict[int, BlockType] = {}  # by their numbers in files


def block_type(number: int, name: str, numbers: int, size: int) -> Callable[[Decode], Decode]:
    """Registers the function that decodes a type of blocks."""

    def register(decode: Decode) -> Decode:
        BLOCK_TYPES[number] = BlockType(name, numbers, size, decode)
        return decode

    return register


def _half(rows: np.ndarray, at: int) -> np.ndarray:
    """The float16 at an offset of each row, as a column of float32."""
    return np.ascontiguousarray(rows[:, at:at + 2]).view("<f2").astype(np.float32)


def _nibbles(rows: np.ndarray) -> np.ndarray:
    """The lower 4 bits of all bytes, then the upper ones."""
    return np.concatenate([rows & 15, rows >> 4], 1).astype(np.float32)


def _fifth_bits(rows: np.ndarray) -> np.ndarray:
    """The 32 bits of 4 bytes, lowest first, as numbers 0 and 16."""
    return np.unpackbits(rows, axis=1, bitorder="little").astype(np.float32) * 16


@block_type(2, "Q4_0", 32, 18)
def _q4_0(rows: np.ndarray) -> np.ndarray:
    return (_nibbles(rows[:, 2:]) - 8) * _half(rows, 0)


@block_type(3, "Q4_1", 32, 20)
def _q4_1(rows: np.ndarray) -> np.ndarray:
    return _nibbles(rows[:, 4:]) * _half(rows, 0) + _half(rows, 2)


@block_type(6, "Q5_0", 32, 22)
def _q5_0(rows: np.ndarray) -> np.ndarray:
    return (_nibbles(rows[:, 6:]) + _fifth_bits(rows[:, 2:6]) - 16) * _half(rows, 0)


@block_type(7, "Q5_1", 32, 24)
def _q5_1(rows: np.ndarray) -> np.ndarray:
    return (_nibbles(rows[:, 8:]) + _fifth_bits(rows[:, 4:8])) * _half(rows, 0) + _half(rows, 2)


@block_type(8, "Q8_0", 32, 34)
def _q8_0(rows: np.ndarray) -> np.ndarray:
    return rows[:, 2:].view(np.int8).astype(np.float32) * _half(rows, 0)


# -- blocks of 256 numbers, with a scale for each 16 or 32 -----------------------------------------


def _by_shifts(rows: np.ndarray, shifts: tuple[int, ...], mask: int) -> np.ndarray:
    """Codes of few bits: the lowest ones of each 32 bytes, then the next ones."""
    parts = rows.reshape(len(rows), -1, 1, 32) >> np.array(shifts, np.uint8).reshape(1, 1, -1, 1)
    return (parts & mask).astype(np.int16).reshape(len(rows), -1)


def _spread(scales: np.ndarray, count: int) -> np.ndarray:
    """Repeats each scale for the numbers that it applies to."""
    return np.repeat(scales.astype(np.float32), count, axis=1)


def _six_bits(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eight scales and eight offsets of six bits in 12 bytes."""
    low, middle, high = rows[:, :4], rows[:, 4:8], rows[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], 1)
    offsets = np.concatenate([middle & 63, high >> 4 | (middle >> 6) << 4], 1)
    return scales, offsets


@block_type(10, "Q2_K", 256, 84)
def _q2_k(rows: np.ndarray) -> np.ndarray:
    scales = rows[:, :16]
    codes = _by_shifts(rows[:, 16:80], (0, 2, 4, 6), 3)
    return (codes * (_half(rows, 80) * _spread(scales & 15, 16))
            - _half(rows, 82) * _spread(scales >> 4, 16))


@block_type(11, "Q3_K", 256, 110)
def _q3_k(rows: np.ndarray) -> np.ndarray:
    has_high = _by_shifts(rows[:, :32], tuple(range(8)), 1)
    codes = _by_shifts(rows[:, 32:96], (0, 2, 4, 6), 3) - 4 * (1 - has_high)
    packed = rows[:, 96:108]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], 1)
    high = np.concatenate([packed[:, 8:] >> shift & 3 for shift in (0, 2, 4, 6)], 1)
    scales = (low | high << 4).astype(np.int16) - 32
    return codes * (_half(rows, 108) * _spread(scales, 16))


@block_type(12, "Q4_K", 256, 144)
def _q4_k(rows: np.ndarray) -> np.ndarray:
    scales, offsets = _six_bits(rows[:, 4:16])
    codes = _by_shifts(rows[:, 16:], (0, 4), 15)
    return (codes * (_half(rows, 0) * _spread(scales, 32))
            - _half(rows, 2) * _spread(offsets, 32))


@block_type(13, "Q5_K", 256, 176)
def _q5_k(rows: np.ndarray) -> np.ndarray:
    scales, offsets = _six_bits(rows[:, 4:16])
    codes = (_by_shifts(rows[:, 48:], (0, 4), 15)
             + 16 * _by_shifts(rows[:, 16:48], tuple(range(8)), 1))
    return (codes * (_half(rows, 0) * _spread(scales, 32))
            - _half(rows, 2) * _spread(offsets, 32))


@block_type(14, "Q6_K", 256, 210)
def _q6_k(rows: np.ndarray) -> np.ndarray:
    low = (rows[:, :128].reshape(-1, 2, 1, 64)
           >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)) & 15
    high = _by_shifts(rows[:, 128:192], (0, 2, 4, 6), 3)
    codes = low.reshape(len(rows), -1).astype(np.int16) + 16 * high - 32
    scales = rows[:, 192:208].view(np.int8)
    return codes * (_half(rows, 208) * _spread(scales, 16))


# -- codes that index a table, and base-3 digits ---------------------------------------------------

_LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113],
                   np.float32)  # of IQ4, denser around zero
_HALVES = np.array([0, 1, 2, 3, 4, 6, 8, 12], np.float32)  # the numbers of a 4-bit float, times 2
_FLOATS = np.concatenate([_HALVES, -_HALVES])


def _pairs(rows: np.ndarray) -> np.ndarray:
    """Codes of 4 bits: the lower ones of each 16 bytes, then the upper ones."""
    parts = rows.reshape(len(rows), -1, 16)
    return np.concatenate([parts & 15, parts >> 4], 2).reshape(len(rows), -1)


@block_type(20, "IQ4_NL", 32, 18)
def _iq4_nl(rows: np.ndarray) -> np.ndarray:
    return _LEVELS[_pairs(rows[:, 2:])] * _half(rows, 0)


@block_type(23, "IQ4_XS", 256, 136)
def _iq4_xs(rows: np.ndarray) -> np.ndarray:
    low = np.stack([rows[:, 4:8] & 15, rows[:, 4:8] >> 4], 2).reshape(len(rows), 8)
    high = _by_bits(rows[:, 2:4], 2)
    scales = (low | high << 4).astype(np.int16) - 32
    return _LEVELS[_pairs(rows[:, 8:])] * (_half(rows, 0) * _spread(scales, 32))


def _by_bits(rows: np.ndarray, bits: int) -> np.ndarray:
    """Codes of this many bits, packed one after another from the lowest bits on."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (rows[:, :, None] >> shifts & (1 << bits) - 1).reshape(len(rows), -1)


@block_type(39, "MXFP4", 32, 17)
def _mxfp4(rows: np.ndarray) -> np.ndarray:
    scale = np.exp2(rows[:, :1].astype(np.float64) - 128).astype(np.float32)
    return _FLOATS[_pairs(rows[:, 1:])] * scale


@block_type(34, "TQ1_0", 256, 54)
def _tq1_0(rows: np.ndarray) -> np.ndarray:
    parts = [_digits(rows[:, :32], 5), _digits(rows[:, 32:48], 5), _digits(rows[:, 48:52], 4)]
    return (np.concatenate(parts, 1) - 1) * _half(rows, 52)


def _digits(rows: np.ndarray, count: int) -> np.ndarray:
    """Base-3 digits of bytes, which hold them as a fraction: the first digits of all bytes, then
    the second ones."""
    fractions = rows[:, None] * np.array([3 ** k for k in range(count)], np.uint8)[:, None]
    return (fractions.astype(np.uint16) * 3 >> 8).reshape(len(rows), -1).astype(np.float32)


@block_type(35, "TQ2_0", 256, 66)
def _tq2_0(rows: np.ndarray) -> np.ndarray:
    return (_by_shifts(rows[:, :64], (0, 2, 4, 6), 3) - 1) * _half(rows, 64)
