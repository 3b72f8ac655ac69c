"""The dtypes of the array API, and functions that inspect them."""

from __future__ import annotations

from typing import Any, NamedTuple

from ztorch.arrays.complex_tensor import ComplexTensor
from ztorch.arrays.device_dtypes import default_integer
from ztorch.arrays.placement import default_device
from ztorch.arrays.promotion import integer_range
from ztorch.arrays.promotion import result_type as _promoted
from ztorch.arrays.tensor import Tensor
from ztorch.dtypes import (
    ALL,
    COMPLEX,
    AnyDType,
    ComplexDType,
    DType,
    boolean,
    complex_dtype,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    part_dtype,
    u8,
    u16,
    u32,
    u64,
)
from ztorch.dtypes import dtype as dtype_named
from ztorch.errors import ConfigError
from ztorch.runtime.devices import devices

bool, float32, float64 = boolean, f32, f64
complex64, complex128 = COMPLEX
int8, int16, int32, int64 = i8, i16, i32, i64
uint8, uint16, uint32, uint64 = u8, u16, u32, u64

_OWN = (boolean, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64)  # the dtypes of the standard
_KINDS = {"bool": "b", "signed integer": "s", "unsigned integer": "u", "integral": "su",
          "real floating": "f", "complex floating": "c", "numeric": "sufc"}


def any_dtype(x: Any) -> AnyDType:
    """A real or complex dtype, from its name or from the dtype itself."""
    return complex_dtype(x) or dtype_named(x)


def isdtype(dtype: AnyDType, kind: Any) -> Any:
    """Whether a dtype matches a kind: another dtype, a name from the standard, or a tuple of
    these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, choice) for choice in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return any_dtype(dtype).kind in tuple(_KINDS[kind])
    if isinstance(kind, (DType, ComplexDType)):
        return dtype is kind
    raise ConfigError(f"isdtype(kind={kind!r}) is neither a dtype nor one of {', '.join(_KINDS)}")


def result_type(*arrays_and_dtypes: Any) -> AnyDType:
    """The dtype of an operation on tensors, dtypes and numbers; Python numbers adapt to the
    others."""
    dtypes = [x.dtype if isinstance(x, (Tensor, ComplexTensor)) else x for x in arrays_and_dtypes]
    strong = [d for d in dtypes if isinstance(d, (DType, ComplexDType))]
    if not strong:
        raise ConfigError("result_type needs a tensor or a dtype")
    kinds = {type(x) for x in dtypes}
    if complex in kinds or any(isinstance(d, ComplexDType) for d in strong):
        exact = not any(d.is_float or d.kind == "c" for d in strong)
        return COMPLEX[exact or part_dtype(*strong) is f64]
    common = _promoted(*[d for d in strong if isinstance(d, DType)])
    if float in kinds and not common.is_float:
        return f64
    return i64 if int in kinds and common is boolean else common


def can_cast(from_: Any, to: AnyDType, /) -> Any:
    """Whether promotion may convert a dtype, or the dtype of a tensor, to another dtype."""
    return result_type(from_, to) is to


class FloatInfo(NamedTuple):
    """The limits of a float dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerInfo(NamedTuple):
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a float dtype or of a tensor's dtype; for a complex dtype, those of its
    parts."""
    own = type.dtype if isinstance(type, (Tensor, ComplexTensor)) else any_dtype(type)
    d = own.part if isinstance(own, ComplexDType) else own
    if not d.is_float:
        raise ConfigError(f"finfo takes float dtypes, not {d}; use iinfo for integers")
    return FloatInfo(d.bits, 2.0 ** (1 - d.significand), d.largest, -d.largest,
                     2.0**d.least_exponent, d)


def iinfo(type: Any, /) -> IntegerInfo:
    """The limits of an integer dtype or of a tensor's dtype."""
    d = type.dtype if isinstance(type, Tensor) else dtype_named(type)
    if not d.is_int:
        raise ConfigError(f"iinfo takes integer dtypes, not {d}; use finfo for floats")
    low, high = integer_range(d)
    return IntegerInfo(d.bits, high, low, d)


class Info:
    """The capabilities of the namespace, as the array API's inspection functions return them."""

    def capabilities(self) -> dict[str, Any]:
        """Shapes may depend on values, except in functions that are being compiled."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        """The device on which tensors are created."""
        return default_device()

    def devices(self) -> list[str]:
        """The devices of this machine."""
        return [d.id for d in devices() if d.available and d.kind != "virtual"]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, AnyDType]:
        """The dtype of Python numbers, and of indices."""
        return {"real floating": f32, "complex floating": complex64,
                "integral": default_integer(device), "indexing": i32}

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, AnyDType]:
        """The supported dtypes of the standard, or those of one kind."""
        own: tuple[AnyDType, ...] = (*(d for d in ALL if d in _OWN), *COMPLEX)
        return {d.long: d for d in own if kind is None or isdtype(d, kind)}
