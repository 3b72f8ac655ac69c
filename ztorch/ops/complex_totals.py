"""Tests, equality, products, norms and conversions of complex numbers."""

from __future__ import annotations

import math
from typing import Any

from ztorch.dtypes import ComplexDType, boolean
from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, normal_axes
from ztorch.graph.value import Value
from ztorch.ops.complex_elements import size
from ztorch.ops.complex_parts import number
from ztorch.ops.complex_values import ComplexValue, all_of, any_of, choose, complex_op
from ztorch.ops.reduction import Axes


@complex_op()
def real(x: ComplexValue) -> Value:
    return x.real


@complex_op()
def imag(x: ComplexValue) -> Value:
    return x.imag


@complex_op("conj", "conjugate")
def conj(x: ComplexValue) -> ComplexValue:
    return ComplexValue(x.real, -x.imag)


@complex_op()
def cast(x: ComplexValue, dtype: Any) -> ComplexValue | Value:
    if isinstance(dtype, ComplexDType):
        return x.on_parts("cast", dtype.part)
    if dtype in (boolean, "bool"):
        return nonzero(x)
    raise Unsupported(f"zt.ops.cast of complex numbers to {dtype} would lose their imaginary part; "
                      "use zt.ops.real or zt.ops.abs first")


# -- tests -----------------------------------------------------------------------------------------


def nonzero(x: ComplexValue) -> Value:
    """Whether each number differs from 0."""
    return any_of(OPS.not_equal(x.real, 0.0), OPS.not_equal(x.imag, 0.0))


@complex_op()
def isfinite(x: ComplexValue) -> Value:
    return all_of(OPS.isfinite(x.real), OPS.isfinite(x.imag))


@complex_op()
def isinf(x: ComplexValue) -> Value:
    return any_of(OPS.isinf(x.real), OPS.isinf(x.imag))


@complex_op()
def isnan(x: ComplexValue) -> Value:
    return any_of(OPS.isnan(x.real), OPS.isnan(x.imag))


@complex_op()
def isreal(x: ComplexValue) -> Value:
    y: Value = OPS.equal(x.imag, 0.0)
    return y


@complex_op()
def equal(x: ComplexValue, y: ComplexValue) -> Value:
    return all_of(OPS.equal(x.real, y.real), OPS.equal(x.imag, y.imag))


@complex_op()
def not_equal(x: ComplexValue, y: ComplexValue) -> Value:
    return any_of(OPS.not_equal(x.real, y.real), OPS.not_equal(x.imag, y.imag))


@complex_op()
def isclose(a: ComplexValue, b: ComplexValue, rtol: float = 1e-5, atol: float = 1e-8,
            equal_nan: bool = False) -> Value:
    near = all_of(OPS.less_equal(size(a - b), size(b) * rtol + atol), isfinite(b))
    near = any_of(near, equal(a, b))
    return any_of(near, all_of(isnan(a), isnan(b))) if equal_nan else near


@complex_op()
def allclose(a: ComplexValue, b: ComplexValue, rtol: float = 1e-5, atol: float = 1e-8,
             equal_nan: bool = False) -> Value:
    y: Value = OPS.all(isclose(a, b, rtol, atol, equal_nan))
    return y


@complex_op()
def array_equal(a: ComplexValue, b: ComplexValue) -> Value:
    if a.shape != b.shape:
        no: Value = OPS.full((), False, "bool")
        return no
    y: Value = OPS.all(equal(a, b))
    return y


@complex_op()
def isin(x: ComplexValue, elements: ComplexValue, invert: bool = False) -> Value:
    same = equal(x.on_parts("expand_dims", -1), elements.on_parts("reshape", (-1,)))
    y: Value = OPS.any(same, axis=-1)
    return OPS.bitwise_not(y) if invert else y


@complex_op()
def logical_not(x: ComplexValue) -> Value:
    y: Value = OPS.bitwise_not(nonzero(x))
    return y


@complex_op("all")
def all_(x: ComplexValue, axis: Axes = None, keepdims: bool = False) -> Value:
    y: Value = OPS.all(nonzero(x), axis, keepdims)
    return y


