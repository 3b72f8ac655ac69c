"""Random numbers without state: a hash of (seed, step, stream, position), equal on all targets.

The generator is Threefry-2x32 with 20 rounds, for dropout with 13 (Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3", 2011). It consists of additions, exclusive ors and shifts of 32-bit
words. So it needs no 64-bit integers, vectorizes, and does not depend on the number or order of
threads.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.dtypes import DType, f32, f64, u32, u64
from ztorch.graph.batching import refused
from ztorch.graph.op import OPS, op, shape_error
from ztorch.graph.value import Op, Value
from ztorch.ops.normals import normals, shares_below

Shape = tuple[int, ...]

# Of Threefry-2x32: bits by which words rotate, and the word that makes up a third key.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
ROUNDS = 20  # those that the authors recommend
FEW_ROUNDS = 13  # of dropout: the fewest with which words pass BigCrush, as the authors found
NUMPY_WORDS = SimpleNamespace(add=np.add, xor=np.bitwise_xor, or_=np.bitwise_or, shl=np.left_shift,
                              shr=np.right_shift)


def threefry(o: Any, key: tuple[Any, Any], counter: tuple[Any, Any],
             rounds: int = ROUNDS) -> tuple[Any, Any]:
    """Two random words from two words of key and two of counter.

    Args:
        o: Namespace of the integer operations, so that NumPy and a kernel builder run the same
            lines.
        key: Two uint32 words.
        counter: Two uint32 words.
        rounds: Rounds of mixing. Default: `20`.

    Returns:
        Two uint32 words.

    Examples:
        >>> zero = np.zeros(1, np.uint32)
        >>> [hex(word[0]) for word in threefry(NUMPY_WORDS, (zero, zero), (zero, zero))]
        ['0x6b200159', '0x99ba4efe']
    """
    keys = (*key, o.xor(o.xor(key[0], key[1]), _PARITY))
    a, b = o.add(counter[0], keys[0]), o.add(counter[1], keys[1])
    for n in range(rounds):
        group, part = divmod(n, 4)
        r = _ROTATIONS[group % 2][part]
        a = o.add(a, b)
        b = o.xor(o.or_(o.shl(b, r), o.shr(b, 32 - r)), a)
        if part == 3:
            a = o.add(a, keys[(group + 1) % 3])
            b = o.add(o.add(b, keys[(group + 2) % 3]), group + 1)
    return a, b


# Operands: seed and step. Where a tensor is drawn in parts, also the position of the first element.
def _infer(seed: Value, step: Value, *first: Value, shape: Shape, stream: int, word: int,
           rounds: int) -> tuple[Shape, DType]:
    if seed.shape != (2, *shape[:seed.rank - 1]) or step.shape != () or (
            {seed.dtype, step.dtype} != {u32}):
        raise shape_error("random ops need a uint32 seed of shape (2,) and a uint32 scalar step, "
                          "not", seed.shape, step.shape)
    if math.prod(shape) > 1 << 32:
        raise shape_error("one random tensor holds at most 2**32 elements, not", shape)
    return shape, u32


def _numpy(seed: Any, step: Any, *first: Any, shape: Shape, stream: int, word: int,
           rounds: int) -> Any:
    rows, rest = shape[:seed.ndim - 1], shape[seed.ndim - 1:]
    position = np.arange(math.prod(rest), dtype=np.uint32).reshape(rest)
    position = sum(first, start=position)
    low, high = seed.reshape(2, *rows, *(1,) * len(rest))
    key = (np.asarray(low), high ^ np.uint32(stream))
    return threefry(NUMPY_WORDS, key, (np.broadcast_to(position, shape), step), rounds)[word]


def _body(e: Any, index: Any, shape: Shape, stream: int, word: int, rounds: int) -> Any:
    rows = len(e.shape(0)) - 1
    flat = sum((i * math.prod(shape[k + 1:]) for k, i in enumerate(index) if k >= rows), e.zero)
    position = e.b.cast(e.value(flat), dtype=u32)
    if e.count > 2:
        position = e.b.add(position, e.read(2, ()))
    key = (e.read(0, (0, *index[:rows])), e.b.xor(e.read(0, (1, *index[:rows])), stream))
    return threefry(e.b, key, (position, e.read(1, ())), rounds)[word]


# One node for about a hundred instructions. Both words of a position come from the same rounds, so
# a kernel that uses both computes them once.
RANDOM_BITS = Op("random_bits", "map", _infer, _numpy, body=_body, cost=120, batch=refused)

BEYOND_TWO = 97_711_073  # of 2**32 normally distributed numbers, how many are below -2


def _words(shape: Shape, seed: Value, step: Value, stream: int,
           *first: Value) -> tuple[Value, Value]:
    low, high = (RANDOM_BITS(seed, step, *first, shape=tuple(shape), stream=stream, word=w,
                             rounds=ROUNDS) for w in (0, 1))
    return low, high


@op(primitive=RANDOM_BITS)
def random_bits(shape: Shape, seed: Value, step: Value, stream: int = 0) -> Value:
    """Random 32-bit words.

    The same seed, step and stream give the same numbers on every device.

    Args:
        shape: Shape of the result.
        seed: Seed: a uint32 tensor of shape `(2,)`. With more axes, which are the first ones of the
            result, each row has a seed and draws as it would alone.
        step: Number of the training step: a uint32 scalar. Each step gives new numbers.
        stream: Number of the stream. Give every use in a model its own. Default: `0`.

    Returns:
        A uint32 tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.random_bits((2,), np.array([1, 2], np.uint32), np.array(0, np.uint32)).dtype
        dtype('uint32')
    """
    return _words(shape, seed, step, stream)[0]


@op()
def random_uniform(shape: Shape, seed: Value, step: Value, stream: int = 0,
                   dtype: DType | str = "float32") -> Value:
    """Uniformly distributed numbers from 0 to below 1.

    They have as many random bits as the dtype holds.

    Args:
        shape: Shape of the result.
        seed: Seed: a uint32 tensor of shape `(2,)`.
        step: Number of the training step: a uint32 scalar. Each step gives new numbers.
        stream: Number of the stream. Give every use in a model its own. Default: `0`.
        dtype: Float dtype of the result. Default: `"float32"`.

    Returns:
        A tensor of this shape.

    Examples:
        >>> import ztorch as zt
        >>> seed, step = np.array([1, 2], np.uint32), np.array(0, np.uint32)
        >>> zt.ops.random_uniform((2, 3), seed, step).shape
        (2, 3)
    """
    d = _float(dtype)
    first, second = _words(shape, seed, step, stream)
    if d == f64:  # 27 high bits of one word, 26 of the other
        high = OPS.cast(OPS.shift_right(first, 5), d) * 2.0**26
        return (high + OPS.cast(OPS.shift_right(second, 6), d)) * 2.0**-53
    bits = d.significand  # no more than fit, or rounding would reach 1
    return OPS.cast(OPS.shift_right(first, 32 - bits), d) * 2.0**-bits


@op()
def random_normal(shape: Shape, seed: Value, step: Value, stream: int = 0,
                  dtype: DType | str = "float32") -> Value:
    """Normally distributed numbers of mean 0 and deviation 1, the same bits on every device.

    Each comes from one random word by the inverse of the distribution function, so the largest
    size is 6.34, and 9.16 in float64: beyond these lie 2**-32 and 2**-64 of all numbers.

    Args:
        shape: Shape of the result.
        seed: Seed: a uint32 tensor of shape `(2,)`.
        step: Number of the training step: a uint32 scalar. Each step gives new numbers.
        stream: Number of the stream. Give every use in a model its own. Default: `0`.
        dtype: Float dtype of the result. Default: `"float32"`.

    Returns:
        A tensor of this shape.

    Examples:
        >>> import ztorch as zt
        >>> seed, step = np.array([1, 2], np.uint32), np.array(0, np.uint32)
        >>> zt.ops.random_normal((2, 3), seed, step).shape
        (2, 3)
    """
    return normals_from(shape, seed, step, stream, _float(dtype))


def normals_from(shape: Shape, seed: Value, step: Value, stream: int, d: DType,
                 *first: Value) -> Value:
    """The numbers of `random_normal` of a larger shape, in C order from a position on.

    Args:
        shape: Shape of the result.
        seed: As for `random_normal`.
        step: Likewise.
        stream: Likewise.
        d: Dtype of the result.
        *first: The position: a uint32 scalar. None: 0.
    """
    return OPS.cast(normals(_words_of(d, shape, seed, step, stream, *first), _drawn(d)), d)


def shares_from(shape: Shape, seed: Value, step: Value, stream: int, d: DType,
                *first: Value) -> Value:
    """Uniformly distributed numbers: how much of the distribution is below those of `normals_from`.

    Args:
        shape: As for `normals_from`.
        seed: Likewise.
        step: Likewise.
        stream: Likewise.
        d: Likewise.
        *first: Likewise.
    """
    words = _words_of(d, shape, seed, step, stream, *first)
    return OPS.cast(shares_below(OPS, words, _drawn(d)), d)


def _drawn(d: DType) -> DType:
    """The dtype in which numbers are drawn that are rounded to d."""
    return f64 if d == f64 else f32


def _words_of(d: DType, shape: Shape, *source: Any) -> Value:
    """Words as wide as numbers are drawn."""
    first, second = _words(shape, *source)
    if d != f64:
        return first
    high, low = (OPS.cast(word, u64) for word in (first, second))
    return OPS.bitwise_or(OPS.shift_left(high, 32), low)


@op()
def random_truncated_normal(shape: Shape, seed: Value, step: Value, stream: int = 0,
                            dtype: DType | str = "float32") -> Value:
    """Normally distributed numbers of mean 0 and deviation 1, none of which is beyond 2 in size.

    Args:
        shape: Shape of the result.
        seed: Seed: a uint32 tensor of shape `(2,)`.
        step: Number of the training step: a uint32 scalar. Each step gives new numbers.
        stream: Number of the stream. Give every use in a model its own. Default: `0`.
        dtype: Float dtype of the result. Default: `"float32"`.

    Returns:
        A tensor of this shape.

    Examples:
        >>> import ztorch as zt
        >>> seed, step = np.array([1, 2], np.uint32), np.array(0, np.uint32)
        >>> bool((abs(zt.ops.random_truncated_normal((1000,), seed, step)) <= 2.0).all())
        True
    """
    word = _words(shape, seed, step, stream)[0]
    sign = OPS.bitwise_and(word, 1 << 31)  # of the number that a word stands for; below are 31 bits
    size = OPS.mulhi(OPS.shift_left(word, 1), (1 << 31) - BEYOND_TWO)
    within = OPS.bitwise_or(OPS.add(size, BEYOND_TWO), sign)
    return OPS.cast(normals(within, f32), _float(dtype))


def _float(dtype: DType | str) -> DType:
    d = dtypes.dtype(dtype)
    if not d.is_float:
        raise shape_error(f"random numbers of {d} are not offered", fix="use a float dtype, or "
                          "ops.random_bits for whole words")
    return d
