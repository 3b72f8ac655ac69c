"""The meaning of scalar opcodes on NumPy arrays, where NumPy itself has no function."""

from __future__ import annotations

from math import erf as scalar_erf
from typing import Any

import numpy as np

from ztorch.dtypes import ALL, DType, from_storage, to_storage


def divide(a: Any, b: Any) -> Any:
    """Integers truncate towards zero; a / 0 is 0, and the least number / -1 wraps to itself."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "f":
        return np.divide(a, b)
    safe = np.where(b == 0, 1, b)
    quotient = np.abs(a // safe) if a.dtype.kind == "u" else _truncated(a, safe)
    return np.where(b == 0, 0, quotient).astype(a.dtype)


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # the least number / -1 wraps
        q, r = a // b, a % b
    return q + ((r != 0) & ((a < 0) != (b < 0)))


def remainder(a: Any, b: Any) -> Any:
    """The remainder of `divide`, with the sign of a; a rem 0 is a."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    return (a - divide(a, b) * b).astype(a.dtype)


def fma(a: Any, b: Any, c: Any) -> Any:
    """One rounding: exact for float32 and narrower up to double rounding; split for float64."""
    a = np.asarray(a)
    wide = np.float64 if a.dtype.kind == "f" else a.dtype
    exact = a.astype(wide) * np.asarray(b).astype(wide) + np.asarray(c).astype(wide)
    return exact.astype(a.dtype)


def cast(x: Any, dtype: DType) -> Any:
    """Float to integer saturates and takes NaN to zero; integers wrap; anything to bool is != 0."""
    x = np.asarray(x)
    if dtype.kind == "b":
        return x != 0
    if x.dtype.kind == "f" and dtype.is_int:
        info = np.iinfo(dtype.numpy)
        truncated = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0)
        inside = (truncated > float(info.min)) & (truncated < float(info.max))
        clipped = np.where(inside, truncated, 0.0).astype(dtype.numpy)
        least, most = (np.array(n, dtype.numpy) for n in (info.min, info.max))
        return np.where(inside, clipped, np.where(truncated > 0, most, least))
    return x.astype(dtype.working)


def raw_divide(a: Any, b: Any) -> Any:
    """Wrong for divisors of 0, and for the least number by -1."""
    return _wrong_where(_undivided(a, b), divide(a, b))


def raw_remainder(a: Any, b: Any) -> Any:
    """Wrong where `raw_divide` is."""
    return _wrong_where(_undivided(a, b), remainder(a, b))


def _undivided(a: Any, b: Any) -> Any:
    """The operands for which machines trap."""
    a, b = np.asarray(a), np.asarray(b)
    least = np.iinfo(a.dtype).min
    return (b == 0) | ((a == least) & (b == -1)) if least else b == 0


def raw_cast(x: Any, dtype: DType) -> Any:
    """Wrong for NaN and for numbers out of range."""
    truncated, info = np.trunc(np.asarray(x).astype(np.float64)), np.iinfo(dtype.numpy)
    inside = (truncated >= float(info.min)) & (truncated < float(info.max) + (dtype.bits < 64))
    return _wrong_where(~inside, cast(x, dtype))


def raw_exp2(a: Any) -> Any:
    """Without subnormal numbers."""
    y = np.exp2(a)
    return np.where(y < np.finfo(y.dtype).tiny, np.zeros_like(y), y)


def raw_reciprocal(a: Any) -> Any:
    """Without subnormal numbers."""
    a = np.asarray(a)
    least = np.finfo(a.dtype).tiny
    with np.errstate(divide="ignore"):
        y = np.reciprocal(np.where(np.abs(a) < least, np.copysign(np.zeros_like(a), a), a))
    return np.where(np.abs(y) < least, np.copysign(np.zeros_like(y), y), y)


def _parts(a: Any) -> tuple[Any, Any]:
    """m and k of |a| = m * 2 ** k with m from 3/4 to 3/2."""
    a = np.abs(a)
    m, k = np.frexp(np.where(np.isfinite(a) & (a != 0), a, np.ones_like(a)))
    below = m < 0.75
    return np.where(below, m * 2, m), k - below


def exponent(a: Any) -> Any:
    """The logarithm where that is not finite: of zero, infinity, negative numbers and NaN."""
    a = np.asarray(a)
    k = np.where(np.isinf(a), np.abs(a), _parts(a)[1])
    k = np.where(a == 0, -np.inf, np.where(a > 0, k, np.nan))
    return k.astype(a.dtype)


def significand(a: Any) -> Any:
    """1 where the number has no digits."""
    a = np.asarray(a)
    return np.where(np.isnan(a), a, _parts(a)[0]).astype(a.dtype)


def _wrong_where(undefined: Any, result: Any) -> Any:
    """The result with wrong bits where it is undefined: the complement, which is never correct."""
    return np.where(undefined, ~result, result)


def mulhi(a: Any, b: Any) -> Any:
    """The upper half of the product, in Python's own numbers."""
    a = np.asarray(a)
    wide = (a.astype(object) * np.asarray(b).astype(object)) >> (a.dtype.itemsize * 8)
    return np.asarray(wide).astype(a.dtype)


def bitcast(x: Any, dtype: DType) -> Any:
    """The same bits as another dtype."""
    x = np.asarray(x)
    if dtype.bits < 32 and x.dtype == np.float32:  # values of a float that NumPy lacks
        x = to_storage(next(d for d in ALL if d.codes and d.bits == dtype.bits), x)
    return from_storage(dtype, x.view(dtype.numpy))


def erf(x: Any) -> Any:
    """By the C library, in double precision."""
    x = np.asarray(x)
    values = np.fromiter(map(scalar_erf, x.ravel().tolist()), np.float64, x.size)
    return values.reshape(x.shape).astype(x.dtype)
