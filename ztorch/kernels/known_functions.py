"""The functions that kernels may call, and their results: one row each.

A row is found by the function itself, such as `numpy.exp`, so that it does not matter how a user
imports it. Run as plain Python, a kernel calls the function; compiled, it means the op of the row.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ztorch.dtypes import boolean, i32
from ztorch.kernels.arithmetic import NUMBERS, TileArithmetic
from ztorch.kernels.creating import CREATING, dtype_from
from ztorch.kernels.tile_functions import METHODS as _OF_ARRAYS
from ztorch.kernels.tile_functions import OF_TILES, REDUCTIONS, BadCall, FunctionRule
from ztorch.kernels.tiles import LoopTensor


def grid(*extents: int) -> Iterator[Any]:
    """The iterations of nested loops that have no order: all of them may run at the same time.

    Args:
        *extents: Number of iterations of each loop.

    Returns:
        An iterator of tuples; of integers for a single loop.

    Examples:
        >>> list(grid(2, 2))
        [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    if len(extents) == 1:
        return iter(range(extents[0]))
    return itertools.product(*map(range, extents))


_FLOATING = ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh",
             "acosh", "atanh", "exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "hypot")
_ELEMENTWISE = {  # by the name of the op: functions of arrays that mean it, which compute floats
    **{name: (getattr(np, np_name),) for name, np_name in zip(_FLOATING, (
        "sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2", "sinh", "cosh", "tanh",
        "arcsinh", "arccosh", "arctanh", "exp", "expm1", "log", "log2", "log10", "log1p", "sqrt",
        "hypot"), strict=True)},
    "exp2": (np.exp2,), "copysign": (np.copysign,), "logaddexp": (np.logaddexp,), "abs": (np.fabs,),
    "isnan": (np.isnan,), "isinf": (np.isinf,), "isfinite": (np.isfinite,)}
_OF_ONE_NUMBER = {  # likewise, of one number
    **{name: getattr(math, name) for name in _FLOATING}, "erf": math.erf, "abs": math.fabs,
    "copysign": math.copysign,
    "isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite}
_KEEPING = {  # of numbers of any kind, in their dtype
    "abs": (builtins.abs, np.abs), "sign": (np.sign,), "neg": (np.negative,),
    "square": (np.square,), "maximum": (np.maximum,), "minimum": (np.minimum,),
    "fmax": (np.fmax,), "fmin": (np.fmin,)}
_ROUNDING = {"floor": (np.floor, math.floor), "ceil": (np.ceil, math.ceil),
             "trunc": (np.trunc, math.trunc), "round": (np.rint, np.round)}
_OPERATORS: dict[type[ast.operator], tuple[Any, ...]] = {
    ast.Add: (np.add,), ast.Sub: (np.subtract,), ast.Mult: (np.multiply,),
    ast.Div: (np.divide, np.true_divide), ast.FloorDiv: (np.floor_divide,),
    ast.Mod: (np.mod, np.remainder), ast.Pow: (np.power, builtins.pow)}


def _elementwise(name: str) -> FunctionRule:
    def rule(a: TileArithmetic, *xs: Any) -> Any:
        d = a.common(xs)
        return a.apply(name, *xs, dtype=d if d.is_float else a.float)
    return rule


def _of_one_number(name: str) -> FunctionRule:
    def rule(a: TileArithmetic, *xs: Any) -> Any:
        if any(isinstance(x, LoopTensor) and x.shape for x in xs):
            module = "np" if name in _ELEMENTWISE else "zt.ops"
            raise BadCall(f"math.{name} takes numbers; for arrays there is {module}.{name}")
        return _elementwise(name)(a, *xs)
    return rule


def _keeping(name: str) -> FunctionRule:
    return lambda a, *xs: a.apply(name, *xs)


def _rounding(name: str, to_integer: bool) -> FunctionRule:
    """Rounds a number; if `to_integer`, the result is a Python integer."""
    def rule(a: TileArithmetic, x: Any) -> Any:
        y = a.apply(name, x) if a.common([x]).is_float else a.tile(x)
        return LoopTensor(a.cast(y, i32).value, y.axes, weak=True) if to_integer else y
    return rule


def _operator(op: type[ast.operator]) -> FunctionRule:
    return lambda a, x, y: a.binary(op(), x, y)


def _extreme(name: str) -> FunctionRule:
    """Python's `min` and `max`: of several numbers, or of the elements of one tile."""
    def rule(a: TileArithmetic, *xs: Any) -> Any:
        if len(xs) == 1:
            if isinstance(xs[0], LoopTensor):
                if len(xs[0].shape) != 1:
                    raise BadCall(f"{name[:3]}() takes numbers, or an array of one axis, not of "
                                  f"shape {list(xs[0].shape)}")
                return REDUCTIONS[name[:3]](a, xs[0])
            xs = tuple(xs[0])
        total = xs[0]
        for x in xs[1:]:
            if isinstance(total, NUMBERS) and isinstance(x, NUMBERS):
                total = max(total, x) if name == "maximum" else min(total, x)
            else:
                total = a.apply(name, total, x)
        return total
    return rule


def _sum(a: TileArithmetic, x: Any, start: Any = 0) -> Any:
    """Python's `sum`, of numbers or of an array of one axis."""
    if isinstance(x, LoopTensor):
        if len(x.shape) != 1:
            raise BadCall(f"sum() takes numbers, or an array of one axis, not of shape "
                          f"{list(x.shape)}; write np.sum")
        return a.binary(ast.Add(), REDUCTIONS["sum"](a, x), start)
    for part in x:
        start = a.binary(ast.Add(), start, part)
    return start


def _where(a: TileArithmetic, condition: Any, x: Any, y: Any) -> Any:
    return a.choose(a.truth(condition), x, y)


def _clip(a: TileArithmetic, x: Any, low: Any, high: Any) -> Any:
    for name, bound in (("maximum", low), ("minimum", high)):
        x = x if bound is None else a.apply(name, x, bound)
    return x


def _float_power(a: TileArithmetic, x: Any, y: Any) -> Any:
    d = a.common([x, y])
    return a.apply("power", x, y, dtype=d if d.is_float else a.float)


def _logical(name: str) -> FunctionRule:
    return lambda a, *xs: a.apply(name, *(a.truth(x) for x in xs), dtype=boolean)


def _number(d: str) -> FunctionRule:
    """Python's `float`, `int` and `bool` of a number."""
    def rule(a: TileArithmetic, x: Any) -> Any:
        if isinstance(x, NUMBERS):
            return {"float": float, "int": int, "bool": bool}[d](x)
        x = a.tile(x)
        if x.shape:
            raise BadCall(f"{d}() takes one number, not an array of shape {list(x.shape)}")
        if d == "bool":
            return a.truth(x)
        if d == "int" and x.dtype.is_float:
            x = a.apply("trunc", x)
        y = a.cast(x, a.float if d == "float" else i32)
        return LoopTensor(y.value, y.axes, weak=True)
    return rule


def cast_rule(kind: Any) -> FunctionRule:
    """`np.float32(x)` and the like."""
    return lambda a, x: a.cast(x, dtype_from(kind))


FUNCTIONS: dict[Any, FunctionRule] = {
    **{f: _elementwise(name) for name, functions in _ELEMENTWISE.items() for f in functions},
    **{f: _of_one_number(name) for name, f in _OF_ONE_NUMBER.items()},
    **{f: _keeping(name) for name, functions in _KEEPING.items() for f in functions},
    **{f: _rounding(name, f.__module__ == "math") for name, functions in _ROUNDING.items()
       for f in functions},
    **{f: _operator(op) for op, functions in _OPERATORS.items() for f in functions},
    builtins.min: _extreme("minimum"), builtins.max: _extreme("maximum"),
    builtins.sum: _sum, builtins.round: _rounding("round", True), math.pow: _float_power,
    np.where: _where, np.clip: _clip,
    np.logical_and: _logical("logical_and"), np.logical_or: _logical("logical_or"),
    np.logical_not: _logical("logical_not"), float: _number("float"), int: _number("int"),
    bool: _number("bool"), **OF_TILES, **CREATING}
METHODS: dict[str, FunctionRule] = {
    **_OF_ARRAYS, "astype": lambda a, x, kind: a.cast(x, dtype_from(kind))}

# Functions that only take compile-time constants, such as sizes.
CONSTANT_FUNCTIONS = (
    len, range, min, max, abs, round, sum, ord, int, float, bool, tuple, list, enumerate, zip,
    isinstance, divmod, sorted, all, any, math.ceil, math.floor, math.sqrt, math.log2,
    math.prod, math.gcd, math.log, math.exp, math.pow, math.isqrt, reversed)
