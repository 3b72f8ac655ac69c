"""The right answer of every scalar opcode, in plain Python numbers, independent of NumPy."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ztorch.dtypes import DType

PRECISION = {"f16": (11, 15), "bf16": (8, 127), "f32": (24, 127), "f64": (53, 1023)}
INF, NAN = math.inf, math.nan


def ulp(d: DType, x: float) -> float:
    """The distance of neighbors around x."""
    digits, largest = PRECISION[d.name]
    exponent = math.frexp(x)[1] - 1 if x else -largest
    return math.ldexp(1.0, max(exponent, 1 - largest) - digits + 1)


def rounded(d: DType, x: float | Fraction) -> float:
    """The nearest number of a float dtype, ties to even, infinity beyond the largest."""
    if isinstance(x, float) and (x == 0 or not math.isfinite(x)):
        return x
    digits, largest = PRECISION[d.name]
    size = abs(Fraction(x))
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, 1 - largest) - digits + 1)
    near = round(size / quantum) * quantum
    value = INF if near >= Fraction(2) ** (largest + 1) else float(near)
    return math.copysign(value, -1.0 if x < 0 else 1.0)


def fit(d: DType, x: Any) -> Any:
    """x as a number of dtype d: rounded, wrapped or true."""
    if d.is_float:
        return rounded(d, x)
    if d.kind == "b":
        return bool(x)
    x &= (1 << d.bits) - 1
    return x - (1 << d.bits) if d.kind == "s" and x >> (d.bits - 1) else x


def cast(x: Any, source: DType, target: DType) -> Any:
    if source.is_float and target.is_int:
        low = -(1 << (target.bits - 1)) if target.kind == "s" else 0
        high = low + (1 << target.bits) - 1
        if math.isnan(x):
            return 0
        return (high if x > 0 else low) if math.isinf(x) else min(max(int(x), low), high)
    if target.is_float:
        return rounded(target, x if isinstance(x, float) else Fraction(int(x)) if x else 0.0)
    return fit(target, x != 0 if target.kind == "b" else int(x))


def bits(x: Any, d: DType) -> int:
    """The bytes of a number of dtype d."""
    if d.name == "bf16":
        return int(struct.unpack("<I", struct.pack("<f", x))[0]) >> 16
    if d.is_float:
        code = {16: "<e", 32: "<f", 64: "<d"}[d.bits]
        return int.from_bytes(struct.pack(code, x), "little")
    return int(x) & ((1 << d.bits) - 1)


def from_bits(x: int, d: DType) -> Any:
    if d.name == "bf16":
        return struct.unpack("<f", struct.pack("<I", x << 16))[0]
    if d.is_float:
        return struct.unpack({16: "<e", 32: "<f", 64: "<d"}[d.bits], x.to_bytes(d.bytes, "little"))[0]
    return fit(d, x)


def _div(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if b == 0:
        sign = math.copysign(1.0, a) * math.copysign(1.0, b)
        return NAN if a == 0 or math.isnan(a) else sign * INF
    return a / b


def _rem(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return a - _div(a, b) * b
    return NAN if b == 0 or math.isinf(a) or math.isnan(a + b) else math.fmod(a, b)


def _fma(a: float, b: float, c: float) -> float | Fraction:
    if all(map(math.isfinite, (a, b, c))):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        return exact if exact else a * b + c
    return a * b + c


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: NAN if any(map(math.isnan, (a, b))) else pick(a, b)


def _whole(how: Callable[[float], int]) -> Callable[[float], float]:
    return lambda a: math.copysign(float(how(a)), a) if math.isfinite(a) else a


def _total(function: Callable[..., float], *poles: tuple[float, float]) -> Callable[..., float]:
    """A function of `math` that answers instead of raising."""
    def answer(*x: float) -> float:
        for at, value in poles:
            if x[0] == at:
                return value
        try:
            return function(*x)
        except OverflowError:
            return INF
        except ValueError:
            return NAN
    return answer


def _pow(a: float, b: float) -> float:
    odd = math.isfinite(b) and b == int(b) and int(b) % 2 == 1
    if a == 0 and b < 0:
        return math.copysign(INF, a) if odd else INF
    try:
        return math.pow(a, b)
    except OverflowError:
        return -INF if a < 0 and odd else INF
    except ValueError:
        return NAN


def _rsqrt(a: float) -> float:
    return math.copysign(INF, a) if a == 0 else NAN if a < 0 else 1 / math.sqrt(a)


EXACT: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": _div, "rem": _rem, "fma": _fma, "neg": lambda a: -a, "abs": abs,
    "min": _extreme(min), "max": _extreme(max),
    "round": _whole(round), "floor": _whole(math.floor), "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc), "sqrt": _total(math.sqrt),
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "select": lambda c, a, b: a if c else b,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "not": lambda a: not a if isinstance(a, bool) else ~a,
    "shl": lambda a, b: a << b, "shr": lambda a, b: a >> b,
}
NEAR: dict[str, Callable[..., float]] = {
    "rsqrt": _rsqrt, "exp": _total(math.exp), "exp2": _total(lambda a: math.pow(2.0, a)),
    "expm1": _total(math.expm1), "log": _total(math.log, (0.0, -INF)),
    "log2": _total(math.log2, (0.0, -INF)), "log1p": _total(math.log1p, (-1.0, -INF)),
    "tanh": math.tanh, "erf": math.erf, "sin": _total(math.sin), "cos": _total(math.cos),
    "atan": math.atan,
    "pow": _pow,
}
"""Opcodes that are good to a few units in the last place."""
