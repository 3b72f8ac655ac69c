"""Fourier transforms of real numbers, and back, in half the work.

The numbers at even and at odd positions are the parts of complex ones. The transform of these, of
half the length, is the sum of two, which its symmetries take apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ztorch.graph.custom import with_gradient
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.ops.passes import Complex, powers, times
from ztorch.ops.radix import RADIX, transform


def transform_of_real(x: Value) -> Complex:
    """The first n // 2 + 1 elements of the transform of n real numbers along the last axis."""
    n = x.shape[-1]

    def slopes(upstreams: Sequence[Value], args: Sequence[Value],
               shared: Sequence[Value]) -> list[Value]:
        real, imag = (OPS.multiply(g, _row(1 / _counts(n), g)) for g in upstreams)
        return [real_inverse(real, imag, n)]

    y, z = with_gradient(_transform_of_real(OPS.stop_gradient(x)), [x], [], slopes)
    return y, z


def _transform_of_real(x: Value) -> Complex:
    n = x.shape[-1]
    half = n // 2
    if n % 2 or n <= RADIX:
        real, imag = transform(x, None, inverse=False)
        return real[..., :half + 1], imag[..., :half + 1]
    pair = transform(x[..., ::2], x[..., 1::2], inverse=False)
    # The elements k and n / 2 - k of a transform, which has a period of n / 2.
    y, z = (OPS.concat(part, part[..., :1], axis=-1) for part in pair)
    back, forth = (OPS.concat(part[..., :1], OPS.flip(part, -1), axis=-1) for part in pair)
    turned = times((y - back, z + forth), -0.5j * powers(n, np.arange(half + 1), False))
    return (y + back) * 0.5 + turned[0], (z - forth) * 0.5 + turned[1]


def real_inverse(real: Value, imag: Value, n: int) -> Value:
    """n real numbers from the first n // 2 + 1 elements of their transform, times n. The imaginary
    parts of elements that are their own conjugates count as zero."""

    def slopes(upstreams: Sequence[Value], args: Sequence[Value],
               shared: Sequence[Value]) -> list[Value]:
        return [OPS.multiply(g, _row(_counts(n), g)) for g in transform_of_real(upstreams[0])]

    [y] = with_gradient([_real_inverse(OPS.stop_gradient(real), OPS.stop_gradient(imag), n)],
                        [real, imag], [], slopes)
    return y


def _real_inverse(real: Value, imag: Value, n: int) -> Value:
    half = n // 2
    imag = OPS.where(constant(_counts(n) == 2, "bool"), imag, 0.0)
    if n % 2 or n <= RADIX:
        last = (n + 1) // 2  # the elements from 1 to below it have a conjugate
        real = OPS.concat(real, OPS.flip(real[..., 1:last], -1), axis=-1)
        imag = OPS.concat(imag, -OPS.flip(imag[..., 1:last], -1), axis=-1)
        return transform(real, imag, inverse=True)[0]
    y, z = real[..., :half], imag[..., :half]
    back, forth = OPS.flip(real[..., 1:], -1), OPS.flip(imag[..., 1:], -1)
    turned = times((y - back, z + forth), 1j * powers(n, np.arange(half), True))
    y, z = transform(y + back + turned[0], z - forth + turned[1], inverse=True)
    return OPS.reshape(OPS.stack(y, z, axis=-1), (*y.shape[:-1], n))


def _counts(n: int) -> np.ndarray:
    """How many elements of a transform of real numbers each of the first n // 2 + 1 stands for:
    itself, and its conjugate if that is another."""
    k = np.arange(n // 2 + 1)
    return np.where((k == 0) | (2 * k == n), 1.0, 2.0)


def _row(numbers: np.ndarray, like: Value) -> Value:
    return OPS.broadcast_to(constant(numbers, like.dtype), like.shape)
