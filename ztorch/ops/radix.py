"""The discrete Fourier transform along the last axis.

A complex tensor is a pair of real ones. A length of small factors takes a few elementwise passes
(`passes.py`). Another one is split into factors of up to 32 (Cooley and Tukey's mixed radix): each
is a product with a small constant matrix, with turns between them. A length with a large prime
factor becomes a convolution of a power of two (Bluestein).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.ops.passes import Complex, powers, radices_of, times, transform_in_passes

RADIX = 32  # largest product of factors that is one matrix: larger ones are more work per element
DIRECT = 128  # largest prime that is a matrix of its own; beyond it, Bluestein is less work


def transform(real: Value, imag: Value | None, inverse: bool) -> Complex:
    """The sums of `x[j] * exp(-2 pi i j k / n)` along the last axis, without a scale.

    Args:
        real: Real part.
        imag: Imaginary part; `None` for real numbers, which halves the first product.
        inverse: Whether the exponent is positive.
    """
    args = [real] if imag is None else [real, imag]

    def slopes(upstreams: Sequence[Value], args: Sequence[Value],
               shared: Sequence[Value]) -> list[Value]:
        return [*transform(upstreams[0], upstreams[1], not inverse)[:len(args)]]

    parts = [OPS.stop_gradient(x) for x in args]
    y, z = with_gradient(_transform(parts[0], None if imag is None else parts[1], inverse), args,
                         [], slopes)
    return y, z


def _transform(real: Value, imag: Value | None, inverse: bool) -> Complex:
    n = real.shape[-1]
    if n > RADIX and radices_of(n):
        return transform_in_passes(real, imag, inverse)
    first = first_factor(n)
    if n > 1 and first == n and n > DIRECT:
        return _bluestein(real, imag, inverse)
    if first == n:
        return _product(real, imag, inverse)
    second = n // first
    parts = [None if x is None else OPS.swapaxes(OPS.reshape(x, (*x.shape[:-1], first, second)),
                                                 -1, -2) for x in (real, imag)]
    assert parts[0] is not None
    turned = times(_transform(parts[0], parts[1], inverse), _turns(n, first, inverse))
    rows = [OPS.swapaxes(x, -1, -2) for x in turned]
    columns = [OPS.swapaxes(x, -1, -2) for x in _transform(rows[0], rows[1], inverse)]
    y, z = (OPS.reshape(x, real.shape) for x in columns)
    return y, z


@functools.cache
def first_factor(n: int) -> int:
    """The factor of a length that is transformed first; the length itself if it stays whole.

    Of all divisors up to RADIX it is the one that leaves the fewest and most equal products.

    >>> first_factor(1024), first_factor(60), first_factor(101), first_factor(2 * 1009)
    (32, 6, 101, 2)
    """
    if n <= RADIX:
        return n
    divisors = [k for k in range(2, RADIX + 1) if n % k == 0]
    if not divisors:
        prime = next(k for k in range(3, n + 1, 2) if n % k == 0)
        return prime if prime <= DIRECT else n
    return min(divisors, key=lambda k: (_stages(n // k), k + _work(n // k)))


@functools.cache
def _stages(n: int) -> int:
    """How many products a length takes."""
    first = first_factor(n)
    return 1 if first == n else 1 + _stages(n // first)


@functools.cache
def _work(n: int) -> int:
    """The sum of the factors of a length."""
    first = first_factor(n)
    return n if first == n else first + _work(n // first)


def _turns(n: int, first: int, inverse: bool) -> np.ndarray:
    """The twiddle factors between two factors: one for each element of the second and the first."""
    return powers(n, np.outer(np.arange(n // first), np.arange(first)), inverse)


@functools.cache
def _matrix(n: int, inverse: bool) -> np.ndarray:
    """The transform of `[real, imag]` as one real matrix of 2n columns."""
    w = powers(n, np.outer(np.arange(n), np.arange(n)), inverse)
    return np.block([[w.real, w.imag], [-w.imag, w.real]])


def _product(real: Value, imag: Value | None, inverse: bool) -> Complex:
    n, d = real.shape[-1], real.dtype
    matrix = _matrix(n, inverse)[:n if imag is None else 2 * n]
    x = real if imag is None else OPS.concat(real, imag, axis=-1)
    y = OPS.matmul(OPS.reshape(x, (-1, x.shape[-1])), constant(matrix, d))
    y = OPS.reshape(y, (*real.shape[:-1], 2 * n))
    return y[..., :n], y[..., n:]


def _bluestein(real: Value, imag: Value | None, inverse: bool) -> Complex:
    """A transform of any length as a convolution: jk = (j^2 + k^2 - (k - j)^2) / 2."""
    n = real.shape[-1]
    wide = 1 << (2 * n - 2).bit_length()
    chirp = powers(2 * n, np.array([k * k % (2 * n) for k in range(n)]), inverse)
    kernel = np.zeros(wide, complex)
    kernel[:n] = chirp.conj()
    kernel[wide - n + 1:] = chirp[:0:-1].conj()
    spectrum = np.fft.fft(kernel) / wide
    x = times((real, imag), chirp)
    none, more = (0,) * real.rank, (*(0,) * (real.rank - 1), wide - n)
    x = tuple(OPS.pad(part, none, more) for part in x)
    y = _transform(*times(_transform(*x, False), spectrum), True)
    return times((y[0][..., :n], y[1][..., :n]), chirp)
