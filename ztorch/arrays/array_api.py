"""`zt.array_api`: the array API standard 2024.12 for tensors, with its names, arguments and
defaults.

`broadcast_shapes` and `isin` come from the next version of the standard. Libraries get this module
from a tensor with `x.__array_namespace__()`. docs/guides/arrays.md lists the missing parts and the
reasons.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ztorch.arrays import array_api_fft as fft
from ztorch.arrays import array_api_linalg as linalg
from ztorch.arrays import creation, ranges
from ztorch.arrays.array_api_dtypes import (
    Info,
    bool,
    can_cast,
    complex64,
    complex128,
    finfo,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    result_type,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ztorch.arrays.array_api_extras import from_start, repeat, std, take_along_axis, unstack, var
from ztorch.arrays.array_api_sets import (
    nonzero,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from ztorch.arrays.standard import named, on_tensors, total_dtype
from ztorch.arrays.tensor import Tensor, compute
from ztorch.dtypes import AnyDType
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.op import broadcast_shapes as _broadcast_shapes
from ztorch.graph.op import normal_axes

__array_api_version__ = "2024.12"
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")  # each contains the earlier ones
e, inf, nan, newaxis, pi = math.e, math.inf, math.nan, None, math.pi

Dtype = AnyDType | str | None
Device = str | None


def __array_namespace_info__() -> Info:
    """The capabilities of the namespace: its devices and dtypes."""
    return Info()


def namespace(api_version: str | None = None) -> ModuleType:
    """This module, which is the result of `Tensor.__array_namespace__`.

    Raises:
        ConfigError: Another version of the standard was requested.
    """
    if api_version not in (None, *_VERSIONS):
        raise ConfigError(f"array_api is {__array_api_version__}, not {api_version!r}")
    return sys.modules[__name__]


# -- functions that are ops with the same arguments ------------------------------------------------

_UNARY = """abs acos acosh asin asinh atan atanh bitwise_invert conj cos cosh exp expm1 imag
    isfinite isinf isnan log log10 log1p log2 logical_not matrix_transpose positive real reciprocal
    sign signbit sin sinh sqrt square tan tanh"""
_BINARY = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
    copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp
    logical_and logical_or logical_xor matmul maximum minimum multiply nextafter not_equal pow
    remainder subtract"""
_REDUCTIONS = "all any argmax argmin count_nonzero max mean min"
_FUNCTIONS: dict[Callable[..., Any], str] = {
    lambda x, /: None: _UNARY,
    lambda x1, x2, /: None: _BINARY,
    lambda x, /, *, axis=None, keepdims=False: None: _REDUCTIONS,
    lambda x, /, *, axis=-1, descending=False, stable=True: None: "argsort sort",
    lambda x, /, *, axis=-1, n=1, prepend=None, append=None: None: "diff",
    lambda x, /, *, axis=None: None: "flip",
    lambda x, /, axis: None: "expand_dims squeeze",
    lambda x, /, axes: None: "permute_dims",
    lambda x, /, shape: None: "broadcast_to",
    lambda x, /, shift, *, axis=None: None: "roll",
    lambda x, source, destination, /: None: "moveaxis",
    lambda x, repetitions, /: None: "tile",
    lambda x, /, *, k=0: None: "tril triu",
    lambda x, /, min=None, max=None: None: "clip",
    lambda x1, x2, /, *, invert=False: None: "isin",
    lambda x1, x2, /, *, side="left", sorter=None: None: "searchsorted",
    lambda x1, x2, /, *, axes=2: None: "tensordot",
    lambda x1, x2, /, *, axis=-1: None: "vecdot",
    lambda condition, x1, x2, /: None: "where",
}
for _signature, _names in _FUNCTIONS.items():
    for _name in _names.split():
        globals()[_name] = on_tensors(_name, inspect.signature(_signature), __name__)


# -- functions that are not ops, or have other arguments than the op -------------------------------


def negative(x: Tensor, /) -> Tensor:
    """-x; unsigned integers wrap."""
    y: Tensor = -x
    return y


def _rounding(name: str) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor, /) -> Tensor:
        return x if x.dtype.is_int else compute(name, (x,), {})

    return named(call, name, __name__, f"`zt.ops.{name}` of tensors; integers stay as they are.")


ceil, floor, round, trunc = map(_rounding, ("ceil", "floor", "round", "trunc"))


def astype(x: Tensor, dtype: AnyDType, /, *, copy: Any = True, device: Device = None) -> Tensor:
    """The elements in another dtype."""
    y: Tensor = compute("cast", (x, dtype), {})
    return y if device is None else y.to(device)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Tensors of one shape."""
    return list(compute("broadcast_arrays", arrays, {}))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all of these broadcast to."""
    return _broadcast_shapes(*shapes)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Tensors joined along an axis; `None` flattens them first."""
    y: Tensor = compute("concat", _promoted(arrays), {"axis": axis})
    return y


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Tensors joined along a new axis."""
    y: Tensor = compute("stack", _promoted(arrays), {"axis": axis})
    return y


