"""The order of long rows on processors: their digits are sorted one after the other, from the last
to the first, each by counting. It is stable, and needs no comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.kernels import kernel, threads

DIGIT = 8  # bits of a digit: the counts of one stay in the L1 cache
VALUES = 1 << DIGIT  # of a digit
CHUNK = 4096  # elements that one thread counts and moves; fewer would not pay for the counts
CHUNKS = 256  # of a row from which on chunks are longer
WORD = 32  # bits of keys that move together with their positions, as one number


def order_by_digits(keys: Value, bits: int) -> Value:
    """The positions in order of each row.

    Args:
        keys: Unsigned integers `(rows, n)`.
        bits: Number of bits that differ, from the last one on.
    """
    rows, n = keys.shape
    if bits == keys.dtype.bits == WORD and n <= CHUNK:
        pairs = OPS.bitwise_or(OPS.shift_left(OPS.cast(keys, "uint64"), WORD),
                               OPS.cast(OPS.iota(keys.shape, 1), "uint64"))
        return OPS.reshape(order_of_pairs(OPS.reshape(pairs, (rows * n,)), n), (rows, n))
    chunk = min(n, max(CHUNK, -(-n // CHUNKS)))
    order = OPS.reshape(OPS.iota(keys.shape, 1), (rows * n,))
    keys = OPS.reshape(keys, (rows * n,))
    for shift in range(0, bits, DIGIT):
        starts = summed(counted(keys, n, chunk, shift), n)
        if shift + DIGIT < bits:
            keys, order = moved(keys, order, starts, n, chunk, shift)
        else:
            order = ordered(keys, order, starts, n, chunk, shift)
    return OPS.reshape(order, (rows, n))


@kernel
def order_of_pairs(pairs: Any, n: int) -> Any:
    """The positions in order of each row, which one thread sorts: it counts all digits at once.

    Args:
        pairs: Keys in the upper halves of 64 bits, and their positions; rows one after the other.
        n: Elements of a row.
    """
    some, others = np.empty_like(pairs), np.empty_like(pairs)
    order = np.empty(pairs.shape[0], np.int32)
    for row, _ in threads(pairs.shape[0] // n, 1):
        first, last = row * n, row * n + n
        places = np.zeros(4 * VALUES, np.int32)  # for each of the four digits
        for i in range(first, last):
            key = pairs[i] >> WORD
            places[np.int32(key & 255)] += 1
            places[np.int32((key >> 8) & 255) + 256] += 1
            places[np.int32((key >> 16) & 255) + 512] += 1
            places[np.int32(key >> 24) + 768] += 1
        for k in range(4):
            place = np.int32(first)
            for digit in range(k * VALUES, k * VALUES + VALUES):
                count = places[digit]
                places[digit] = place
                place += count
        for i in range(first, last):
            pair = pairs[i]
            digit = np.int32((pair >> 32) & 255)
            place = places[digit]
            some[place] = pair
            places[digit] = place + 1
        for i in range(first, last):
            pair = some[i]
            digit = np.int32((pair >> 40) & 255) + 256
            place = places[digit]
            others[place] = pair
            places[digit] = place + 1
        for i in range(first, last):
            pair = others[i]
            digit = np.int32((pair >> 48) & 255) + 512
            place = places[digit]
            some[place] = pair
            places[digit] = place + 1
        for i in range(first, last):
            pair = some[i]
            digit = np.int32(pair >> 56) + 768
            place = places[digit]
            order[place] = np.int32(pair & 0xFFFFFFFF)
            places[digit] = place + 1
    return order


@kernel
def counted(keys: Any, n: int, chunk: int, shift: int) -> Any:
    """How often each value of a digit occurs in each chunk of a row, `(rows, chunks, values)`.

    Args:
        keys: Unsigned integers, rows one after the other.
        n: Elements of a row.
        chunk: Elements of a chunk.
        shift: Position of the digit's last bit.
    """
    rows, chunks = keys.shape[0] // n, -(-n // chunk)
    out = np.empty((rows * chunks, VALUES), np.int32)
    for c, _ in threads(rows * chunks, 1):
        counts = np.zeros(VALUES, np.int32)
        first = c // chunks * n + c % chunks * chunk
        for i in range(first, min(first + chunk, c // chunks * n + n)):
            counts[np.int32((keys[i] >> shift) & (VALUES - 1))] += 1
        for digit in range(VALUES):
            out[c, digit] = counts[digit]
    return out.reshape(rows, chunks, VALUES)


@kernel
def summed(counts: Any, n: int) -> Any:
    """The place of the first element with each value of a digit in each chunk.

    Args:
        counts: The result of `counted`.
        n: Elements of a row.
    """
    rows, chunks, _ = counts.shape
    out = np.empty_like(counts)
    for row, _ in threads(rows, 1):
        place = np.int32(row * n)
        for digit in range(VALUES):
            for part in range(chunks):
                out[row, part, digit] = place
                place += counts[row, part, digit]
    return out.reshape(rows * chunks, VALUES)


@kernel
def moved(keys: Any, order: Any, starts: Any, n: int, chunk: int, shift: int) -> Any:
    """Keys and their positions, sorted by a digit.

    Args:
        keys: Unsigned integers, rows one after the other.
        order: Their positions in the row.
        starts: The result of `summed`.
        n: Elements of a row.
        chunk: Elements of a chunk.
        shift: Position of the digit's last bit.
    """
    chunks = -(-n // chunk)
    new_keys, new_order = np.empty_like(keys), np.empty_like(order)
    for c, _ in threads(starts.shape[0], 1):
        places = np.zeros(VALUES, np.int32)
        for digit in range(VALUES):
            places[digit] = starts[c, digit]
        first = c // chunks * n + c % chunks * chunk
        for i in range(first, min(first + chunk, c // chunks * n + n)):
            key = keys[i]
            digit = np.int32((key >> shift) & (VALUES - 1))
            place = places[digit]
            new_keys[place] = key
            new_order[place] = order[i]
            places[digit] = place + 1
    return new_keys, new_order


@kernel
def ordered(keys: Any, order: Any, starts: Any, n: int, chunk: int, shift: int) -> Any:
    """The positions alone, sorted by the first digit.

    Args:
        keys: Unsigned integers, rows one after the other.
        order: Their positions in the row.
        starts: The result of `summed`.
        n: Elements of a row.
        chunk: Elements of a chunk.
        shift: Position of the digit's last bit.
    """
    chunks = -(-n // chunk)
    new_order = np.empty_like(order)
    for c, _ in threads(starts.shape[0], 1):
        places = np.zeros(VALUES, np.int32)
        for digit in range(VALUES):
            places[digit] = starts[c, digit]
        first = c // chunks * n + c % chunks * chunk
        for i in range(first, min(first + chunk, c // chunks * n + n)):
            digit = np.int32((keys[i] >> shift) & (VALUES - 1))
            place = places[digit]
            new_order[place] = order[i]
            places[digit] = place + 1
    return new_order
