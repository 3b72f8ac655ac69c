"""Operators that ztorch has and ONNX lacks, and short formulas with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call


def ztorch_op(c: OperatorCall, op: str, *inputs: str, **options: Any) -> str:
    """The result of an op of ztorch."""
    return c.nodes(op, inputs, 1, domain="ztorch", **options)[0]


def _floats(c: OperatorCall, x: CallTensor) -> str:
    floats = c.result.dtype.is_float and not x.dtype.is_float
    return c.cast(x, c.result.dtype) if floats else x.name


@call("erfc", "erfinv", "exp2", "expm1", "i0", "isneginf", "isposinf", "log10", "log1p", "log2",
      "logdet", "signbit", "sinc", "trace")
def _of_one(c: OperatorCall) -> Result:
    return ztorch_op(c, c.op, _floats(c, c.tensor()))


_PAIRS = ("copysign.Tensor", "copysign.Scalar", "gcd", "lcm", "fmax", "fmin", "nextafter",
          "hypot", "logaddexp", "logaddexp2", "kron")


@call(*_PAIRS, "heaviside")
def _of_two(c: OperatorCall) -> Result:
    names, d = c.promoted("self", "values" if c.op == "heaviside" else "other")
    if c.result.dtype.is_float and not d.is_float:
        names = [c.node("Cast", x, to=c.result.dtype.onnx) for x in names]
    return ztorch_op(c, c.op, *names)


@call("ldexp.Tensor")
def _scaled(c: OperatorCall) -> Result:
    d = c.result.dtype
    return c.node("Mul", c.cast(c.tensor(), d), c.node(
        "Pow", c.number(2, d), c.cast(c.tensor("other"), d)))


@call("isclose")
def _close(c: OperatorCall) -> Result:
    names, _ = c.promoted("self", "other")
    return ztorch_op(c, "isclose", *names, rtol=c.get("rtol", 1e-5), atol=c.get("atol", 1e-8),
                     equal_nan=bool(c.get("equal_nan", False)))


@call("isin.Tensor_Tensor", "isin.Tensor_Scalar")
def _among(c: OperatorCall) -> Result:
    names, _ = c.promoted("elements", "test_elements" if c.spec.target.endswith("_Tensor") else
                          "test_element")
    return ztorch_op(c, "isin", *names, invert=bool(c.get("invert", False)))


@call("nansum", "nanmean")
def _of_numbers(c: OperatorCall) -> Result:
    axes = c.integers("dim", ()) if c.get("dim") is not None else []
    return ztorch_op(c, c.op, c.x(), axis=tuple(axes) or None,
                     keepdims=bool(c.get("keepdim", False)))


@call("trapezoid.dx", "trapezoid.x", "trapz.dx", "trapz.x")
def _area(c: OperatorCall) -> Result:
    places = c.get("x")
    inputs = [c.x("y"), *([] if places is None else [places.name])]
    return ztorch_op(c, "trapezoid", *inputs, dx=float(c.get("dx", 1.0)), axis=c.get("dim", -1))


# -- formulas --------------------------------------------------------------------------------------


@call(*(f"{op}.{form}" for op in ("xlogy", "special_xlog1py")
        for form in ("Tensor", "Scalar_Self", "Scalar_Other", "self_scalar", "other_scalar")),
      "special_xlog1py", "xlogy")
def _times_log(c: OperatorCall) -> Result:
    """x log(y), which is 0 where x is 0, unless y is NaN."""
    (x, y), d = c.promoted("self", "other")
    if not d.is_float:
        x, y = (c.node("Cast", v, to=c.result.dtype.onnx) for v in (x, y))
        d = c.result.dtype
    zero, one = c.number(0, d), c.number(1, d)
    none = c.node("And", c.node("Equal", x, zero), c.node("Not", c.node("IsNaN", y)))
    safe = c.node("Where", none, one, y)
    log = ztorch_op(c, "log1p", safe) if "log1p" in c.op else c.node("Log", safe)
    return c.node("Where", none, zero, c.node("Mul", x, log))


@call("special_entr")
def _entropy(c: OperatorCall) -> Result:
    x, d = c.x(), c.tensor().dtype
    zero = c.number(0, d)
    above = c.node("Greater", x, zero)
    safe = c.node("Where", above, x, c.number(1, d))
    y = c.node("Neg", c.node("Mul", safe, c.node("Log", safe)))
    low = c.node("Where", c.node("Less", x, zero), c.number(-math.inf, d), zero)
    return c.node("Where", above, y, c.node("Where", c.node("IsNaN", x), x, low))


@call("special_ndtr")
def _normal(c: OperatorCall) -> Result:
    d = c.tensor().dtype
    tail = ztorch_op(c, "erfc", c.node("Mul", c.x(), c.number(-math.sqrt(0.5), d)))
    return c.node("Mul", tail, c.number(0.5, d))


@call("special_ndtri")
def _normal_inverse(c: OperatorCall) -> Result:
    d = c.tensor().dtype
    share = c.node("Sub", c.node("Mul", c.x(), c.number(2, d)), c.number(1, d))
    return c.node("Mul", ztorch_op(c, "erfinv", share), c.number(math.sqrt(2), d))


@call("float_power.Tensor_Scalar", "float_power.Tensor_Tensor", "float_power.Scalar")
def _float_power(c: OperatorCall) -> Result:
    d = c.result.dtype
    base, exponent = (c.get(name) for name in ("self", "exponent"))
    return c.node("Pow", c.number(base, d), c.number(exponent, d))


@call("count_nonzero", "count_nonzero.dim_IntList")
def _count(c: OperatorCall) -> Result:
    x, axes = c.tensor(), c.get("dim")
    axes = [axes] if isinstance(axes, int) else axes or []
    zero = c.number(0, x.dtype)
    nonzero = c.node("Cast", c.node("Not", c.node("Equal", x.name, zero)), to=c.result.dtype.onnx)
    return c.node("ReduceSum", nonzero, *([c.ints(*axes)] if axes else []), keepdims=0)


@call("median")
def _median(c: OperatorCall) -> Result:
    x = c.tensor()
    if not all(isinstance(n, int) for n in x.dims):
        c.unsupported("the median of a tensor of open size; pass dim=")
    count = math.prod(int(n) for n in x.dims)
    flat = c.node("Reshape", x.name, c.ints(-1))
    values, _ = c.nodes("TopK", [flat, c.ints((count + 1) // 2)], 2, axis=0, largest=0)
    return c.node("Gather", values, c.constant(np.int64(-1)), axis=0)
