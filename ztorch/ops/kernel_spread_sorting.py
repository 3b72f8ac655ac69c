"""The order of words that are spread evenly, such as those of a hash, on processors. Their leading
bits alone bring each almost to its place: the rest is found by comparing neighbors.

A word moves together with its position, in the lower half of 64 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.kernels import kernel, threads
from ztorch.ops.kernel_sorting import CHUNK, DIGIT, VALUES, counted, summed

WORD = 32  # bits of a word
WHOLE = 1 << 15  # elements up to which the table of one count stays near the core
MOST = 1 << 23  # elements up to which the tables of groups do
CHUNKS = 64  # of all elements from which on chunks are longer
# Neighbors on each side with which vectors compare an element. A bucket has one or two elements on
# average, and one in 20,000 or fewer has more than so many of both sides.
NEAR = 8


def order_of_spread(words: Value) -> Value:
    """The positions in order.

    Any words are sorted; those that share their leading bits, slowly.

    Args:
        words: A vector of uint32 that are spread evenly, at most `MOST`.
    """
    n, shift = words.shape[0], 2 * WORD
    pairs = OPS.bitwise_or(OPS.shift_left(OPS.cast(words, "uint64"), WORD),
                           OPS.cast(OPS.iota(words.shape, 0), "uint64"))
    first, groups = constant(np.array([0], np.int32)), 1
    if n > WHOLE:
        shift -= DIGIT
        chunk = max(CHUNK, -(-n // CHUNKS))
        starts = summed(counted(pairs, n, chunk, shift), n)
        pairs = grouped(pairs, starts, chunk, shift)
        first, groups = starts[0], VALUES
    bits = max((n // groups).bit_length() - 1, 1)
    starts = OPS.concat(first, constant(np.array([n], np.int32)))
    words, order = spread(pairs, starts, shift - bits, bits)
    return placed(order, _places(words, n))


def _places(words: Value, n: int) -> Value:
    """The place of each of n words, which stand between others: those of a bucket are together."""
    mine = words[NEAR:NEAR + n]
    place = OPS.iota((n,), 0)
    for distance in range(1, NEAR + 1):
        before, after = (words[NEAR + d:NEAR + d + n] for d in (-distance, distance))
        place = place + OPS.cast(OPS.less(after, mine), "int32")
        place = place - OPS.cast(OPS.less(mine, before), "int32")
    return place


@kernel
def grouped(pairs: Any, starts: Any, chunk: int, shift: int) -> Any:
    """Words and their positions, sorted by a digit.

    Args:
        pairs: Words and their positions.
        starts: The result of `summed`.
        chunk: Elements of a chunk.
        shift: Position of the digit's last bit.
    """
    n = pairs.shape[0]
    new_pairs = np.empty_like(pairs)
    for c, _ in threads(starts.shape[0], 1):
        places = np.zeros(VALUES, np.int32)
        for digit in range(VALUES):
            places[digit] = starts[c, digit]
        for i in range(c * chunk, min(c * chunk + chunk, n)):
            pair = pairs[i]
            digit = np.int32((pair >> shift) & (VALUES - 1))
            place = places[digit]
            new_pairs[place] = pair
            places[digit] = place + 1
    return new_pairs


@kernel
def spread(pairs: Any, starts: Any, shift: int, bits: int) -> Any:
    """Words in buckets of equal leading bits, and their positions. There are `NEAR` more words at
    both ends, in order. Buckets in which elements may be farther apart are sorted.

    Args:
        pairs: Words and their positions: those of a group are together, and groups in order.
        starts: The first element of each group, and the number of all elements.
        shift: Position of the last of the bits that number the buckets of a group.
        bits: Number of these bits.
    """
    n, groups, buckets = pairs.shape[0], starts.shape[0] - 1, 1 << bits
    near = np.empty_like(pairs)
    words, order = np.empty(n + 2 * NEAR, np.uint32), np.empty(n, np.int32)
    for group, _ in threads(groups, 1):
        first, last = starts[group], starts[group + 1]
        places = np.zeros(buckets, np.int32)
        for i in range(first, last):
            places[np.int32((pairs[i] >> shift) & (buckets - 1))] += 1
        place, most = first, np.int32(0)
        for bucket in range(buckets):
            count = places[bucket]
            places[bucket] = place
            place += count
            most = max(most, count)
        for i in range(first, last):
            pair = pairs[i]
            bucket = np.int32((pair >> shift) & (buckets - 1))
            place = places[bucket]
            near[place] = pair
            places[bucket] = place + 1
        if most > NEAR + 1:
            begin = first
            for bucket in range(buckets):
                end = places[bucket]
                if end - begin > NEAR + 1:
                    for i in range(begin + 1, end):
                        pair, place = near[i], i
                        while place > begin and near[place - 1] > pair:
                            near[place] = near[place - 1]
                            place -= 1
                        near[place] = pair
                begin = end
        for i in range(first, last):
            words[NEAR + i] = np.uint32(near[i] >> WORD)
            order[i] = np.int32(near[i] & 0xFFFFFFFF)
        if group == 0:
            for i in range(NEAR):
                words[i] = np.uint32(0)
        if group == groups - 1:
            for i in range(NEAR + n, NEAR + n + NEAR):
                words[i] = np.uint32(0xFFFFFFFF)
    return words, order


@kernel
def placed(order: Any, places: Any) -> Any:
    """The positions, each at its place.

    Args:
        order: Positions.
        places: Their places.
    """
    n = order.shape[0]
    new_order = np.empty_like(order)
    for c, _ in threads(-(-n // CHUNK), 1):
        for i in range(c * CHUNK, min(c * CHUNK + CHUNK, n)):
            new_order[places[i]] = order[i]
    return new_order
