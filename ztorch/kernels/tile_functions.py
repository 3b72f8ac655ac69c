"""Functions of whole tiles: reductions along axes, products, movement, sorting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean, i32, u32
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.kernels.arithmetic import TileArithmetic
from ztorch.kernels.tiles import LETTERS, LoopTensor, full, union

# Of which axes keep their numbers, but for transposes and reshapes; new ones come last.
_MOVEMENTS = ("transpose", "reshape", "windows", "slice", "pad")
FunctionRule = Callable[..., Any]  # (arithmetic, *arguments, **named) -> value


class BadCall(Exception):
    """Arguments that a word cannot take; the message says why."""


def _places(x: LoopTensor, axis: Any) -> tuple[int, ...]:
    """The axes of the tensor that are axes of the tile."""
    rank, loops = len(x.shape), len(x.axes)
    if axis is None:
        return tuple(range(loops, loops + rank))
    axes = axis if isinstance(axis, tuple) else (axis,)
    for k in axes:
        if type(k) is not int or not -rank <= k < rank:
            raise BadCall(f"axis {k!r} is not an axis of an array of shape {list(x.shape)}")
    if len({k % rank for k in axes}) < len(axes):
        raise BadCall(f"an axis occurs twice in {axes}")
    return tuple(loops + k % rank for k in axes)


def _place(x: LoopTensor, axis: Any, more: int = 0) -> int:
    """The axis of the tensor that is one axis of the tile, or of one with more axes."""
    rank = len(x.shape) + more
    if type(axis) is not int or not -rank <= axis < rank:
        shape = f"an array of shape {list(x.shape)}" + (" and one axis more" if more else "")
        raise BadCall(f"axis {axis!r} is not an axis of {shape}")
    return len(x.axes) + axis % rank


def _counting(d: DType) -> DType:
    """The dtype of sums and products: small integers do not run over, as in NumPy."""
    small = d is boolean or (d.is_int and d.bits < 32)
    return d if not small else u32 if d.kind == "u" else i32


def _reduction(name: str) -> FunctionRule:
    def rule(a: TileArithmetic, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        x = a.tile(x)
        places = _places(x, axis)
        if not places and not name.startswith("a"):
            return x
        value = x.value if x.shape or not name.startswith("a") else a.truth(x).value
        if name in ("sum", "prod"):
            value = OPS.cast(value, _counting(value.dtype))
        if name == "mean" and not value.dtype.is_float:
            value = OPS.cast(value, a.float)
        if name.startswith("arg"):
            if axis is None:
                value = OPS.reshape(x.value, (*[v.extent for v in x.axes], -1))
            at = len(x.axes) if axis is None else _place(x, axis)
            y = getattr(OPS, name)(value, axis=at, keepdims=keepdims)
            return LoopTensor(OPS.cast(y, i32), x.axes)
        last = len(x.axes) - 1
        if len(places) == len(x.shape) and not keepdims and _adjacent(value) == last >= 0:
            # So that the last loop fills vectors, as in windows of images whose channels are last.
            value = OPS.transpose(value, (*range(last), *places, last))
            places = tuple(k - 1 for k in places)
        return LoopTensor(getattr(OPS, name)(value, axis=places, keepdims=keepdims), x.axes)
    return rule


def _adjacent(v: Value) -> int | None:
    """The axis whose neighbors are adjacent in memory, if movement alone decides that."""
    last = v.rank - 1 if v.rank else None
    inner = _adjacent(v.args[0]) if v.op.name in _MOVEMENTS else last
    if inner is None or v.op.name not in ("transpose", "reshape"):
        return inner
    if v.op.name == "transpose":
        return v.attrs["axes"].index(inner)
    x = v.args[0]
    return last if inner == x.rank - 1 and v.rank and v.shape[-1] == x.shape[-1] else None


def _matmul(a: TileArithmetic, x: Any, y: Any) -> Any:
    """The matrix product of tiles."""
    x, y = a.tile(x), a.tile(y)
    if not x.shape or not y.shape:
        raise BadCall("@ takes arrays of one axis or more; use * for numbers")
    d = a.common([x, y])
    axes = union([x.axes, y.axes])
    row, column = len(x.shape) == 1, len(y.shape) == 1
    columns, rows = x.shape[-1], y.shape[0 if column else -2]
    if columns != rows:
        raise BadCall(f"arrays of shapes {list(x.shape)} and {list(y.shape)} do not multiply: "
                      f"{columns} columns, {rows} rows")
    if len(x.shape) > 2 or len(y.shape) > 2:
        raise BadCall("@ takes arrays of one or two axes; loop over the others")
    # Loops that only one side depends on are rows or columns of one large product.
    letter = dict(zip(axes, LETTERS, strict=False))
    left, right = ("".join(letter[v] for v in t.axes) for t in (x, y))
    both = "".join(letter.values())
    left, right = left + ("Z" if row else "YZ"), right + ("Z" if column else "ZX")
    result = both + ("" if row else "Y") + ("" if column else "X")
    sides = [a.cast(t, d).value for t in (x, y)]
    return LoopTensor(OPS.einsum(f"{left},{right}->{result}", *sides), axes)


def _transpose(a: TileArithmetic, x: Any, *order: Any) -> Any:
    x = a.tile(x)
    if len(order) == 1 and isinstance(order[0], tuple):
        order = order[0]
    loops = len(x.axes)
    axes = order or tuple(reversed(range(len(x.shape))))
    return LoopTensor(OPS.transpose(x.value, (*range(loops), *(loops + k for k in axes))), x.axes)


def _reshape(a: TileArithmetic, x: Any, *shape: Any) -> Any:
    x = a.tile(x)
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
    return LoopTensor(OPS.reshape(x.value, (*[v.extent for v in x.axes], *sizes)), x.axes)


def _along(name: str, default: int | None = -1) -> FunctionRule:
    """An op along one axis that keeps the shape, such as sorting."""
    def rule(a: TileArithmetic, x: Any, axis: int | None = default) -> Any:
        x = a.tile(x)
        if axis is None:
            x, axis = _reshape(a, x, -1), 0
        value = OPS.cast(x.value, _counting(x.dtype)) if name == "cumsum" else x.value
        y = getattr(OPS, name)(value, axis=_place(x, axis))
        return LoopTensor(OPS.cast(y, i32) if name == "argsort" else y, x.axes)
    return rule


def _outer(a: TileArithmetic, x: Any, y: Any) -> Any:
    x, y = (_reshape(a, a.tile(t), -1) for t in (x, y))
    return a.apply("mul", LoopTensor(OPS.expand_dims(x.value, x.value.rank), x.axes), y)


def _swapaxes(a: TileArithmetic, x: Any, first: int, second: int) -> Any:
    x = a.tile(x)
    one, other = (_place(x, k) for k in (first, second))
    order = list(range(x.value.rank))
    order[one], order[other] = other, one
    return LoopTensor(OPS.transpose(x.value, tuple(order)), x.axes)


def _expand(a: TileArithmetic, x: Any, axis: int) -> Any:
    x = a.tile(x)
    shape = list(x.shape)
    shape.insert(_place(x, axis, 1) - len(x.axes), 1)
    return _reshape(a, x, tuple(shape))


def _split(a: TileArithmetic, x: Any, parts: Any, axis: int = 0) -> tuple[LoopTensor, ...]:
    """Parts of a tile, one after the other: a number of equal ones, or where they begin."""
    x = a.tile(x)
    at = _place(x, axis)
    size = x.value.shape[at]
    if isinstance(parts, int):
        if parts < 1 or size % parts:
            raise BadCall(f"axis {axis} of an array of shape {list(x.shape)} has {size} elements, "
                          f"which do not make {parts} equal parts")
        parts = tuple(range(size // parts, size, size // parts))
    if not isinstance(parts, tuple) or not all(isinstance(n, int) for n in parts):
        raise BadCall("np.split takes a number of parts, or where parts begin, that are known "
                      "while compiling")
    ends = [slice(n).indices(size)[1] for n in parts]
    spans = [slice(*span) for span in itertools.pairwise((0, *ends, size))]
    return tuple(LoopTensor(OPS.slice_by(x.value, (slice(None),) * at + (span,)), x.axes, x.weak)
                 for span in spans)


def _joined(name: str) -> FunctionRule:
    """Tiles put together along an axis, which may be a new one."""
    def rule(a: TileArithmetic, xs: Any, axis: int = 0) -> Any:
        if not isinstance(xs, (tuple, list)) or not xs:
            raise BadCall("this takes a tuple of arrays")
        tiles = [a.tile(x) for x in xs]
        d, axes = a.common(tiles), union(t.axes for t in tiles)
        at = _place(tiles[0], axis, name == "stack") - len(tiles[0].axes)
        values = [full(a.cast(t, d), axes) for t in tiles]
        return LoopTensor(getattr(OPS, name)(*values, axis=len(axes) + at), axes)
    return rule


def _spread_of(root: bool) -> FunctionRule:
    """The variance, or its square root."""
    def rule(a: TileArithmetic, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        x = a.tile(x)
        count = math.prod(x.value.shape[k] for k in _places(x, axis))
        apart = a.apply("sub", x, _reduction("mean")(a, x, axis, True))
        total = _reduction("sum")(a, a.apply("mul", apart, apart), axis, keepdims)
        variance = a.apply("divide", total, float(count))
        return a.apply("sqrt", variance) if root else variance
    return rule


def _copy(a: TileArithmetic, x: Any) -> Any:
    """The same values: a kernel's arrays never share memory."""
    return a.tile(x)


