"""Complex tensors created from numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.dtypes import ComplexDType, complex64, part_dtype
from ztorch.graph.op import OPS
from ztorch.ops.complex_parts import number
from ztorch.ops.complex_values import ComplexValue, complex_op

Number = complex | float
Shape = int | tuple[int, ...]


def _part(dtype: Any) -> Any:
    """The dtype of the parts of a result with this dtype, by default complex64."""
    return dtype.part if isinstance(dtype, ComplexDType) else part_dtype(complex64)


@complex_op()
def full(shape: Shape, value: Number, dtype: Any = None) -> ComplexValue:
    return number(OPS.zeros(shape, _part(dtype)), complex(value))


@complex_op("zeros", "empty")
def zeros(shape: Shape, dtype: Any = None) -> ComplexValue:
    return full(shape, 0, dtype)


@complex_op()
def ones(shape: Shape, dtype: Any = None) -> ComplexValue:
    return full(shape, 1, dtype)


@complex_op()
def full_like(x: ComplexValue, value: Number, dtype: Any = None) -> ComplexValue:
    y = number(x.real, complex(value))
    return y if dtype is None else y.on_parts("cast", _part(dtype))


@complex_op()
def ones_like(x: ComplexValue, dtype: Any = None) -> ComplexValue:
    return full_like(x, 1, dtype)


@complex_op()
def eye(rows: int, columns: int | None = None, k: int = 0, dtype: Any = None) -> ComplexValue:
    y = OPS.eye(rows, columns, k, _part(dtype))
    return ComplexValue(y, OPS.zeros_like(y))


@complex_op()
def arange(start: Number, stop: Number | None = None, step: Number = 1,
           dtype: Any = None) -> ComplexValue:
    y = OPS.arange(start, stop, step, _part(dtype))
    return ComplexValue(y, OPS.zeros_like(y))


@complex_op()
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None,
             axis: int = 0) -> ComplexValue:
    first, last, d = np.asarray(start) + 0j, np.asarray(stop) + 0j, _part(dtype)
    return ComplexValue(OPS.linspace(first.real, last.real, num, endpoint, d, axis),
                        OPS.linspace(first.imag, last.imag, num, endpoint, d, axis))


@complex_op()
def pad(x: ComplexValue, low: tuple[int, ...], high: tuple[int, ...],
        value: Number = 0) -> ComplexValue:
    return ComplexValue(OPS.pad(x.real, low, high, complex(value).real),
                        OPS.pad(x.imag, low, high, complex(value).imag))
