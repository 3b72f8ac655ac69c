"""Normally distributed numbers from random words, bit-identical on every device.

Logarithms and sines differ between devices, and some devices fuse products with sums. So the
inverse of the distribution function is a polynomial in integers: a word is a probability; the
position of its first bit and the next four bits select a polynomial, the others are its argument.
Only the last step produces floats, from integers that a float can hold, with one rounding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ztorch.dtypes import DType, f32, f64, i32, u32
from ztorch.graph.batching import refused
from ztorch.graph.op import constant
from ztorch.graph.value import Op, Value
from ztorch.ir import meanings

PARTS = 4  # bits: polynomials between a probability and its half, as a power of two

# pi times 10 ** 89, then in binary.
_PI = 314159265358979323846264338327950288419716939937510582097494459230781640628620899862803483
_PI = (_PI << 340) // 10**89  # scaled by 2 ** 340, more digits than are needed


class _Precision(NamedTuple):
    """How to compute the numbers of a float dtype."""

    bits: int  # of a word
    point: int  # fractional bits of a result; the others hold the largest number
    terms: int  # of a polynomial: the error is below one unit of the result
    series: int  # terms of the Taylor series from which the polynomials are computed
    digits: int  # fractional bits of its coefficients


_PRECISIONS = {f32: _Precision(32, 29, 5, 16, 112), f64: _Precision(64, 60, 10, 31, 192)}


@functools.cache
def polynomials(d: DType) -> np.ndarray:
    """The coefficients for a float dtype, one row per polynomial, as integers scaled by `2 **
    point`. They are computed with integers, so they are the same on every machine.

    As a function of the probability u, the quantile x satisfies x'' = x x'^2. So its Taylor series
    at the upper end of a part follows from x and x' there, and its value and slope at the lower end
    are the x and x' of the next part. The first part starts at u = 1/2, where x = 0 and x' = sqrt(2
    pi). The argument s is 0 at the upper end and 1 at the lower one, so all coefficients are
    positive.
    """
    own = _PRECISIONS[d]
    rows = np.zeros((own.bits << PARTS, own.terms), f"u{own.bits // 8}")
    x = 0
    slope = math.isqrt((2 * _PI << 2 * own.digits) >> 340) >> (2 + PARTS)
    shift = own.digits - own.point
    for octave in range(own.bits):
        for part in reversed(range(1 << PARTS)):
            series = _series(x, slope, own)
            terms = _economized(series, own.terms)  # rounded up, because products are rounded down
            rows[(octave << PARTS) + part] = [max(0, -(-c >> shift)) for c in terms]
            x, slope = sum(series), sum(n * c for n, c in enumerate(series))
        slope >>= 1  # parts of the next octave are half as long
    return rows


def _series(x: int, slope: int, own: _Precision) -> list[int]:
    """The Taylor series of x as a function of s, from its first two terms."""
    terms, slopes, squares = [x, slope], [slope], []
    for n in range(own.series - 2):
        squares.append(sum(map(int.__mul__, slopes, reversed(slopes))) >> own.digits)
        product = sum(map(int.__mul__, terms, reversed(squares))) >> own.digits
        terms.append(product // ((n + 1) * (n + 2)))
        slopes.append((n + 2) * terms[-1])
    return terms


def _economized(series: list[int], count: int) -> list[int]:
    """A polynomial with fewer terms that is nearly optimal from 0 to 1: multiples of Chebyshev
    polynomials are subtracted, from the last term on."""
    terms = list(series)
    while len(terms) > count:
        chebyshev = _chebyshev(len(terms) - 1)
        last = terms.pop()
        terms = [c - last * t // chebyshev[-1] for c, t in zip(terms, chebyshev, strict=False)]
    return terms


@functools.cache
def _chebyshev(n: int) -> list[int]:
    """The coefficients of the Chebyshev polynomial cos(n arccos(2 s - 1)).

    >>> _chebyshev(2)
    [1, -8, 8]
    """
    if n < 2:
        return [[1], [-1, 2]][n]
    last, earlier = _chebyshev(n - 1), [*_chebyshev(n - 2), 0, 0]
    return [4 * b - 2 * a - c for a, b, c in zip([*last, 0], [0, *last], earlier, strict=True)]


def _normal(o: Any, word: Any, d: DType, words: Callable[[Any], Sequence[Any]]) -> Any:
    """The normally distributed number for a random word.

    Args:
        o: Namespace of operations, so that NumPy and a kernel builder run the same code.
        word: Random unsigned integers.
        d: The dtype of the result.
        words: Reads the words of a row of the table.
    """
    own = _PRECISIONS[d]
    odd = o.or_(o.shl(word, 1), 1)  # the probability, without the sign; never 0
    row = _leading_zeros(o, odd, own.bits)
    odd = o.shl(odd, row)
    row = o.add(o.shl(row, PARTS), o.shr(o.shl(odd, 1), own.bits - PARTS))
    argument = o.xor(o.shl(odd, 1 + PARTS), (1 << own.bits) - 1)
    *terms, total = _coefficients(o, words(row), d)
    for term in reversed(terms):
        total = o.add(term, o.mulhi(total, argument))
    half = own.bits // 2
    high, low = o.shr(total, half), o.and_(total, (1 << half) - 1)
    size = o.add(o.mul(o.cast(high, dtype=d), 2.0 ** (half - own.point)),
                 o.mul(o.cast(low, dtype=d), 2.0**-own.point))
    return o.select(o.lt(word, 1 << (own.bits - 1)), size, o.neg(size))


def _leading_zeros(o: Any, word: Any, bits: int) -> Any:
    """The number of zeros above the first bit of odd words."""
    if bits == 32:
        # The exponent of a float is the position of its first bit. No second bit follows the first,
        # so that rounding keeps it; without the last bit, the word is a signed number.
        half = o.shr(word, 1)
        number = o.cast(o.bitcast(o.and_(half, o.not_(o.shr(half, 1))), dtype=i32), dtype=f32)
        return o.min(o.sub(157, o.shr(o.bitcast(number, dtype=u32), 23)), 31)
    zeros, step = o.and_(word, 0), bits // 2
    while step:
        small = o.lt(word, 1 << (bits - step))
        word = o.select(small, o.shl(word, step), word)
        zeros = o.select(small, o.add(zeros, step), zeros)
        step //= 2
    return zeros


_NUMPY = SimpleNamespace(
    add=np.add, mul=np.multiply, neg=np.negative, xor=np.bitwise_xor, or_=np.bitwise_or,
    and_=np.bitwise_and, not_=np.invert, shl=np.left_shift, shr=np.right_shift, lt=np.less,
    min=np.minimum, sub=np.subtract, select=np.where, mulhi=meanings.mulhi,
    cast=lambda x, dtype: x.astype(dtype.numpy), bitcast=lambda x, dtype: x.view(dtype.numpy))


@functools.cache
def _table(d: DType) -> np.ndarray:
    """The coefficients for a float dtype as kernels read them. Those of float32 fit in four words,
    which are read at once: the last two share a word."""
    rows = polynomials(d)
    if d is f64:
        return rows
    return np.ascontiguousarray(np.column_stack([rows[:, :3], rows[:, 3] | rows[:, 4] << 16]))


def _coefficients(o: Any, words: Sequence[Any], d: DType) -> list[Any]:
    """The coefficients from the words of a row of the table."""
    if d is f64:
        return [*words]
    return [*words[:3], o.and_(words[3], 0xFFFF), o.shr(words[3], 16)]


def _numpy(word: Any, table: Any, of: DType) -> Any:
    def words(row: Any) -> list[Any]:
        return [*np.moveaxis(np.asarray(table)[row.astype(np.int64)], -1, 0)]

    return _normal(_NUMPY, np.asarray(word), of, words)


def _body(e: Any, index: Any, of: DType) -> Any:
    def words(row: Any) -> list[Any]:
        rows, count = e.shape(1)
        at = e.index(e.b.cast(row, dtype=i32), rows)
        return [e.read(1, (at, k)) for k in range(count)]

    return _normal(e.b, e.read(0, index), of, words)


_NORMAL = Op("normal_of_word", "map", lambda word, table, of: (word.shape, of), _numpy,
             body=_body, cost=60, batch=refused)


def shares_below(o: Any, words: Any, d: DType) -> Any:
    """How much of the normal distribution is below the number for each random word: uniformly
    distributed, from above 0 to 1.

    Args:
        o: Namespace of ops, of tensors or of values.
        words: Random words of 32 or 64 bits.
        d: Dtype of the result.
    """
    bits = words.dtype.bits
    signed = f"int{bits}"  # processors convert these at once
    size = o.bitcast(o.bitwise_and(words, (1 << bits - 1) - 1), signed)
    tail = (o.cast(size, d) + 0.5) * 2.0**-bits
    return o.where(o.less(o.bitcast(words, signed), 0), tail, 1.0 - tail)


def normals(words: Value, d: DType) -> Value:
    """The normally distributed numbers for random words.

    Args:
        words: Random words with the width of the dtype.
        d: float32 or float64.
    """
    return _NORMAL(words, constant(_table(d)), of=d)
