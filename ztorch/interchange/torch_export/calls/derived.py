"""Operators that are short formulas of other operators."""

from __future__ import annotations

import math

import numpy as np

from ztorch.interchange.torch_export.calls.reduction import norm_of
from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call


@call("bilinear")
def _bilinear(c: OperatorCall) -> Result:
    y = c.node("Einsum", c.x("input1"), c.x("weight"), c.x("input2"),
               equation="...i,oij,...j->...o")
    bias = c.get("bias")
    return y if bias is None else c.node("Add", y, bias.name)


@call("_trilinear")
def _trilinear(c: OperatorCall) -> Result:
    """The sum of the products of three tensors, each with some axes added."""
    y = ""
    for k in (1, 2, 3):
        axes = sorted(c.integers(f"expand{k}"))
        x = c.x(f"i{k}")
        x = c.node("Unsqueeze", x, c.ints(*axes)) if axes else x
        y = c.node("Mul", y, x) if y else x
    return c.node("ReduceSum", y, c.ints(*c.integers("sumdim")), keepdims=0)


@call("rrelu", "rrelu_with_noise_functional")
def _random_relu(c: OperatorCall) -> Result:
    if c.get("training", False):
        c.unsupported("training=True; export module.eval()")
    return c.node("LeakyRelu", c.x(), alpha=(c.get("lower", 1 / 8) + c.get("upper", 1 / 3)) / 2)


@call("pairwise_distance")
def _distance(c: OperatorCall) -> Result:
    order, x, keep = c.get("p", 2.0), c.tensor("x1"), int(c.get("keepdim", False))
    epsilon = c.number(c.get("eps", 1e-6), x.dtype)
    difference = c.node("Add", c.node("Sub", x.name, c.x("x2")), epsilon)
    return norm_of(c, order, CallTensor(difference, x.dtype, x.dims),
                   lambda op, y: c.node(op, y, c.ints(-1), keepdims=keep))


@call("deg2rad", "rad2deg")
def _angle(c: OperatorCall) -> Result:
    factor = math.pi / 180 if c.op == "deg2rad" else 180 / math.pi
    d = c.result.dtype
    return c.node("Mul", c.cast(c.tensor(), d), c.number(factor, d))


@call("logit")
def _logit(c: OperatorCall) -> Result:
    x, least = c.tensor(), c.get("eps")
    y = x.name if least is None else c.node(
        "Clip", x.name, c.number(least, x.dtype), c.number(1 - least, x.dtype))
    return c.node("Log", c.node("Div", y, c.node("Sub", c.number(1.0, x.dtype), y)))


@call("cross", "linalg_cross")
def _cross(c: OperatorCall) -> Result:
    axis = c.get("dim", -1 if c.op == "linalg_cross" else None)
    if axis is None:
        axis = c.tensor().dims.index(3)

    def rotated(x: str, by: int) -> str:
        return c.node("Gather", x, c.constant(np.roll(np.arange(3), by)), axis=axis)

    x, y = c.x(), c.x("other")
    return c.node("Sub", c.node("Mul", rotated(x, -1), rotated(y, 1)),
                  c.node("Mul", rotated(x, 1), rotated(y, -1)))


@call("kthvalue", "median.dim")
def _of_rank(c: OperatorCall) -> Result:
    """The k-th smallest element, and its position."""
    x, axis = c.tensor(), c.get("dim", -1)
    size = x.dims[axis]
    if not isinstance(size, int):
        c.unsupported("an order statistic along an open axis")
    rank = c.get("k") if c.op == "kthvalue" else (size + 1) // 2
    keep = int(c.get("keepdim", False))
    at = c.constant(np.array([rank - 1] if keep else rank - 1, np.int64))
    return [c.node("Gather", part, at, axis=axis)
            for part in c.nodes("TopK", [x.name, c.ints(rank)], 2, axis=axis, largest=0)]


@call("eye", "eye.m")
def _identity(c: OperatorCall) -> Result:
    rows = c.get("n")
    if not isinstance(rows, int) or not isinstance(columns := c.get("m", rows), int):
        c.unsupported("an identity of an open size")
    return c.constant(np.eye(rows, columns, dtype=c.result.dtype.working))