def _promoted(arrays: Any) -> tuple[Tensor, ...]:
    d = result_type(*arrays)
    return tuple(x if x.dtype is d else compute("cast", (x, d), {}) for x in arrays)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Tensors of coordinates, from one vector for each axis."""
    return list(compute("meshgrid", arrays, {"indexing": indexing}))


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: Any = None) -> Tensor:
    """The same elements in another shape. Tensors never change, so `copy` makes no difference."""
    y: Tensor = compute("reshape", (x, shape), {})
    return y


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Slices of x along an axis at integer positions; negative ones count from the end."""
    along = _axis("take", x, axis)
    y: Tensor = compute("take", (x, from_start(indices, x.shape[along])), {"axis": along})
    return y


def _axis(name: str, x: Tensor, axis: int | None) -> int:
    if axis is None and x.ndim > 1:
        raise ShapeError(f"array_api.{name} needs axis=... for a tensor of shape {x.shape}")
    return 0 if axis is None else normal_axes(axis, x.ndim)[0]


def sum(x: Tensor, /, *, axis: Any = None, dtype: Dtype = None, keepdims: Any = False) -> Tensor:
    """The sum along axes; integers are summed in 64 bits."""
    y: Tensor = compute("sum", (x,), {"axis": axis, "dtype": total_dtype(x, dtype),
                                      "keepdims": keepdims})
    return y


def prod(x: Tensor, /, *, axis: Any = None, dtype: Dtype = None, keepdims: Any = False) -> Tensor:
    """The product along axes; integers are multiplied in 64 bits."""
    y: Tensor = compute("prod", (x,), {"axis": axis, "dtype": total_dtype(x, dtype),
                                       "keepdims": keepdims})
    return y


def cumulative_sum(x: Tensor, /, *, axis: int | None = None, dtype: Dtype = None,
                   include_initial: Any = False) -> Tensor:
    """The running sum, one result for each element; integers are summed in 64 bits."""
    y: Tensor = compute("cumsum", (x,), {"axis": _axis("cumulative_sum", x, axis),
                                         "dtype": total_dtype(x, dtype),
                                         "include_initial": include_initial})
    return y


def cumulative_prod(x: Tensor, /, *, axis: int | None = None, dtype: Dtype = None,
                    include_initial: Any = False) -> Tensor:
    """The running product, one result for each element; integers are multiplied in 64 bits."""
    y: Tensor = compute("cumprod", (x,), {"axis": _axis("cumulative_prod", x, axis),
                                          "dtype": total_dtype(x, dtype),
                                          "include_initial": include_initial})
    return y


# -- creation --------------------------------------------------------------------------------------


def asarray(obj: Any, /, *, dtype: Dtype = None, device: Device = None,
            copy: Any = None) -> Tensor:
    """A tensor of the data. It shares the memory of the data where possible."""
    return creation.asarray(obj, dtype, device, copy)


def from_dlpack(x: Any, /, *, device: Device = None, copy: Any = None) -> Tensor:
    """A tensor of another library's array."""
    return creation.from_dlpack(x, device, copy)


def arange(start: float, /, stop: float | None = None, step: float = 1, *, dtype: Dtype = None,
           device: Device = None) -> Tensor:
    """Evenly spaced numbers from `start` up to, but not including, `stop`."""
    return ranges.arange(start, stop, step, dtype, device)


def linspace(start: complex, stop: complex, /, num: int, *, dtype: Dtype = None,
             device: Device = None, endpoint: Any = True) -> Tensor:
    """A number of evenly spaced values between two bounds."""
    kind = "complex64" if isinstance(start, complex) or isinstance(stop, complex) else "float32"
    return ranges.linspace(start, stop, num, endpoint, dtype or kind, device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Dtype = None,
        device: Device = None) -> Tensor:
    """Ones on a diagonal, zeros elsewhere."""
    return ranges.eye(n_rows, n_cols, k, dtype or "float32", device)


def full(shape: Any, fill_value: complex, *, dtype: Dtype = None, device: Device = None) -> Tensor:
    """A tensor filled with one number."""
    return creation.full(shape, fill_value, dtype, device)


def full_like(x: Tensor, /, fill_value: complex, *, dtype: Dtype = None,
              device: Device = None) -> Tensor:
    """A tensor of the same shape as x, filled with one number."""
    return ranges.full_like(x, fill_value, dtype, device)


def _filled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(shape: Any, *, dtype: Dtype = None, device: Device = None) -> Tensor:
        return function(shape, dtype or "float32", device)

    return named(make, function.__name__, __name__, function.__doc__)


def _filled_like(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(x: Tensor, /, *, dtype: Dtype = None, device: Device = None) -> Tensor:
        return function(x, dtype, device)

    return named(make, function.__name__, __name__, function.__doc__)


empty, ones, zeros = map(_filled, (creation.empty, creation.ones, creation.zeros))
empty_like, ones_like, zeros_like = map(
    _filled_like, (ranges.empty_like, ranges.ones_like, ranges.zeros_like))

__all__ = ["bool", "can_cast", "complex64", "complex128", "fft", "finfo", "float32", "float64",
           "iinfo", "int8", "int16", "int32", "int64", "isdtype", "linalg", "nonzero", "repeat",
           "result_type", "std", "take_along_axis", "uint8", "uint16", "uint32", "uint64",
           "unique_all", "unique_counts", "unique_inverse", "unique_values", "unstack", "var"]
__all__ += [name for name in list(globals()) if not name.startswith("_") and (
    name in ("e", "inf", "nan", "newaxis", "pi")
    or (name != "namespace" and getattr(globals()[name], "__module__", "") == __name__))]
