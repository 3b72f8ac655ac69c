"""Conversions between dtypes, and to and from formats of few bits."""

from __future__ import annotations

import numpy as np

from ztorch.dtypes import DType, boolean, f32, f64, i32, u8
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.interchange.onnx.formats import FORMATS, CodeFormat, numbers, thresholds
from ztorch.interchange.onnx.node import Coded, Node, Result, node
from ztorch.interchange.onnx.padded_tensors import masked

Kind = DType | CodeFormat


def decoded(x: Coded) -> Value:
    """The numbers of codes: float32 for floats, the codes themselves for integers."""
    if not x.format.is_float:
        return x.codes
    return OPS.take(constant(numbers(x.format)), OPS.cast(x.codes, "int32"), 0)


def encoded(x: Value, form: CodeFormat, saturate: bool = True, direction: str = "nearest") -> Coded:
    """The codes of numbers. Floats round to even; with `saturate`, too large ones become the
    largest finite number, not infinity or NaN. Integers lose their upper bits."""
    if not form.is_float:
        bits = OPS.cast(OPS.cast(x, "int64") if x.dtype.is_float else x, "int32")
        low = form.lowest
        codes = OPS.bitwise_and(bits - low, 2 ** form.bits - 1) + low
        return Coded(OPS.cast(codes, form.holds), form)
    x = x if x.dtype is f64 else OPS.cast(x, f32)
    limits = constant(thresholds(form, x.dtype.numpy, direction))
    codes = OPS.searchsorted(limits, OPS.abs(x), "right")
    codes = OPS.minimum(codes, form.top) if saturate else codes
    half = 1 << (form.bits - 1)
    if form.signed:
        negative = OPS.signbit(x)
        if not form.has_negative_zero:
            negative = OPS.bitwise_and(negative, OPS.greater(codes, 0))
        codes = OPS.where(negative, OPS.bitwise_or(codes, half), codes)
    codes = OPS.where(OPS.isnan(x), form.nan, codes)
    return Coded(OPS.cast(codes, u8), form)


def kind_of(n: Node, number: int) -> Kind:
    """The dtype or format with a number of ONNX."""
    return FORMATS[number] if number in FORMATS else n.dtype_of(number)


def numbers_of(n: Node, k: int) -> Value:
    """Input k as numbers; codes are decoded."""
    tensor = n.input(k)
    return decoded(tensor) if isinstance(tensor, Coded) else n.value(k)


def _cast_to(n: Node, kind: Kind) -> Result:
    saturate, direction = bool(n.attr("saturate", 1)), n.attr("round_mode", "up")
    if isinstance(kind, CodeFormat):
        return encoded(numbers_of(n, 0), kind, saturate, "nearest" if kind.signed else direction)
    x = numbers_of(n, 0)
    if x.dtype.is_float and kind.is_int and kind.bits < 32:  # upper bits are lost, as in C
        return OPS.cast(OPS.cast(x, "int64"), kind)
    return OPS.cast(x, kind)


@node("Cast", but="floats have the model's dtype, except in load_layer; no strings")
def _cast(n: Node) -> Result:
    return _cast_to(n, kind_of(n, n.attr("to")))


@node("CastLike", but="as Cast")
def _cast_like(n: Node) -> Result:
    return _cast_to(n, kind_of(n, n.type_number(1)))


@node("BitCast")
def _bit_cast(n: Node) -> Result:
    x, kind = n.input(0), kind_of(n, n.attr("to"))
    bits = x.codes if isinstance(x, Coded) else n.value(0)
    if isinstance(kind, CodeFormat):
        if kind.bits < 8:
            return encoded(bits, kind)
        return Coded(OPS.bitcast(_bytes(bits), kind.holds), kind)
    if kind is boolean:
        return OPS.not_equal(bits, 0)
    return OPS.bitcast(_bytes(bits), kind)


def _bytes(x: Value) -> Value:
    """A tensor, with booleans as bytes."""
    return OPS.cast(x, u8) if x.dtype is boolean else x


def widened(x: Value) -> Value:
    """Integers and booleans as floats that can represent them; floats unchanged."""
    return x if x.dtype.is_float else OPS.cast(x, f32 if x.dtype.bits < 32 else f64)


def narrowed(y: Value, kind: DType) -> Value:
    """Converts results of `widened` numbers back to a dtype, by rounding to the nearest integer."""
    if y.dtype is kind:
        return y
    if kind is boolean:
        return OPS.not_equal(OPS.round(y), 0.0)
    low, high = np.iinfo(kind.numpy).min, np.iinfo(kind.numpy).max
    largest = float(high) if int(float(high)) <= high else float(np.nextafter(float(high), 0.0))
    return OPS.cast(OPS.clip(OPS.round(y), float(low), largest), kind)


# -- quantization ----------------------------------------------------------------------------------


def _aligned(n: Node, scale: Value, shape: tuple[int, ...]) -> Value:
    """A scale or zero point that broadcasts to the quantized tensor. It is one number, or one for
    each index of an axis, or one for each block."""
    axis, block = n.attr("axis", 1), n.attr("block_size", 0)
    if scale.size == 1:
        return OPS.reshape(scale, ())
    axis = range(len(shape))[axis]
    if scale.rank == 1 and not block:
        return OPS.reshape(scale, tuple(-1 if a == axis else 1 for a in range(len(shape))))
    if not block:
        n.unsupported(f"a scale of shape {scale.shape} without block_size")
    wide = OPS.repeat(scale, block, axis)
    return wide[(slice(None),) * axis + (slice(0, shape[axis]),)]


def _scale(n: Node, trainable: bool = False) -> Value:
    tensor = n.input(1)
    return decoded(tensor) if isinstance(tensor, Coded) else n.value(1, trainable)


