"""The functions that kernels may call, and what they compute: one row each.

A row is found by the function itself, such as `numpy.exp`, so that it does not matter how a user
imports it. Run as plain Python, a kernel calls the function; compiled, it means the op of the row.
"""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean, dtype, f64, i32
from ztorch.errors import UnknownName
from ztorch.graph.op import OPS
from ztorch.kernels.arithmetic import NUMBERS, TileArithmetic
from ztorch.kernels.tiles import LETTERS, Affine, LoopTensor, full, union

Word = Callable[..., Any]  # (arithmetic, *arguments, **named) -> value


class BadCall(Exception):
    """Arguments that a word cannot take; the message says why."""


def grid(*extents: int) -> Iterator[Any]:
    """The turns of nested loops that have no order: all of them may run at the same time.

    Args:
        *extents: Number of turns of each loop.

    Returns:
        An iterator of tuples; of integers for a single loop.

    Examples:
        >>> list(grid(2, 2))
        [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    if len(extents) == 1:
        return iter(range(extents[0]))
    return itertools.product(*map(range, extents))


# -- element by element ----------------------------------------------------------------------------

_ELEMENTWISE = {  # by the name of the op: the functions that mean it
    "sin": (np.sin, math.sin), "cos": (np.cos, math.cos), "tan": (np.tan, math.tan),
    "asin": (np.arcsin, math.asin), "acos": (np.arccos, math.acos),
    "atan": (np.arctan, math.atan), "atan2": (np.arctan2, math.atan2),
    "sinh": (np.sinh, math.sinh), "cosh": (np.cosh, math.cosh), "tanh": (np.tanh, math.tanh),
    "asinh": (np.arcsinh, math.asinh), "acosh": (np.arccosh, math.acosh),
    "atanh": (np.arctanh, math.atanh), "exp": (np.exp, math.exp), "exp2": (np.exp2,),
    "expm1": (np.expm1, math.expm1), "log": (np.log, math.log), "log2": (np.log2, math.log2),
    "log10": (np.log10, math.log10), "log1p": (np.log1p, math.log1p),
    "sqrt": (np.sqrt, math.sqrt), "erf": (math.erf,), "hypot": (np.hypot, math.hypot),
    "reciprocal": (np.reciprocal,), "floor": (np.floor,), "ceil": (np.ceil,),
    "trunc": (np.trunc,), "round": (np.rint,), "logaddexp": (np.logaddexp,)}
_KEEPING = {  # of numbers of any kind, in their dtype
    "abs": (builtins.abs, np.abs, np.fabs, math.fabs), "sign": (np.sign,), "neg": (np.negative,),
    "square": (np.square,), "maximum": (np.maximum, np.fmax), "minimum": (np.minimum, np.fmin)}


def _elementwise(name: str) -> Word:
    def word(a: TileArithmetic, *xs: Any) -> Any:
        d = a.common(xs)
        return a.apply(name, *xs, dtype=d if d.is_float else a.float)
    return word


def _keeping(name: str) -> Word:
    def word(a: TileArithmetic, *xs: Any) -> Any:
        return a.apply(name, *xs)
    return word


def _extreme(name: str) -> Word:
    """Python's `min` and `max`: of several numbers, or of all elements of one tile."""
    def word(a: TileArithmetic, *xs: Any) -> Any:
        if len(xs) == 1:
            if isinstance(xs[0], LoopTensor):
                return _reduction(name[:3])(a, xs[0])
            xs = tuple(xs[0])
        total = xs[0]
        for x in xs[1:]:
            if isinstance(total, NUMBERS) and isinstance(x, NUMBERS):
                total = max(total, x) if name == "maximum" else min(total, x)
            else:
                total = a.apply(name, total, x)
        return total
    return word


# -- of whole tiles --------------------------------------------------------------------------------


