"""Products of narrow numbers: operands rounded to 16 bits, sums in 32.

The graph stays one of float32: an operand of a product is merely rounded. Whether it also lies in
memory in 16 bits is for lowering to decide, and changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ztorch.dtypes import DType, f32, from_storage, to_storage
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Op, Value
from ztorch.ir.halves import HALVES


def rounded(x: np.ndarray, dtype: DType) -> np.ndarray:
    """The nearest numbers that `dtype` holds, in the dtype of x.

    >>> from ztorch.dtypes import bf16
    >>> rounded(np.array([1.001, 3.0], np.float32), bf16)
    array([1., 3.], dtype=float32)
    """
    x = np.asarray(x)
    return from_storage(dtype, to_storage(dtype, x)).astype(x.dtype, copy=False)


ROUNDED = Op("rounded_to", "map", lambda x, dtype: (x.shape, x.dtype), numpy=rounded,
             grad=lambda o, g, y, x, dtype: (g,),  # as if nothing had been rounded
             body=lambda e, index, dtype: _there_and_back(e, e.read(0, index), dtype), cost=2)


def _there_and_back(e: Any, x: Any, d: DType) -> Any:
    return e.b.cast(e.b.cast(x, dtype=d), dtype=x.dtype)


_narrow: ContextVar[DType | None] = ContextVar("narrow", default=None)


@contextmanager
def products_of(d: DType | None) -> Iterator[None]:
    """Products of float32 made inside round their operands to d; None rounds nothing."""
    token = _narrow.set(d)
    try:
        yield
    finally:
        _narrow.reset(token)


def operand(x: Value) -> Value:
    """What a product takes for x."""
    d = _narrow.get()
    return ROUNDED(x, dtype=d) if d is not None and x.dtype is f32 else x


def _carries(v: Value) -> bool:
    """Whether each element of v is one of its argument's, or zero; and it has all of them."""
    moves = v.op.movement or (v.op.name == "pad" and v.attrs["value"] == 0)
    return moves and len(v.args) == 1 and v.size >= v.args[0].size


def sooner(v: Value, a: Value) -> Value | None:
    """A rounding moved to where its argument is computed, or left out where it changes nothing."""
    d = v.attrs["dtype"]
    if (a.op is ROUNDED and a.attrs["dtype"] is d) or (
            a.op.name == "cast" and a.args[0].dtype is d):
        return a
    return rebuilt(a, (ROUNDED(a.args[0], dtype=d),)) if _carries(a) else None


def fewer(v: Value) -> Value | None:
    """Some elements of a rounded or widened tensor: chosen first, and only those converted."""
    a = v.args[0]
    widens = a.op.name == "cast" and a.dtype is f32 and a.args[0].dtype in HALVES
    if v.size >= a.size or not (widens or a.op is ROUNDED):
        return None
    chosen = Value(v.op, (a.args[0], *v.args[1:]), v.attrs, v.shape, a.args[0].dtype)
    return Value(a.op, (chosen,), a.attrs, v.shape, v.dtype)


def narrowed(v: Value, known: dict[Value, Value]) -> Value | None:
    """v in 16 bits, if they hold it: it is rounded to them, comes from them, or only arranges what
    does. `known` keeps what was made, so that readers share it."""
    if v not in known:
        result = None
        if v.op is ROUNDED:
            result = OPS.cast(v.args[0], v.attrs["dtype"])
        elif v.op.name == "cast" and v.args[0].dtype in HALVES:
            result = v.args[0]
        elif (v.op.movement or _carries(v)) and len(v.args) == 1:
            below = narrowed(v.args[0], known)
            if below is not None:
                result = Value(v.op, (below,), v.attrs, v.shape, below.dtype)
        if result is None:
            return None
        known[v] = result
    return known[v]
