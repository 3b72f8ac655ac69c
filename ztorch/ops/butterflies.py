"""Fourier transforms of few numbers, each of which is a tensor: the steps of long ones.

A complex number is a pair of tensors; the imaginary part of a real one is None. Multiplications by
1, -1 and i cost nothing, and those that conjugate results share are computed once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from ztorch.graph.value import Value

RADICES = (8, 7, 5, 4, 3, 2)  # larger ones need more registers than processors have

Number = tuple[Value, Value | None]


def butterfly(xs: Sequence[Number], inverse: bool) -> list[Number]:
    """The sums of `x[j] * exp(-2 pi i j k / n)` for n numbers, n in RADICES.

    Args:
        xs: The numbers.
        inverse: Whether the exponent is positive.
    """
    if len(xs) % 2 == 0:
        return _even(xs, 1 if inverse else -1)
    return _odd(xs, 1 if inverse else -1)


def _even(xs: Sequence[Number], sign: int) -> list[Number]:
    """Transforms of the numbers at even and at odd positions, joined."""
    if len(xs) == 1:
        return [*xs]
    evens, odds = _even(xs[::2], sign), _even(xs[1::2], sign)
    diagonal = math.sqrt(0.5)
    low, high = [], []
    for k, (x, y) in enumerate(zip(evens, odds, strict=True)):
        eighth = 8 * k // len(xs)  # of a turn
        if eighth == 0:
            pair = _sum(x, y), _difference(x, y)
        elif eighth == 2:
            pair = _turned(x, y, sign), _turned(x, y, -sign)
        elif eighth == 1:
            y = _scaled(_turned(y, y, sign), diagonal)
            pair = _sum(x, y), _difference(x, y)
        else:
            y = _scaled(_turned(y, y, -sign), diagonal)
            pair = _difference(x, y), _sum(x, y)
        low.append(pair[0])
        high.append(pair[1])
    return low + high


def _odd(xs: Sequence[Number], sign: int) -> list[Number]:
    """Numbers at positions j and n - j have conjugate factors: their sum is multiplied by the real
    part, their difference by the imaginary one."""
    n, first = len(xs), xs[0]
    pairs = [(xs[j], xs[n - j]) for j in range(1, n // 2 + 1)]
    sums = [_sum(x, y) for x, y in pairs]
    differences = [_difference(x, y) for x, y in pairs]
    low, high = [functools.reduce(_sum, sums, first)], []
    for k in range(1, n // 2 + 1):
        angles = [2 * math.pi * (j * k % n) / n for j in range(1, n // 2 + 1)]
        even = functools.reduce(
            _sum, (_scaled(x, math.cos(a)) for x, a in zip(sums, angles, strict=True)), first)
        odd = functools.reduce(
            _sum, (_scaled(x, math.sin(a)) for x, a in zip(differences, angles, strict=True)))
        low.append(_turned(even, odd, sign))
        high.append(_turned(even, odd, -sign))
    return low + high[::-1]


def _sum(x: Number, y: Number) -> Number:
    return x[0] + y[0], _plus(x[1], y[1])


def _difference(x: Number, y: Number) -> Number:
    return x[0] - y[0], _minus(x[1], y[1])


def _turned(x: Number, y: Number, sign: int) -> Number:
    """x + i y, or x - i y."""
    real, imag = (_minus, _plus) if sign > 0 else (_plus, _minus)
    first = real(x[0], y[1])
    assert first is not None
    return first, imag(x[1], y[0])


def _scaled(x: Number, factor: float) -> Number:
    return x[0] * factor, None if x[1] is None else x[1] * factor


def _plus(x: Value | None, y: Value | None) -> Value | None:
    return x if y is None else y if x is None else x + y


def _minus(x: Value | None, y: Value | None) -> Value | None:
    return x if y is None else -y if x is None else x - y
