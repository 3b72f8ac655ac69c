"""The dtypes: names, sizes, kinds, and the NumPy dtypes that hold them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ztorch.errors import UnknownName, unknown


class Codes(NamedTuple):
    """How arrays hold a float that NumPy lacks: as integers, with arithmetic in float32."""

    integers: Any  # their NumPy dtype
    encode: Callable[[np.ndarray], np.ndarray]  # from float32, to nearest, ties to even
    decode: Callable[[np.ndarray], np.ndarray]  # to float32


def _encode_bf16(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)  # NaN stays quiet


def _decode_bf16(codes: np.ndarray) -> np.ndarray:
    return (codes.astype(np.uint32) << 16).view(np.float32)


class Spelled(NamedTuple):
    """Names of a dtype in the target languages. Templates read them as `names.LANGUAGE`; an empty
    name means that the language lacks the dtype."""

    llvm: str
    c: str  # C99
    cpp: str  # CUDA and HIP; their module templates define these names
    opencl: str
    msl: str
    wgsl: str  # narrow integers are stored in 32 bits
    spirv: str
    ptx: str  # in instructions; narrow integers are stored in 32 bits
    ptx_register: str
    ptx_memory: str


class _Dtype:
    """A dtype. Each exists once; it equals its names and NumPy's dtype of the same name."""

    __slots__ = ()
    name: str
    long: str

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Dtype):
            return self is other
        if isinstance(other, (type, np.dtype)):
            other = np.dtype(other).name
        return isinstance(other, str) and other in (self.long, self.name)

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.long

    def __repr__(self) -> str:
        return self.name


