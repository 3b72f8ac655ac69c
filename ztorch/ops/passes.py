"""Fourier transforms of lengths with small factors, in a few passes over all numbers.

A pass transforms groups of a few numbers (`butterflies.py`), and turns the results for the next
one. The vectors of a processor lie along other axes: the numbers of a row are a matrix whose
columns are transformed first. Its transpose has the rows as columns, and their transforms come out
in order.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.ops.butterflies import RADICES, Number, butterfly
from ztorch.ops.convolution import ROWS

Complex = tuple[Value, Value]  # real and imaginary part

# The most elements of a row for which turns are spread to vectors, which are read where they are
# used. For longer rows each is read once, to a register.
SPREAD_WIDTH = 64


def transform_in_passes(real: Value, imag: Value | None, inverse: bool) -> Complex:
    """The transform along the last axis, whose length has only small factors, without a scale."""
    n = real.shape[-1]
    rows = _rows(n)
    shape = (*real.shape[:-1], rows, n // rows)
    matrix = (OPS.reshape(real, shape), None if imag is None else OPS.reshape(imag, shape))
    turns = powers(n, np.outer(np.arange(rows), np.arange(n // rows)), inverse)
    columns = transform_columns(matrix, inverse, turns)
    transpose = [ROWS(OPS.swapaxes(x, -1, -2)) for x in columns]
    y, z = transform_columns((transpose[0], transpose[1]), inverse)
    return OPS.reshape(y, real.shape), OPS.reshape(z, real.shape)


def transform_columns(x: Number, inverse: bool, turns: np.ndarray | None = None) -> Complex:
    """The transform along the last axis but one, whose length has only small factors.

    Args:
        x: The tensor; its imaginary part is `None` for real numbers.
        inverse: Whether the exponent is positive.
        turns: Factors of the result, of the shape of its last two axes. `None` means 1.
            Default: `None`.
    """
    *outer, n, width = x[0].shape
    done = 1  # the product of the factors so far
    for radix in radices_of(n):
        x = _pass(x, radix, inverse, turns if radix * done == n else None)
        done *= radix
    y, z = (OPS.reshape(part, (*outer, n, width)) for part in x if part is not None)
    return y, z


def _pass(x: Number, radix: int, inverse: bool, turns: np.ndarray | None) -> Number:
    """A step of a transform along the last axis but one, of n elements: groups of numbers that are
    n / radix apart become neighbors, which join the last axis."""
    *outer, n, width = x[0].shape
    rest = n // radix
    groups = [None if part is None else OPS.reshape(part, (*outer, radix, rest, width))
              for part in x]
    numbers = [tuple(None if part is None else part[..., j, :, :] for part in groups)
               for j in range(radix)]
    results = butterfly(numbers, inverse)  # type: ignore[arg-type]
    for k, y in enumerate(results):
        if rest > 1 and k:
            turn = powers(n, k * np.arange(rest), inverse)[:, None]
            results[k] = times(y, turn if width > SPREAD_WIDTH else np.repeat(turn, width, 1))
        elif turns is not None:
            own = len(turns) // radix
            results[k] = times(y, turns[k * own:(k + 1) * own].reshape(1, -1))
    parts = [[OPS.expand_dims(OPS.zeros_like(y[0]) if part is None else part, -2)
              for y in results for part in y[i:i + 1]] for i in range(2)]
    y, z = (OPS.reshape(OPS.concat(*part, axis=-2), (*outer, rest, radix * width))
            for part in parts)
    return y, z


def times(x: Number, factor: np.ndarray) -> Complex:
    """The complex product of a pair with constant complex numbers."""
    d = x[0].dtype
    cosine, sine = (OPS.broadcast_to(constant(np.ascontiguousarray(part), d), x[0].shape)
                    for part in (factor.real, factor.imag))
    if x[1] is None:
        return x[0] * cosine, x[0] * sine
    return x[0] * cosine - x[1] * sine, x[0] * sine + x[1] * cosine


# -- factors ---------------------------------------------------------------------------------------


@functools.cache
def radices_of(n: int) -> tuple[int, ...]:
    """The factors of the fewest passes, and of these the smallest; none if n has other factors.

    >>> radices_of(1024), radices_of(360), radices_of(33)
    ((8, 8, 4, 4), (8, 5, 3, 3), ())
    """
    if n in RADICES:
        return n,
    ways = [(first, *rest) for first in RADICES
            if n % first == 0 and (rest := radices_of(n // first))]
    return min(ways, key=lambda way: (len(way), sum(way)), default=())


@functools.cache
def _rows(n: int) -> int:
    """The number of rows of the matrix that a length is laid out in: of those that take the fewest
    passes the one that is nearest to a square, with at least as many columns.

    >>> _rows(1024), _rows(512), _rows(360)
    (32, 8, 15)
    """
    rows = [k for k in range(2, math.isqrt(n) + 1) if n % k == 0]
    return min(rows, key=lambda k: (len(radices_of(k)) + len(radices_of(n // k)), -k))


@functools.cache
def roots(n: int) -> np.ndarray:
    """exp(-2 pi i k / n) for each k, each part rounded once. Angles are reduced to the first eighth
    of a turn, so that exact values (0 and 1) are exact."""
    k = np.arange(n)
    quarter, rest = np.divmod(4 * k, n)  # turns of a quarter, and 4n-ths of a turn beyond
    mirrored = 2 * rest > n
    angle = np.where(mirrored, n - rest, rest) * (math.pi / (2 * n))
    cosine, sine = np.cos(angle), np.sin(angle)
    cosine, sine = np.where(mirrored, sine, cosine), np.where(mirrored, cosine, sine)
    return np.choose(quarter, [cosine - 1j * sine, -sine - 1j * cosine,
                               -cosine + 1j * sine, sine + 1j * cosine])


def powers(n: int, exponents: np.ndarray, inverse: bool) -> np.ndarray:
    """exp(-2 pi i k / n) for each exponent k, or the conjugates for an inverse transform."""
    w = roots(n)[exponents % n]
    return w.conj() if inverse else w
