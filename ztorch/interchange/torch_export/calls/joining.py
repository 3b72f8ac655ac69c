"""Operators that index flattened tensors, build diagonals, or join tensors."""

from __future__ import annotations

import math

import numpy as np

from ztorch.dtypes import i64
from ztorch.interchange.torch_export.calls.movement import axis_of
from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call


def _flattened(c: OperatorCall, x: CallTensor) -> str:
    return c.node("Reshape", x.name, c.ints(-1))


@call("take")
def _take(c: OperatorCall) -> Result:
    return c.node("Gather", _flattened(c, c.tensor()), c.x("index"), axis=0)


@call("take_along_dim")
def _take_along(c: OperatorCall) -> Result:
    x, at = c.tensor(), c.tensor("indices")
    if c.get("dim") is None:
        return c.node("Gather", _flattened(c, x), _flattened(c, at), axis=0)
    axis = axis_of(c, x)

    def spread(name: str, reference: str) -> str:
        """Expands a tensor to the size of another one along all axes but one."""
        shape = c.node("Shape", reference)
        parts = [c.node("Slice", shape, c.ints(a), c.ints(b), c.ints(0))
                 for a, b in ((0, axis), (axis + 1, x.rank))]
        return c.node("Expand", name, c.node("Concat", parts[0], c.ints(1), parts[1], axis=0))

    places = spread(at.name, x.name)
    return c.node("GatherElements", spread(x.name, places), places, axis=axis)


@call("index_fill.int_Scalar", "index_fill.int_Tensor")
def _fill(c: OperatorCall) -> Result:
    x, at = c.tensor(), c.tensor("index")
    axis = axis_of(c, x)
    if not isinstance(size := x.dims[axis], int):
        c.unsupported("positions along an axis whose size is open")
    places = c.node("Mod", c.node("Reshape", c.cast(at, i64), c.ints(-1, 1)),
                    c.constant(np.int64(size)))
    same = c.node("Cast", c.node("Equal", places, c.constant(np.arange(size))), to=i64.onnx)
    mask = c.node("Greater", c.node("ReduceSum", same, c.ints(0), keepdims=0),
                  c.constant(np.int64(0)))
    wide = c.node("Reshape", mask, c.ints(-1, *[1] * (x.rank - axis - 1)))
    return c.node("Where", wide, c.number(c.get("value"), x.dtype), x.name)


@call("put")
def _put(c: OperatorCall) -> Result:
    x = c.tensor()
    y = c.node("ScatterElements", _flattened(c, x), _flattened(c, c.tensor("index")),
               _flattened(c, c.tensor("source")), axis=0,
               reduction="add" if c.get("accumulate", False) else None)
    return c.node("Reshape", y, c.node("Shape", x.name))


@call("scatter.reduce", "scatter.value_reduce")
def _scatter(c: OperatorCall) -> Result:
    x, index = c.tensor(), c.tensor("index")
    if c.spec.target.endswith("value_reduce"):
        update = c.node("Expand", c.number(c.get("value"), x.dtype), c.node("Shape", index.name))
    else:
        update = c.node("Slice", c.x("src"), c.ints(*[0] * index.rank),
                        c.node("Shape", index.name))
    return c.node("ScatterElements", x.name, index.name, update, axis=axis_of(c, x),
                  reduction={"add": "add", "multiply": "mul"}[c.get("reduce")])


# -- diagonals -------------------------------------------------------------------------------------


@call("diag", "diagflat", "diag_embed")
def _diagonal(c: OperatorCall) -> Result:
    """A matrix with a vector as its diagonal; for a matrix, `diag` takes its diagonal."""
    x, by = c.tensor(), c.get("offset", c.get("diagonal", 0))
    if c.op == "diag" and x.rank == 2:
        return c.nodes("Diagonal", [x.name], 1, domain="ztorch", offset=by, axes=[0, 1])[0]
    name, size = x.name, x.dims[-1]
    if c.op == "diagflat":
        name = _flattened(c, x)
        sizes = [n for n in x.dims if isinstance(n, int)]
        size = math.prod(sizes) if len(sizes) == x.rank else "open"
    if not isinstance(size, int):
        c.unsupported("a diagonal of an open size")
    ends = [0] * (x.rank - 1 if c.op == "diag_embed" else 0)
    rows = c.node("Pad", name, c.ints(*ends, max(-by, 0), *ends, max(by, 0)))
    on = c.constant(np.eye(size + abs(by), k=by, dtype=bool))
    y = c.node("Where", on, c.node("Unsqueeze", rows, c.ints(-1)), c.number(0, x.dtype))
    if c.op != "diag_embed":
        return y
    first, second = (c.get(name, k - 2) % (x.rank + 1) for k, name in enumerate(("dim1", "dim2")))
    others = iter(range(x.rank - 1))
    return c.node("Transpose", y, perm=[
        x.rank - 1 if k == first else x.rank if k == second else next(others)
        for k in range(x.rank + 1)])


# -- joined ----------------------------------------------------------------------------------------


def _at_least(c: OperatorCall, x: CallTensor, rank: int) -> CallTensor:
    """x with axes of one element added where NumPy's atleast functions add them."""
    if x.rank >= rank:
        return x
    axes = {(0, 1): [0], (0, 2): [0, 1], (0, 3): [0, 1, 2], (1, 2): [0], (1, 3): [0, 2],
            (2, 3): [2]}[x.rank, rank]
    name, dims = c.node("Unsqueeze", x.name, c.ints(*axes)), list(x.dims)
    for axis in axes:
        dims.insert(axis, 1)
    return CallTensor(name, x.dtype, tuple(dims))


@call("atleast_1d", "atleast_2d", "atleast_3d")
def _wider(c: OperatorCall) -> Result:
    return _at_least(c, c.tensor(), int(c.op[-2])).name


@call("hstack", "vstack", "dstack", "column_stack")
def _stack(c: OperatorCall) -> Result:
    parts = c.get("tensors")
    if c.op == "column_stack":
        parts = [CallTensor(c.node("Reshape", x.name, c.ints(-1, 1)), x.dtype, (-1, 1))
                 if x.rank < 2 else x for x in parts]
    parts = [_at_least(c, x, {"vstack": 2, "dstack": 3}.get(c.op, 1)) for x in parts]
    axis = {"vstack": 0, "dstack": 2}.get(c.op, min(parts[0].rank - 1, 1))
    return c.node("Concat", *(c.cast(x, c.result.dtype) for x in parts), axis=axis)


@call("block_diag")
def _blocks(c: OperatorCall) -> Result:
    parts = [_at_least(c, x, 2) for x in c.get("tensors")]
    wide, rows = sum(int(x.dims[1]) for x in parts), list[str]()
    before = 0
    for x in parts:
        after = wide - before - int(x.dims[1])
        rows.append(c.node("Pad", c.cast(x, c.result.dtype), c.ints(0, before, 0, after)))
        before += int(x.dims[1])
    return c.node("Concat", *rows, axis=0)


@call("cartesian_prod")
def _product(c: OperatorCall) -> Result:
    parts = c.get("tensors")
    if len(parts) == 1:
        return parts[0].name
    wide = [c.node("Reshape", x.name, c.ints(*(-1 if k == a else 1 for a in range(len(parts)))))
            for k, x in enumerate(parts)]
    shape = c.node("Concat", *(c.node("Shape", x.name) for x in parts), axis=0)
    rows = [c.node("Reshape", c.node("Expand", w, shape), c.ints(-1, 1)) for w in wide]
    return c.node("Concat", *rows, axis=1)