class DType(_Dtype):
    """A scalar type. Each exists once, so `is` compares them.

    >>> f32 == "float32", f32 == np.float32, f32 == "float64"
    (True, True, False)

    Attributes:
        name: Short name, as in IR text, such as `"f32"`.
        long: The name users write, such as `"float32"`.
        kind: `"f"` float, `"s"` signed integer, `"u"` unsigned integer, `"b"` bool.
        bits: Size in bits; 1 for bool.
        significand: Significant bits of a float, including the hidden bit; 0 for other kinds.
        c: The C89 type, assuming that long has 64 bits. C lacks 16-bit floats: it stores their
            bits.
        torch: PyTorch's name of a storage in its files; empty if it has none.
        torch_export: Number in `torch.export` files.
        onnx: Number in ONNX files.
        gguf: Number in GGUF files; None if they lack the dtype.
        spelled: Names in the target languages.
        bytes: Size in memory.
        is_float: Whether it is a float.
        is_int: Whether it is a signed or unsigned integer.
        codes: How arrays hold it if NumPy lacks it; None if NumPy has it.
        in_numpy: Whether NumPy has it.
        numpy: NumPy dtype of arrays in memory.
        working: NumPy dtype in which its values are computed.
        least_exponent: For floats, the exponent of the smallest normal number, as a power of 2.
        largest: For floats, the largest finite number.
    """

    __slots__ = ("bits", "bytes", "c", "codes", "gguf", "in_numpy", "is_float", "is_int", "kind",
                 "largest", "least_exponent", "long", "name", "numpy", "onnx", "significand",
                 "spelled", "torch", "torch_export", "working")

    def __init__(self, name: str, long: str, kind: str, bits: int, significand: int, c: str,
                 torch: str, torch_export: int, onnx: int, gguf: int | None, spelled: Spelled,
                 codes: Codes | None = None):
        self.name, self.long, self.kind, self.bits = name, long, kind, bits
        self.significand, self.c, self.spelled = significand, c, spelled
        self.torch, self.torch_export, self.onnx, self.gguf = torch, torch_export, onnx, gguf
        self.bytes = max(1, bits // 8)
        self.is_float, self.is_int = kind == "f", kind in "su"
        self.codes, self.in_numpy = codes, codes is None
        self.numpy = np.dtype(long if codes is None else codes.integers)
        self.working = np.dtype(long if codes is None else np.float32)
        if self.is_float:
            self.least_exponent = 2 - (1 << bits - significand - 1)
            self.largest = (2.0 - 2.0 ** (1 - significand)) * 2.0 ** (1 - self.least_exponent)

    def __reduce__(self) -> tuple:  # copies and unpickled dtypes are the same object
        return dtype, (self.name,)


f16 = DType("f16", "float16", "f", 16, 11, "unsigned short", "Half", 6, 10, 1, Spelled(
    "half", "uint16_t", "ushort", "half", "half", "", "%f16", "f16", "b16", "b16"))
bf16 = DType("bf16", "bfloat16", "f", 16, 8, "unsigned short", "BFloat16", 13, 16, 30, Spelled(
    "bfloat", "uint16_t", "ushort", "ushort", "", "", "%i16", "bf16", "b16", "b16"),
    Codes(np.uint16, _encode_bf16, _decode_bf16))
f32 = DType("f32", "float32", "f", 32, 24, "float", "Float", 7, 1, 0, Spelled(
    "float", "float", "float", "float", "float", "f32", "%f32", "f32", "f32", "f32"))
f64 = DType("f64", "float64", "f", 64, 53, "double", "Double", 8, 11, 28, Spelled(
    "double", "double", "double", "double", "", "", "%f64", "f64", "f64", "f64"))
i8 = DType("i8", "int8", "s", 8, 0, "signed char", "Char", 2, 3, 24, Spelled(
    "i8", "int8_t", "schar", "char", "char", "i32", "%i8", "s32", "b32", "s8"))
i16 = DType("i16", "int16", "s", 16, 0, "short", "Short", 3, 5, 25, Spelled(
    "i16", "int16_t", "short", "short", "short", "i32", "%i16", "s32", "b32", "s16"))
i32 = DType("i32", "int32", "s", 32, 0, "int", "Int", 4, 6, 26, Spelled(
    "i32", "int32_t", "int", "int", "int", "i32", "%i32", "s32", "b32", "b32"))
i64 = DType("i64", "int64", "s", 64, 0, "long", "Long", 5, 7, 27, Spelled(
    "i64", "int64_t", "slong", "long", "long", "", "%i64", "s64", "b64", "b64"))
u8 = DType("u8", "uint8", "u", 8, 0, "unsigned char", "Byte", 1, 2, None, Spelled(
    "i8", "uint8_t", "uchar", "uchar", "uchar", "u32", "%i8", "u32", "b32", "u8"))
u16 = DType("u16", "uint16", "u", 16, 0, "unsigned short", "", 28, 4, None, Spelled(
    "i16", "uint16_t", "ushort", "ushort", "ushort", "u32", "%i16", "u32", "b32", "u16"))
u32 = DType("u32", "uint32", "u", 32, 0, "unsigned int", "", 34, 12, None, Spelled(
    "i32", "uint32_t", "uint", "uint", "uint", "u32", "%i32", "u32", "b32", "b32"))
u64 = DType("u64", "uint64", "u", 64, 0, "unsigned long", "", 35, 13, None, Spelled(
    "i64", "uint64_t", "ulong", "ulong", "ulong", "", "%i64", "u64", "b64", "b64"))
boolean = DType("bool", "bool", "b", 1, 0, "unsigned char", "Bool", 12, 9, None, Spelled(
    "i1", "bool", "bool", "bool", "bool", "bool", "%bool", "pred", "pred", ""))


class ComplexDType(_Dtype):
    """A dtype of complex numbers, which are pairs of real tensors. Nothing below `arrays/` stores
    or computes with it, and `dtype` does not accept it. Each exists once.

    Attributes:
        name: Short name, such as `"c64"`.
        long: Name that users write, such as `"complex64"`.
        part: The dtype of real and imaginary parts.
        kind: `"c"`.
        bits: Size in bits of both parts.
        bytes: Size in memory of both parts.
        is_float: False: its parts are floats.
        is_int: False.
        numpy: The NumPy dtype of the same numbers.
    """

    __slots__ = ("bits", "bytes", "is_float", "is_int", "kind", "long", "name", "numpy", "part")

    def __init__(self, name: str, part: DType):
        self.name, self.part, self.kind = name, part, "c"
        self.bits, self.bytes = 2 * part.bits, 2 * part.bytes
        self.long = f"complex{self.bits}"
        self.is_float = self.is_int = False
        self.numpy = np.dtype(self.long)

    def __reduce__(self) -> tuple:
        return complex_dtype, (self.long,)


complex64 = ComplexDType("c64", f32)
complex128 = ComplexDType("c128", f64)
COMPLEX = (complex64, complex128)
AnyDType = DType | ComplexDType

ALL: tuple[DType, ...] = (f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, boolean)
_BY_NAME = {d.name: d for d in ALL} | {d.long: d for d in ALL}


def dtype(name: str | AnyDType | np.dtype | type) -> DType:
    """The DType for a short or long name, or for a NumPy dtype.

    >>> dtype("float32"), dtype(np.int8), dtype("u32")
    (f32, i8, u32)
    """
    if isinstance(name, DType):
        return name
    if isinstance(name, str) and name in _BY_NAME:
        return _BY_NAME[name]
    if not isinstance(name, str):
        try:
            return _BY_NAME[np.dtype(name).name]  # type: ignore[arg-type]
        except (TypeError, ValueError, KeyError):
            if not complex_dtype(name):
                hint = "; pass shapes as one tuple, such as (3, 4)" if isinstance(name, int) else ""
                raise UnknownName(
                    f"{name!r} is not a dtype that ztorch supports{hint}") from None
    if complex_dtype(name):
        raise UnknownName(f"{name} is only a dtype of tensors: models, kernels and random numbers "
                          "are real on every backend; pass real and imaginary parts")
    raise unknown("dtype", name, [d.long for d in ALL])


def complex_dtype(x: Any) -> ComplexDType | None:
    """The complex dtype that x is or names; None if there is none.

    >>> complex_dtype("complex64"), complex_dtype(np.complex128), complex_dtype("float32")
    (c64, c128, None)
    """
    if isinstance(x, ComplexDType):
        return x
    named = x in ("complex64", "complex128", "c64", "c128") if isinstance(x, str) else (
        isinstance(x, np.dtype) or (isinstance(x, type) and issubclass(
            x, (complex, np.complexfloating))))
    if not named:
        return None
    return next((d for d in COMPLEX if x in (d.name, d.long) or (
        not isinstance(x, str) and np.dtype(x) == d.numpy)), None)


def part_dtype(*dtypes: Any) -> DType:
    """The dtype of the parts of complex numbers that can hold all of these, by NumPy's rules.

    >>> part_dtype(f32), part_dtype(complex64, f64), part_dtype(i8)
    (f32, f64, f32)
    """
    floats = [f32 if isinstance(d, DType) and d.codes else d for d in dtypes]
    wide = np.result_type(np.complex64, *(d.numpy for d in floats))
    return f64 if wide == np.complex128 else f32


@functools.cache
def result_type(*dtypes: DType) -> DType:
    """The dtype that can hold all of these, by the rules of `numpy.result_type`. A float that NumPy
    lacks, such as bfloat16, stays itself beside integers, and becomes float32 beside another float
    of fewer than 32 bits.

    >>> result_type(i8, u8), result_type(f16, bf16), result_type(i64, f32)
    (i16, f32, f64)
    """
    if all(d.in_numpy for d in dtypes):
        return dtype(np.result_type(*(d.numpy for d in dtypes)))
    floats = {d for d in dtypes if d.is_float}
    if len(floats) == 1:
        return floats.pop()
    return result_type(f32, *(d for d in floats if d.bits >= 32))


def codes_dtype(d: DType) -> DType:
    """The unsigned integer dtype of the same width, which holds the bits of a number.

    >>> codes_dtype(bf16), codes_dtype(f64)
    (u16, u64)
    """
    return next(u for u in ALL if u.kind == "u" and u.bits == d.bits)


def storage_dtype(d: DType) -> DType:
    """The dtype of memory that holds a dtype: a bool is stored as a byte.

    >>> storage_dtype(boolean), storage_dtype(f32)
    (u8, f32)
    """
    return u8 if d is boolean else d


def rounded(d: DType, x: np.ndarray) -> np.ndarray:
    """Values in the working form of a dtype, rounded to values of that dtype.

    >>> rounded(bf16, np.array([1.004], np.float32)).tolist()
    [1.0078125]
    """
    return from_storage(d, to_storage(d, x)).astype(d.working, copy=False)


def to_storage(d: DType, x: np.ndarray) -> np.ndarray:
    """Values in their storage form."""
    if d.codes is None:
        return np.asarray(x).astype(d.numpy, copy=False)
    return d.codes.encode(np.asarray(x, np.float32))


def from_storage(d: DType, x: np.ndarray) -> np.ndarray:
    """Stored values in their working form."""
    if d.codes is None:
        return np.asarray(x)
    return d.codes.decode(np.asarray(x, d.numpy))
