"""Instructions of PTX that NVRTC writes and our own templates do not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

Words = dict[tuple[str, ...], tuple[Callable[..., np.ndarray], tuple[int, ...], int]]


def _wide(kind: str, bits: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The whole product."""
    narrow, wide = (np.dtype(f"{kind}{n // 8}") for n in (bits, 2 * bits))
    return (a.view(narrow).astype(wide) * b.view(narrow)).view(f"u{bits // 4}")


def _inserted(a: np.ndarray, b: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """b with the low bits of a from a place on."""
    ones = ~a.dtype.type(0) >> (a.dtype.type(8 * a.itemsize) - length.astype(a.dtype))
    mask = ones << start.astype(a.dtype)
    return (b & ~mask) | (a << start.astype(a.dtype) & mask)


def _funnel(low: np.ndarray, high: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The upper half of two words side by side, shifted to the left."""
    both = high.astype(np.uint64) << np.uint64(32) | low
    return (both << (n & 31).astype(np.uint64) >> np.uint64(32)).astype(np.uint32)


def _permuted(low: np.ndarray, high: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Four of the eight bytes of two words, or the sign of one in all its bits."""
    both, result = high.astype(np.uint64) << np.uint64(32) | low, np.zeros(1, np.uint32)
    for k in range(4):
        which = chosen >> np.uint32(4 * k) & np.uint32(15)
        byte = both >> ((which & 7).astype(np.uint64) * np.uint64(8)) & np.uint64(255)
        byte = np.where(which > 7, np.where(byte > 127, 255, 0), byte).astype(np.uint32)
        result = result | byte << np.uint32(8 * k)
    return result


WORDS: Words = {
    **{("mul", "wide", f"{kind}{bits}"): (partial(_wide, kind.replace("s", "i"), bits), (bits, bits), 2 * bits)
       for kind in "us" for bits in (16, 32)},
    **{("bfi", f"b{bits}"): (_inserted, (bits, bits, 32, 32), bits) for bits in (32, 64)},
    ("shf", "l", "wrap", "b32"): (_funnel, (32,) * 3, 32), ("prmt", "b32"): (_permuted, (32,) * 3, 32)}
