"""Translates functions that make arrays in a kernel, such as `np.zeros` and `np.arange`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean, dtype, f64, i32
from ztorch.errors import UnknownName
from ztorch.graph.op import OPS, constant
from ztorch.kernels.arithmetic import NUMBERS, TileArithmetic
from ztorch.kernels.tile_functions import OF_TILES, BadCall, FunctionRule
from ztorch.kernels.tiles import Affine, LoopTensor, full


def dtype_from(x: Any) -> DType:
    """The dtype that an object of Python or NumPy means."""
    try:
        return i32 if x is int else f64 if x is float else boolean if x is bool else dtype(x)
    except UnknownName as error:
        raise BadCall(str(error)) from None


def _filled(number: Any) -> FunctionRule:
    def rule(a: TileArithmetic, shape: Any, dtype: Any = f64) -> Any:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        if not all(isinstance(n, int) for n in sizes):
            raise BadCall("the shape of an array must be known while compiling, not data or a "
                          "counter; make the largest that it can be, and use a part of it")
        return LoopTensor(OPS.full(sizes, number, dtype_from(dtype)))
    return rule


def _full(a: TileArithmetic, shape: Any, value: Any, dtype: Any = None) -> Any:
    default = f64 if isinstance(value, float) else a.common([value])
    d = dtype_from(dtype) if dtype is not None else default
    array = _filled(0)(a, shape, d)
    if isinstance(value, NUMBERS):
        return LoopTensor(OPS.full(array.shape, value, d))
    value = a.cast(value, d)
    return LoopTensor(full(value, value.axes, array.shape), value.axes)


def _like(number: Any) -> FunctionRule:
    def rule(a: TileArithmetic, x: Any, dtype: Any = None) -> Any:
        d = x.dtype if dtype is None else dtype_from(dtype)
        return LoopTensor(OPS.full(x.shape, number, d))
    return rule


def _full_like(a: TileArithmetic, x: Any, value: Any, dtype: Any = None) -> Any:
    return _full(a, x.shape, value, x.dtype if dtype is None else dtype)


def _unwritten(rule: FunctionRule) -> FunctionRule:
    def empty(a: TileArithmetic, *args: Any, **named: Any) -> Any:
        array = rule(a, *args, **named)
        a.unwritten.add(array.value)
        return array
    return empty


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


def _numpy(x: Any) -> Any:
    return x.numpy if isinstance(x, DType) else x


def _of_known(function: Any) -> FunctionRule:
    """The rule of a function whose arguments are compile-time constants."""
    def rule(a: TileArithmetic, *args: Any, **named: Any) -> Any:
        if any(isinstance(x, (LoopTensor, Affine)) for x in (*args, *named.values())):
            raise BadCall(f"np.{function.__name__} takes numbers that are known while compiling")
        args, named = tuple(map(_numpy, args)), {n: _numpy(x) for n, x in named.items()}
        return LoopTensor(constant(function(*args, **named)))
    return rule


def _array(a: TileArithmetic, x: Any, dtype: Any = None) -> Any:
    """`np.array`, also of elements and other values that depend on data."""
    if isinstance(x, tuple) and any(isinstance(n, (LoopTensor, Affine)) for n in _numbers(x)):
        parts = [_array(a, part) if isinstance(part, tuple) else part for part in x]
        y = OF_TILES[np.stack](a, parts)
    elif isinstance(x, (LoopTensor, Affine)):
        y = a.tile(x)
    else:
        return _of_known(np.array)(a, x) if dtype is None else _of_known(np.array)(a, x, dtype)
    return y if dtype is None else a.cast(y, dtype_from(dtype))


def _numbers(x: Any) -> Iterator[Any]:
    for part in x:
        yield from _numbers(part) if isinstance(part, tuple) else (part,)


CREATING: dict[Any, FunctionRule] = {
    np.zeros: _filled(0), np.empty: _unwritten(_filled(0)), np.ones: _filled(1), np.full: _full,
    np.zeros_like: _like(0), np.empty_like: _unwritten(_like(0)), np.ones_like: _like(1),
    np.full_like: _full_like, np.arange: _arange,
    **{f: _of_known(f) for f in (np.linspace, np.eye)}, np.array: _array}
