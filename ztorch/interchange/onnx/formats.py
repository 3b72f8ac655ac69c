"""Formats that ONNX has and we do not compute in: floats of 4, 6, 8 bits, integers of 2 and 4.

Tensors of them are codes: the bits of a float as uint8, the value of an integer as int8 or uint8.
They are converted from and to, and moved about.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from ztorch.dtypes import DType, i8, u8


@dataclass(frozen=True)
class CodeFormat:
    """A format of few bits."""

    name: str  # as ONNX and ml_dtypes write it
    number: int  # in ONNX files
    bits: int
    holds: DType  # of the codes
    exponent: int = 0  # bits of the exponent; 0 for integers
    bias: int = 0  # of the exponent
    top: int = 0  # the code of the largest finite number; the next code is infinity or NaN
    has_infinity: bool = False
    nan: int = 0  # code that NaN becomes
    has_nan: bool = True  # whether that code is NaN, not a number
    signed: bool = True

    @property
    def is_float(self) -> bool:
        return self.exponent > 0

    @property
    def has_negative_zero(self) -> bool:
        """Whether zero has a sign; else that code is NaN."""
        return self.signed and not (self.has_nan and self.nan == 1 << (self.bits - 1))

    @property
    def lowest(self) -> int:
        """The smallest integer."""
        return -(1 << (self.bits - 1)) if self.holds is i8 else 0

    @property
    def highest(self) -> int:
        """The largest integer."""
        return (1 << (self.bits - (self.holds is i8))) - 1


FORMATS = {f.number: f for f in (
    CodeFormat("float8e4m3fn", 17, 8, u8, 4, 7, 0x7E, nan=0x7F),
    CodeFormat("float8e4m3fnuz", 18, 8, u8, 4, 8, 0x7F, nan=0x80),
    CodeFormat("float8e5m2", 19, 8, u8, 5, 15, 0x7B, True, 0x7E),
    CodeFormat("float8e5m2fnuz", 20, 8, u8, 5, 16, 0x7F, nan=0x80),
    CodeFormat("uint4", 21, 4, u8),
    CodeFormat("int4", 22, 4, i8),
    CodeFormat("float4e2m1", 23, 4, u8, 2, 1, 0x7, nan=0x8, has_nan=False),
    CodeFormat("float8e8m0", 24, 8, u8, 8, 127, 0xFE, nan=0xFF, signed=False),
    CodeFormat("uint2", 25, 2, u8),
    CodeFormat("int2", 26, 2, i8),
    CodeFormat("float6e2m3", 27, 6, u8, 2, 1, 0x1F, nan=0x20, has_nan=False),
    CodeFormat("float6e3m2", 28, 6, u8, 3, 3, 0x1F, nan=0x20, has_nan=False),
)}


@functools.cache
def magnitudes(form: CodeFormat) -> np.ndarray:
    """The numbers of the codes from 0 to the one after `top`, in order, as if it were finite."""
    codes = np.arange(form.top + 2)
    if not form.signed:
        return np.exp2(codes.astype(np.float64) - form.bias)
    fraction_bits = form.bits - 1 - form.exponent
    exponents, fractions = codes >> fraction_bits, codes & ((1 << fraction_bits) - 1)
    parts = fractions / (1 << fraction_bits)
    return np.where(exponents > 0, (1 + parts) * np.exp2(exponents - float(form.bias)),
                    parts * np.exp2(1.0 - form.bias))


@functools.cache
def numbers(form: CodeFormat) -> np.ndarray:
    """The number of each code, as float32."""
    half = 1 << (form.bits - 1)
    count = 2 * half if not form.signed else half
    table = np.full(2 * half, np.nan)
    finite = magnitudes(form)[:form.top + 1]
    table[:len(finite)] = finite
    if form.has_infinity:
        table[form.top + 1] = np.inf
    if form.signed:
        table[half:] = -table[:count]
        if not form.has_negative_zero:
            table[half] = np.nan
    return table.astype(np.float32)


@functools.cache
def thresholds(form: CodeFormat, d: np.dtype, direction: str = "nearest") -> np.ndarray:
    """The smallest number of dtype d that becomes each code from 1 on. Ties go to even codes."""
    finite = magnitudes(form)
    if direction == "down":
        return finite[1:].astype(d)
    if direction == "up":  # anything above the number before
        return np.nextafter(finite[:-1].astype(d), np.array(np.inf, d))
    middles = ((finite[:-1] + finite[1:]) / 2).astype(d)
    ends_even = (np.arange(len(middles)) % 2).astype(bool) | (not form.signed)
    return np.where(ends_even, middles, np.nextafter(middles, np.array(np.inf, d)))
