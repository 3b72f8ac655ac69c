"""Norms, ranks and functions of matrices, and solutions by Cholesky factors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.interchange.torch_export.calls.own_ops import ztorch_op
from ztorch.interchange.torch_export.calls.reduction import norm_of
from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call


def _matrix(c: OperatorCall) -> CallTensor:
    return c.tensor(next(name for name in ("self", "A", "input") if name in c.spec.inputs))


def _transposed(c: OperatorCall, x: str, rank: int) -> str:
    return c.node("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])


def _sides(c: OperatorCall, x: CallTensor) -> tuple[int, int]:
    rows, columns = x.dims[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        c.unsupported("matrices of open size")
    return rows, columns


@call("matrix_exp", "linalg_matrix_exp")
def _exponential(c: OperatorCall) -> Result:
    return c.nodes("MatrixExp", [_matrix(c).name], 1, domain="ztorch")[0]


# -- singular values -------------------------------------------------------------------------------


def _singular_values(c: OperatorCall, x: CallTensor) -> str:
    return c.nodes("SVDVals", [x.name], 1, domain="ztorch")[0]


def _tolerance(c: OperatorCall, x: CallTensor, values: str) -> str:
    """The singular value up to which PyTorch treats them as 0, with an axis of one element."""
    default = 1e-15 if c.op == "pinverse" else None
    atol, rtol = c.get("atol"), c.get("rtol", c.get("rcond", c.get("tol", default)))
    if c.op == "linalg_matrix_rank" and "tol" in c.spec.inputs:
        atol, rtol = rtol, 0.0
    if rtol is None:
        absolute = isinstance(atol, (int, float)) and atol > 0
        rtol = 0.0 if absolute else max(_sides(c, x)) * float(np.finfo(x.dtype.working).eps)
    largest = c.node("ReduceMax", values, c.ints(-1), keepdims=1)
    relative = c.node("Mul", largest, _wide(c, rtol, x))
    return relative if atol is None else c.node("Max", relative, _wide(c, atol, x))


def _wide(c: OperatorCall, limit: Any, x: CallTensor) -> str:
    """A tolerance for all matrices, or one for each, with an axis for their singular values."""
    name = c.number(limit, x.dtype)
    return c.node("Unsqueeze", name, c.ints(-1)) if isinstance(
        limit, CallTensor) and limit.rank else name


_TOLERANCES = ("default", "atol_rtol_tensor", "atol_rtol_float")


@call(*(f"linalg_pinv.{form}" for form in (*_TOLERANCES, "rcond_tensor")), "pinverse")
def _pseudoinverse(c: OperatorCall) -> Result:
    x = _matrix(c)
    u, s, vh = c.nodes("SVD", [x.name], 3, domain="ztorch", full=0)
    real = c.node("Greater", s, _tolerance(c, x, s))
    safe = c.node("Where", real, s, c.number(1, x.dtype))
    inverse = c.node("Where", real, c.node("Reciprocal", safe), c.number(0, x.dtype))
    scaled = c.node("Mul", _transposed(c, vh, x.rank), c.node("Unsqueeze", inverse, c.ints(-2)))
    return c.node("MatMul", scaled, _transposed(c, u, x.rank))


@call(*(f"linalg_matrix_rank.{form}" for form in (*_TOLERANCES, "tol_tensor")))
def _rank(c: OperatorCall) -> Result:
    x = _matrix(c)
    s = _singular_values(c, x)
    real = c.node("Cast", c.node("Greater", s, _tolerance(c, x, s)), to=c.result.dtype.onnx)
    return c.node("ReduceSum", real, c.ints(-1), keepdims=0)


@call("linalg_matrix_norm", "linalg_matrix_norm.str_ord")
def _norm(c: OperatorCall) -> Result:
    axes = c.integers("dim", (-2, -1))
    return _norm_along(c, c.get("ord", "fro"), axes)


@call("linalg_norm", "linalg_norm.ord_str")
def _any_norm(c: OperatorCall) -> Result:
    x, order = c.tensor(), c.get("ord")
    axes = c.integers("dim") if c.get("dim") is not None else None
    if order is None or (axes is None and x.rank == 1) or (axes is not None and len(axes) == 1):
        flat = x if axes is not None else CallTensor(
            c.node("Reshape", x.name, c.ints(-1)), x.dtype, (-1,))
        keep = int(c.get("keepdim", False))
        if axes is None and keep and x.rank > 1:
            c.unsupported("keepdim=True without dim=")
        return norm_of(c, 2 if order is None else order, flat,
                       lambda op, y: c.node(op, y, c.ints(*(axes or [0])), keepdims=keep))
    return _norm_along(c, order, axes or [-2, -1])


def _norm_along(c: OperatorCall, order: Any, axes: list[int]) -> str:
    """The norm of matrices along two axes."""
    x, keep = _matrix(c), int(c.get("keepdim", False))
    rows, columns = (a % x.rank for a in axes)

    def reduced(op: str, y: str, *over: int) -> str:
        return c.node(op, y, c.ints(*over), keepdims=1)

    if order == "fro":
        y = reduced("ReduceL2", x.name, rows, columns)
    elif order in (1, -1, math.inf, -math.inf):
        summed, reduced_axis = (rows, columns) if abs(order) == 1 else (columns, rows)
        y = reduced("ReduceMax" if order > 0 else "ReduceMin",
                    reduced("ReduceSum", c.node("Abs", x.name), summed), reduced_axis)
    elif order in ("nuc", 2, -2):
        front = [k for k in range(x.rank) if k not in (rows, columns)]
        turned = c.node("Transpose", x.name, perm=[*front, rows, columns])
        s = c.nodes("SVDVals", [turned], 1, domain="ztorch")[0]
        kind = {"nuc": "ReduceSum", 2: "ReduceMax", -2: "ReduceMin"}[order]
        y = c.node(kind, s, c.ints(-1), keepdims=0)
        return c.node("Unsqueeze", y, c.ints(*sorted((rows, columns)))) if keep else y
    else:
        c.unsupported(f"a norm of matrices of order {order!r}")
    return y if keep else c.node("Squeeze", y, c.ints(rows, columns))


@call("linalg_cond")
def _condition(c: OperatorCall) -> Result:
    x, order = _matrix(c), c.get("p", 2)
    if order not in (2, -2):
        c.unsupported(f"the condition number of order {order!r}")
    s = _singular_values(c, x)
    ends = [c.node(op, s, c.ints(-1), keepdims=0) for op in ("ReduceMax", "ReduceMin")]
    return c.node("Div", *ends[::1 if order == 2 else -1])


@call("svd")
def _svd(c: OperatorCall) -> Result:
    if not c.get("compute_uv", True):
        return c.unsupported("compute_uv=False of torch.svd; torch.linalg.svdvals gives the values")
    x = c.tensor()
    u, s, vh = c.nodes("SVD", [x.name], 3, domain="ztorch", full=int(not c.get("some", True)))
    return [u, s, _transposed(c, vh, x.rank)]


@call("qr")
def _qr(c: OperatorCall) -> Result:
    return c.nodes("QR", [c.x()], 2, domain="ztorch",
                   mode="reduced" if c.get("some", True) else "complete")


# -- Cholesky factors ------------------------------------------------------------------------------


@call("cholesky")
def _cholesky(c: OperatorCall) -> Result:
    return c.nodes("Cholesky", [c.x()], 1, domain="ztorch",
                   upper=int(c.get("upper", False)) or None)[0]


@call("cholesky_solve", "cholesky_inverse")
def _by_factor(c: OperatorCall) -> Result:
    """X of L Lᵀ X = B, by two triangular systems."""
    inverse = c.op == "cholesky_inverse"
    factor = c.tensor() if inverse else c.tensor("input2")
    lower = factor.name
    if c.get("upper", False):
        lower = _transposed(c, lower, factor.rank)
    right = c.constant(np.eye(_sides(c, factor)[0], dtype=factor.dtype.working)) if (
        inverse) else c.x()
    half = c.nodes("SolveTriangular", [lower, right], 1, domain="ztorch", upper=0)[0]
    upper = _transposed(c, lower, factor.rank)
    return c.nodes("SolveTriangular", [upper, half], 1, domain="ztorch", upper=1)[0]


# -- products and tensor inverses ------------------------------------------------------------------


@call("linalg_vecdot", "inner")
def _dots(c: OperatorCall) -> Result:
    if c.op == "inner":
        return ztorch_op(c, "inner", c.x(), c.x("other"))
    x, axis = c.tensor("x"), c.get("dim", -1)
    return c.node("ReduceSum", c.node("Mul", x.name, c.x("y")), c.ints(axis), keepdims=0)


@call("linalg_vander", "vander")
def _powers(c: OperatorCall) -> Result:
    x = c.tensor("x")
    count = c.get("N", x.dims[-1])
    if not isinstance(count, int):
        c.unsupported("as many powers as an open axis has elements")
    falls = c.op == "vander" and not c.get("increasing", False)
    powers = np.arange(count)[::-1] if falls else np.arange(count)
    return c.node("Pow", c.node("Unsqueeze", x.name, c.ints(-1)),
                  c.constant(powers.astype(x.dtype.working)))


@call("linalg_tensorinv", "linalg_tensorsolve")
def _of_tensor(c: OperatorCall) -> Result:
    """The inverse, or a solution, of a tensor that is reshaped to a matrix."""
    x = _matrix(c)
    if not all(isinstance(n, int) for n in x.dims):
        c.unsupported("a tensor of open size")
    dims = [int(n) for n in x.dims]
    if c.op == "linalg_tensorinv":
        first = c.get("ind", 2)
        side = math.prod(dims[:first])
        y = c.nodes("Inverse", [c.node("Reshape", x.name, c.ints(side, side))], 1,
                    domain="ztorch")[0]
        return c.node("Reshape", y, c.ints(*dims[first:], *dims[:first]))
    if c.get("dims") is not None:
        c.unsupported("dims=; permute the axes instead")
    b = c.tensor("other")
    side = math.prod(int(n) for n in b.dims)
    y = c.nodes("Solve", [c.node("Reshape", x.name, c.ints(side, side)),
                          c.node("Reshape", b.name, c.ints(side, 1))], 1, domain="ztorch")[0]
    return c.node("Reshape", y, c.ints(*dims[b.rank:]))