def _places(x: LoopTensor, axis: Any) -> tuple[int, ...]:
    """The axes of the tensor that are axes of the tile."""
    rank, loops = len(x.shape), len(x.axes)
    if axis is None:
        return tuple(range(loops, loops + rank))
    axes = axis if isinstance(axis, tuple) else (axis,)
    for k in axes:
        if not isinstance(k, int) or not -rank <= k < rank:
            raise BadCall(f"axis {k!r} is not an axis of a tile of shape {list(x.shape)}")
    return tuple(loops + k % rank for k in axes)


def _reduction(name: str) -> Word:
    def word(a: TileArithmetic, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        x = a.tile(x)
        places = _places(x, axis)
        if not places:
            return x
        value = x.value
        if name in ("sum", "prod") and value.dtype is boolean:
            value = OPS.cast(value, i32)
        if name == "mean" and not value.dtype.is_float:
            value = OPS.cast(value, a.float)
        if name.startswith("arg"):
            if axis is None:
                value = OPS.reshape(value, (*[v.extent for v in x.axes], -1))
                places = (len(x.axes),)
            y = getattr(OPS, name)(value, axis=places[0], keepdims=keepdims)
            return LoopTensor(OPS.cast(y, i32), x.axes)
        return LoopTensor(getattr(OPS, name)(value, axis=places, keepdims=keepdims), x.axes)
    return word


def _matmul(a: TileArithmetic, x: Any, y: Any) -> Any:
    """The matrix product of tiles."""
    x, y = a.tile(x), a.tile(y)
    if not x.shape or not y.shape:
        raise BadCall("@ takes tiles of one axis or more; use * for numbers")
    d = a.common([x, y])
    axes = union([x.axes, y.axes])
    row, column = len(x.shape) == 1, len(y.shape) == 1
    columns, rows = x.shape[-1], y.shape[0 if column else -2]
    if columns != rows:
        raise BadCall(f"tiles of shapes {list(x.shape)} and {list(y.shape)} do not multiply: "
                      f"{columns} columns, {rows} rows")
    if len(x.shape) > 2 or len(y.shape) > 2:
        raise BadCall("@ takes tiles of one or two axes; loop over the others")
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


def _along(name: str) -> Word:
    """An op along one axis that keeps the shape, such as sorting."""
    def word(a: TileArithmetic, x: Any, axis: int = -1) -> Any:
        x = a.tile(x)
        y = getattr(OPS, name)(x.value, axis=_places(x, axis)[0])
        return LoopTensor(OPS.cast(y, i32) if name == "argsort" else y, x.axes)
    return word


def _where(a: TileArithmetic, condition: Any, x: Any, y: Any) -> Any:
    return a.choose(a.truth(condition), x, y)


def _clip(a: TileArithmetic, x: Any, low: Any, high: Any) -> Any:
    return a.apply("minimum", a.apply("maximum", x, low), high)


def _power(a: TileArithmetic, x: Any, y: Any) -> Any:
    import ast

    return a.binary(ast.Pow(), x, y)


def _outer(a: TileArithmetic, x: Any, y: Any) -> Any:
    x, y = a.tile(x), a.tile(y)
    return a.apply("mul", LoopTensor(OPS.expand_dims(x.value, x.value.rank), x.axes), y)


# -- new arrays and dtypes -------------------------------------------------------------------------


def dtype_from(x: Any) -> DType:
    """The dtype that an object names."""
    try:
        return i32 if x is int else f64 if x is float else boolean if x is bool else dtype(x)
    except UnknownName as error:
        raise BadCall(str(error)) from None


def _filled(number: Any) -> Word:
    def word(a: TileArithmetic, shape: Any, dtype: Any = f64) -> Any:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        if not all(isinstance(n, int) for n in sizes):
            raise BadCall("the shape of an array must be known while compiling, not data")
        return LoopTensor(OPS.full(sizes, number, dtype_from(dtype)))
    return word


def _full(a: TileArithmetic, shape: Any, value: Any, dtype: Any = None) -> Any:
    d = dtype_from(dtype) if dtype is not None else a.common([value])
    array = _filled(0)(a, shape, d)
    if isinstance(value, NUMBERS):
        return LoopTensor(OPS.full(array.shape, value, d))
    value = a.cast(value, d)
    return LoopTensor(full(value, value.axes, array.shape), value.axes)


def _like(number: Any) -> Word:
    def word(a: TileArithmetic, x: Any, dtype: Any = None) -> Any:
        d = x.dtype if dtype is None else dtype_from(dtype)
        return LoopTensor(OPS.full(x.shape, number, d))
    return word


def _arange(a: TileArithmetic, *ends: Any, dtype: Any = None) -> Any:
    start, stop, step = (0, ends[0], 1) if len(ends) == 1 else (*ends, 1)[:3]
    if not all(isinstance(n, (Affine, int)) for n in (start, stop)) or not isinstance(step, int):
        raise BadCall("np.arange takes integers that are known while compiling")
    size = Affine.of(stop).plus(start, -1).simple()
    if not isinstance(size, int):
        raise BadCall("the number of elements of np.arange must be known while compiling")
    count = len(range(0, size, step))
    numbers = LoopTensor(OPS.iota((count,), 0))
    if step != 1:
        numbers = a.apply("mul", numbers, step)
    numbers = a.apply("add", numbers, start)
    return a.cast(numbers, dtype_from(dtype)) if dtype is not None else numbers


def _number(d: str) -> Word:
    """Python's `float`, `int` and `bool` of a number."""
    def word(a: TileArithmetic, x: Any) -> Any:
        if isinstance(x, NUMBERS):
            return {"float": float, "int": int, "bool": bool}[d](x)
        x = a.tile(x)
        if x.shape:
            raise BadCall(f"{d}() takes one number, not a tile of shape {list(x.shape)}")
        if d == "bool":
            return a.truth(x)
        if d == "int" and x.dtype.is_float:
            x = a.apply("trunc", x)
        y = a.cast(x, a.float if d == "float" else i32)
        return LoopTensor(y.value, y.axes, weak=True)
    return word


def cast_word(kind: Any) -> Word:
    """`np.float32(x)` and the like."""
    return lambda a, x: a.cast(x, dtype_from(kind))


WORDS: dict[Any, Word] = {
    **{f: _elementwise(name) for name, functions in _ELEMENTWISE.items() for f in functions},
    **{f: _keeping(name) for name, functions in _KEEPING.items() for f in functions},
    builtins.min: _extreme("minimum"), builtins.max: _extreme("maximum"),
    np.sum: _reduction("sum"), np.prod: _reduction("prod"), np.max: _reduction("max"),
    np.min: _reduction("min"), np.mean: _reduction("mean"), np.any: _reduction("any"),
    np.all: _reduction("all"), np.argmax: _reduction("argmax"), np.argmin: _reduction("argmin"),
    np.dot: _matmul, np.matmul: _matmul, np.transpose: _transpose, np.reshape: _reshape,
    np.sort: _along("sort"), np.argsort: _along("argsort"), np.cumsum: _along("cumsum"),
    np.where: _where, np.clip: _clip, np.power: _power, math.pow: _power, builtins.pow: _power,
    np.outer: _outer, np.zeros: _filled(0), np.empty: _filled(0), np.ones: _filled(1),
    np.full: _full, np.zeros_like: _like(0), np.empty_like: _like(0), np.ones_like: _like(1),
    np.arange: _arange, float: _number("float"), int: _number("int"), bool: _number("bool")}

METHODS: dict[str, Word] = {
    **{name: _reduction(name) for name in ("sum", "prod", "max", "min", "mean", "any", "all",
                                           "argmax", "argmin")},
    "transpose": _transpose, "reshape": _reshape, "dot": _matmul,
    "astype": lambda a, x, kind: a.cast(x, dtype_from(kind)), "copy": lambda a, x: x}

# Functions that only see what is known while compiling, such as sizes.
KNOWN = (len, range, min, max, abs, round, sum, int, float, bool, tuple, list, enumerate, zip,
         isinstance, divmod, sorted, all, any, math.ceil, math.floor, math.sqrt, math.log2,
         math.prod, math.gcd, math.log, math.exp, math.pow, math.isqrt, reversed)

