"""Reductions, sorting, running results, and positions of the largest elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from ztorch.dtypes import boolean, i32
from ztorch.interchange.torch_export.calls.movement import axis_of
from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call

_KINDS = {"sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin",
          "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd",
          "logsumexp": "ReduceLogSumExp"}


def _reduced(c: OperatorCall, kind: str, x: str) -> str:
    """A reduction over the axes in `dim`, or all."""
    axes = c.integers("dim", ()) if "dim" in c.spec.inputs else []
    keep = int(c.get("keepdim", False))
    return c.node(kind, x, c.ints(*axes), keepdims=keep) if axes else c.node(kind, x, keepdims=keep)


@call("sum", "sum.dim_IntList", "mean", "mean.dim", "amax", "amin", "max", "min", "prod",
      "prod.dim_int", "logsumexp")
def _reduce(c: OperatorCall) -> Result:
    return _reduced(c, _KINDS[c.op], c.cast(c.tensor(), c.result.dtype))


@call("max.dim", "min.dim")
def _largest(c: OperatorCall) -> Result:
    return [_reduced(c, _KINDS[c.op], c.x()), _position(c, c.op)]


@call("argmax", "argmin")
def _argmax(c: OperatorCall) -> Result:
    if c.get("dim") is not None:
        return _position(c, c.op.removeprefix("arg"))
    x, keep = c.tensor(), c.get("keepdim", False)
    flat = c.node("Reshape", x.name, c.ints(-1))
    return c.node("Reshape", c.node(f"Arg{c.op[3:].capitalize()}", flat, axis=0),
                  c.ints(*[1] * (x.rank if keep else 0)))


def _position(c: OperatorCall, kind: str) -> str:
    return c.node(f"Arg{kind.capitalize()}", c.x(), axis=c.get("dim"),
                  keepdims=int(c.get("keepdim", False)))


@call("any", "any.dim", "any.dims", "all", "all.dim", "all.dims")
def _any(c: OperatorCall) -> Result:
    truth = c.cast(c.tensor(), boolean)
    numbers = c.node("Cast", truth, to=i32.onnx)
    kind = "ReduceMax" if c.op == "any" else "ReduceMin"
    return c.node("Cast", _reduced(c, kind, numbers), to=boolean.onnx)


@call(*(f"{op}.{overload}" for op in ("var", "std", "var_mean", "std_mean") for overload in (
    "correction", "dim")))
def _variance(c: OperatorCall) -> Result:
    x, axes = c.tensor(), c.integers("dim", ())
    axes = axes or list(range(x.rank))
    correction = c.get("correction", int(c.get("unbiased", True)))
    count = _count(c, x, axes)
    over = c.ints(*axes)
    centered = c.node("Sub", x.name, c.node("ReduceMean", x.name, over, keepdims=1))
    total = c.node("ReduceSum", c.node("Mul", centered, centered), over,
                   keepdims=int(c.get("keepdim", False)))
    variance = c.node("Div", total, c.number(float(count - correction), x.dtype))
    if c.op.endswith("_mean"):
        spread = _root(c, variance, 2) if c.op == "std_mean" else variance
        return [spread, c.node("ReduceMean", x.name, over, keepdims=int(c.get("keepdim", False)))]
    return _root(c, variance, 2) if c.op == "std" else variance


def _root(c: OperatorCall, total: str, order: float) -> str:
    """The root of a sum of powers, with gradient 0 at 0, as PyTorch has it for norms."""
    return c.nodes("Root", [total], 1, domain="ztorch", order=float(order))[0]


def _count(c: OperatorCall, x: CallTensor, axes: list[int]) -> int:
    sizes = [x.dims[a] for a in axes]
    if not all(isinstance(n, int) for n in sizes):
        c.unsupported("the variance along an open axis")
    return math.prod(int(n) for n in sizes)


@call("linalg_vector_norm", "norm.ScalarOpt_dim", "norm.Scalar")
def _norm(c: OperatorCall) -> Result:
    return norm_of(c, c.get("ord", c.get("p", 2)), c.tensor(), partial(_reduced, c))


def norm_of(c: OperatorCall, order: float, x: CallTensor,
            reduced: Callable[[str, str], str]) -> str:
    """The norm of x of an order; `reduced(op, x)` reduces x along the axes of the norm."""
    if order in (1, 2):
        return reduced(f"ReduceL{int(order)}", x.name)
    size = c.node("Abs", x.name)
    if math.isinf(order):
        return reduced("ReduceMax" if order > 0 else "ReduceMin", size)
    if order == 0:
        nonzero = c.node("Not", c.node("Equal", x.name, c.number(0, x.dtype)))
        return reduced("ReduceSum", c.node("Cast", nonzero, to=x.dtype.onnx))
    powers = c.node("Pow", size, c.number(order, x.dtype))
    return _root(c, reduced("ReduceSum", powers), order)


@call("dist")
def _distance(c: OperatorCall) -> Result:
    x = c.tensor()
    difference = CallTensor(c.node("Sub", x.name, c.x("other")), x.dtype, x.dims)
    return norm_of(c, c.get("p", 2), difference, lambda op, y: c.node(op, y, keepdims=0))


@call("cumsum")
def _cumsum(c: OperatorCall) -> Result:
    return c.node("CumSum", c.cast(c.tensor(), c.result.dtype),
                  c.constant(np.int64(c.get("dim"))))


@call("cumprod")
def _cumprod(c: OperatorCall) -> Result:
    return c.node("CumProd", c.cast(c.tensor(), c.result.dtype),
                  c.constant(np.int64(c.get("dim"))))


@call("logcumsumexp")
def _log_cumsum_exp(c: OperatorCall) -> Result:
    return c.nodes("LogCumSumExp", [c.x()], 1, domain="ztorch", axis=axis_of(c, c.tensor()))[0]


@call("cummax", "cummin")
def _running(c: OperatorCall) -> Result:
    """The largest element so far, and its last position."""
    x, axis = c.tensor(), axis_of(c, c.tensor())
    [y] = c.nodes({"cummax": "CumMax", "cummin": "CumMin"}[c.op], [x.name], 1, domain="ztorch",
                  axis=axis)
    if not isinstance(size := x.dims[axis], int):
        c.unsupported("positions along an open axis")
    positions = c.constant(np.arange(size).reshape(-1, *[1] * (x.rank - axis - 1)))
    running = c.node("Where", c.node("Equal", x.name, y), positions, c.constant(np.int64(0)))
    return [y, c.nodes("CumMax", [running], 1, domain="ztorch", axis=axis)[0]]


@call(*(f"{op}{end}" for op in ("quantile", "nanquantile") for end in ("", ".scalar")))
def _quantile(c: OperatorCall) -> Result:
    x, q, axis = c.tensor(), c.get("q"), c.get("dim")
    fractions = q.name if isinstance(q, CallTensor) else c.constant(np.float64(q))
    return c.nodes("Quantile", [x.name, fractions], 1, domain="ztorch", axis=axis,
                   keepdims=int(c.get("keepdim", False)), method=c.get("interpolation", "linear"),
                   without_nans=int(c.op == "nanquantile"))[0]


@call("bucketize.Tensor", "searchsorted.Tensor")
def _buckets(c: OperatorCall) -> Result:
    edges = "boundaries" if c.op == "bucketize" else "sorted_sequence"
    if c.tensor(edges).rank != 1 or c.get("sorter") is not None:
        c.unsupported("edges that are not a sorted vector")
    inputs, _ = c.promoted(edges, "self")
    side = "right" if c.get("right", False) else c.get("side", "left")
    [positions] = c.nodes("SearchSorted", inputs, 1, domain="ztorch", side=side)
    return c.node("Cast", positions, to=c.result.dtype.onnx)


@call("sort", "sort.stable", "argsort", "argsort.stable", "msort")
def _sort(c: OperatorCall) -> Result:
    x, axis = c.tensor(), c.get("dim", 0 if c.op == "msort" else -1)
    size = c.node("Gather", c.node("Shape", x.name), c.ints(axis), axis=0)
    order = c.nodes("TopK", [x.name, size], 2, axis=axis, largest=int(c.get("descending", False)))
    return order[1] if c.op == "argsort" else order[0] if c.op == "msort" else order


@call("aminmax")
def _ends(c: OperatorCall) -> Result:
    return [_reduced(c, kind, c.x()) for kind in ("ReduceMin", "ReduceMax")]


@call("topk")
def _top(c: OperatorCall) -> Result:
    return c.nodes("TopK", [c.x(), c.ints(c.get("k"))], 2, axis=c.get("dim", -1),
                   largest=int(c.get("largest", True)))