@complex_op("any")
def any_(x: ComplexValue, axis: Axes = None, keepdims: bool = False) -> Value:
    y: Value = OPS.any(nonzero(x), axis, keepdims)
    return y


@complex_op()
def count_nonzero(x: ComplexValue, axis: Axes = None, keepdims: bool = False) -> Value:
    y: Value = OPS.count_nonzero(nonzero(x), axis, keepdims)
    return y


# -- products and norms ----------------------------------------------------------------------------


def _typed(x: ComplexValue, dtype: Any) -> ComplexValue:
    result: Any = x if dtype is None else cast(x, dtype)
    assert isinstance(result, ComplexValue)
    return result


@complex_op()
def prod(x: ComplexValue, axis: Axes = None, keepdims: bool = False,
         dtype: Any = None) -> ComplexValue:
    """The product along axes, by repeated halving."""
    x = _typed(x, dtype)
    axes = normal_axes(axis, len(x.shape))
    remaining_axes = [k for k in range(len(x.shape)) if k not in axes]
    count = math.prod(x.shape[k] for k in axes)
    rows = x.on_parts("transpose", (*remaining_axes, *axes)).on_parts(
        "reshape", (*(x.shape[k] for k in remaining_axes), count))
    if not count:
        rows = number(OPS.zeros((*rows.shape[:-1], 1), rows.real.dtype), 1)
    while rows.shape[-1] > 1:
        half = rows.shape[-1] // 2
        pairs = rows[..., :half] * rows[..., half:2 * half]
        rest = rows[..., 2 * half:]
        rows = ComplexValue(*(OPS.concat(p, r, axis=-1) for p, r in (
            (pairs.real, rest.real), (pairs.imag, rest.imag)))) if rest.shape[-1] else pairs
    shape = [1 if k in axes else n for k, n in enumerate(x.shape) if keepdims or k not in axes]
    return rows.on_parts("reshape", tuple(shape))


@complex_op()
def cumprod(x: ComplexValue, axis: int | None = None, dtype: Any = None,
            include_initial: bool = False) -> ComplexValue:
    """The products of all elements up to each: those of the last 1, 2, 4 ... in turn."""
    x = _typed(x, dtype)
    if axis is None:
        x, axis = x.on_parts("ravel"), 0
    [a] = normal_axes(axis, x.rank)
    before, n, step = (slice(None),) * a, x.shape[a], 1
    while step < n:
        start, end, most = ((*before, slice(*ends)) for ends in (
            (None, step), (step, None), (None, n - step)))
        first, later = x[start], x[end] * x[most]
        x = ComplexValue(OPS.concat(first.real, later.real, axis=a),
                         OPS.concat(first.imag, later.imag, axis=a))
        step *= 2
    if include_initial:
        low, none = tuple(int(k == a) for k in range(x.rank)), (0,) * x.rank
        x = ComplexValue(OPS.pad(x.real, low, none, 1.0), OPS.pad(x.imag, low, none, 0.0))
    return x


@complex_op()
def vector_norm(x: ComplexValue, ord: float = 2, axis: Axes = None, keepdims: bool = False
                ) -> Value:
    y: Value = OPS.vector_norm(size(x), ord, axis, keepdims)
    return y


@complex_op()
def vecdot(a: ComplexValue, b: ComplexValue, axis: int = -1) -> ComplexValue:
    """The first argument is conjugated."""
    return ComplexValue(OPS.vecdot(a.real, b.real, axis) + OPS.vecdot(a.imag, b.imag, axis),
                        OPS.vecdot(a.real, b.imag, axis) - OPS.vecdot(a.imag, b.real, axis))


@complex_op()
def vdot(x1: ComplexValue, x2: ComplexValue) -> ComplexValue:
    """The first argument is conjugated."""
    return vecdot(x1.on_parts("ravel"), x2.on_parts("ravel"))


@complex_op()
def nan_to_num(x: ComplexValue, nan: float = 0.0, posinf: float | None = None,
               neginf: float | None = None) -> ComplexValue:
    return x.on_parts("nan_to_num", nan, posinf, neginf)


def where_nonzero(x: ComplexValue, y: ComplexValue) -> ComplexValue:
    """x, or y where x is 0."""
    return choose(nonzero(x), x, y)