@node("QuantizeLinear")
def _quantize(n: Node) -> Result:
    x, scale = n.value(0), _scale(n)
    number, saturate = n.attr("output_dtype", 0), bool(n.attr("saturate", 1))
    kind: Kind = kind_of(n, n.type_number(2) if n.has(2) else number or u8.onnx)
    precision = n.dtype_of(n.attr("precision")) if n.attr("precision", 0) else scale.dtype
    x, scale = OPS.cast(x, precision), OPS.cast(scale, precision)
    y = x / _aligned(n, scale, x.shape)
    if isinstance(kind, CodeFormat) and kind.is_float:
        if n.has(2):
            y = y + OPS.cast(_aligned(n, numbers_of(n, 2), x.shape), y.dtype)
        return encoded(y, kind, saturate)
    zero = _aligned(n, numbers_of(n, 2), x.shape) if n.has(2) else None
    integers = clipped_codes(OPS.cast(y, f32), zero, kind)
    if isinstance(kind, CodeFormat):
        return Coded(OPS.cast(integers, kind.holds), kind)
    return OPS.cast(integers, kind)


def quantized_by_range(n: Node, x: Value) -> tuple[Value, Value, Value]:
    """The codes of x in bytes, their scale and their zero point, all as floats. The codes span the
    range of the elements and 0."""
    real = masked(n, x, range(x.rank), 0)
    low, high = OPS.minimum(OPS.min(real), 0.0), OPS.maximum(OPS.max(real), 0.0)
    scale = (high - low) / 255.0
    scale = OPS.where(OPS.equal(scale, 0.0), 1.0, scale)
    zero = OPS.clip(OPS.round(-low / scale), 0.0, 255.0)
    return OPS.clip(OPS.round(x / scale) + zero, 0.0, 255.0), scale, zero


@node("DynamicQuantizeLinear")
def _dynamic_quantize(n: Node) -> Result:
    codes, scale, zero = quantized_by_range(n, n.value(0))
    return OPS.cast(codes, u8), scale, OPS.cast(zero, u8)


@node("DequantizeLinear")
def _dequantize(n: Node) -> Result:
    x, scale = numbers_of(n, 0), _scale(n, trainable=True)
    target = n.dtype_of(n.attr("output_dtype")) if n.attr("output_dtype", 0) else scale.dtype
    integers = x if x.dtype.is_float else OPS.cast(x, i32)
    if n.has(2):
        zero = numbers_of(n, 2)
        integers = integers - OPS.cast(_aligned(n, zero, x.shape), integers.dtype)
    return OPS.cast(integers, target) * OPS.cast(_aligned(n, scale, x.shape), target)


def shifted(n: Node, k: int, zero: int, axis: int | None = None) -> Value:
    """Input k minus its zero point, in int32, or in float32 for codes of floats. The zero point is
    one number, or one for each index of the axis."""
    x = numbers_of(n, k)
    x = x if x.dtype.is_float else OPS.cast(x, i32)
    if not n.has(zero):
        return x
    point = OPS.cast(numbers_of(n, zero), x.dtype)
    if point.size == 1:
        return x - OPS.reshape(point, ())
    if point.rank == 1 and axis is not None:
        point = OPS.reshape(point, tuple(-1 if a == axis % x.rank else 1 for a in range(x.rank)))
    return x - point


def requantized(n: Node, sums: Value, scale: Value, k: int) -> Value | Coded:
    """Sums times a scale, quantized by the scale and zero point in inputs k and k + 1. Scales of 16
    bits are widened, because their rounded products would be off by whole steps."""
    y = OPS.cast(sums, f32) * (OPS.cast(scale, f32) / OPS.cast(n.value(k), f32))
    if isinstance(codes := n.input(k + 1), Coded):
        return encoded(y + decoded(codes), codes.format)
    zero = n.value(k + 1)
    return OPS.cast(clipped_codes(y, zero, zero.dtype), zero.dtype)


def clipped_codes(y: Value, zero: Value | None, kind: Kind) -> Value:
    """Rounded numbers plus a zero point, clipped to the range of a dtype or format, in int32. They
    are clipped as floats, where that costs least; NaN becomes the lowest, as in ONNX Runtime."""
    low, high = ((kind.lowest, kind.highest) if isinstance(kind, CodeFormat) else
                 (int(np.iinfo(kind.numpy).min), int(np.iinfo(kind.numpy).max)))
    shift = None if zero is None else OPS.cast(zero, i32)
    least, most = ((float(end) if shift is None else OPS.cast(end - shift, f32))
                   for end in (low, high))
    y = OPS.where(OPS.greater(y, least), y, least)
    y = OPS.where(OPS.less(y, most), y, most)
    codes = OPS.cast(OPS.round(y), i32)
    return codes if shift is None else codes + shift


@node("MatMulInteger")
def _matmul_integer(n: Node) -> Result:
    return OPS.matmul(shifted(n, 0, 2, -2), shifted(n, 1, 3, -1))


@node("QLinearMatMul")
def _quantized_matmul(n: Node) -> Result:
    a_scale, b_scale = n.value(1), n.value(4)
    a, b = shifted(n, 0, 2, -2), shifted(n, 3, 5, -1)
    if a.dtype != b.dtype:  # codes of floats and integers
        a, b = OPS.cast(a, f32), OPS.cast(b, f32)
    sums = OPS.matmul(a, b)
    if a_scale.size > 1:
        a_scale = a_scale if a_scale.rank > 1 else OPS.reshape(a_scale, (-1, 1))
    return requantized(n, sums, a_scale * b_scale, 6)