def _triangle(name: str) -> FunctionRule:
    def rule(a: TileArithmetic, x: Any, k: int = 0) -> Any:
        return LoopTensor(getattr(OPS, name)(x.value, k=k), x.axes)
    return rule


REDUCTIONS: dict[str, FunctionRule] = {
    **{name: _reduction(name) for name in ("sum", "prod", "max", "min", "mean", "any", "all",
                                           "argmax", "argmin")},
    "var": _spread_of(False), "std": _spread_of(True)}
OF_TILES: dict[Any, FunctionRule] = {
    **{getattr(np, name): rule for name, rule in REDUCTIONS.items()},
    np.dot: _matmul, np.matmul: _matmul, np.transpose: _transpose, np.reshape: _reshape,
    np.sort: _along("sort"), np.argsort: _along("argsort"), np.cumsum: _along("cumsum", None),
    np.outer: _outer, np.split: _split, np.swapaxes: _swapaxes, np.expand_dims: _expand,
    np.concatenate: _joined("concat"), np.stack: _joined("stack"), np.tril: _triangle("tril"),
    np.triu: _triangle("triu"), np.copy: _copy}
METHODS: dict[str, FunctionRule] = {
    **REDUCTIONS, "transpose": _transpose, "reshape": _reshape, "dot": _matmul,
    "swapaxes": _swapaxes, "cumsum": _along("cumsum", None), "copy": _copy}
