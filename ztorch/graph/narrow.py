"""Mixed precision: operands of products are rounded to 16 bits, and sums are float32.

All tensors of the graph stay float32; operands of products pass through a rounding. Lowering
decides whether to store them in 16 bits, which changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ztorch.dtypes import DType, f32, from_storage, to_storage
from ztorch.graph.batching import pointwise
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rebuilt
from ztorch.graph.value import Op, Value, current_layer
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
             body=lambda e, index, dtype: _there_and_back(e, e.read(0, index), dtype), cost=2,
             batch=pointwise)


def _there_and_back(e: Any, x: Any, d: DType) -> Any:
    return e.b.cast(e.b.cast(x, dtype=d), dtype=x.dtype)


@dataclass(frozen=True)
class Rounding:
    """The 16-bit dtypes that operands of products are rounded to; None: they are not.

    >>> from ztorch.dtypes import bf16
    >>> rounding = Rounding(bf16, {"head": None})
    >>> rounding.of("dense"), rounding.of("head/dense")
    (bf16, None)
    """

    dtype: DType | None = None
    own: Mapping[str, DType | None] = field(default_factory=dict)  # of layers, by path

    def of(self, path: str) -> DType | None:
        """The dtype of a layer: its own, that of a layer around it, or that of the program."""
        while self.own and path:
            if path in self.own:
                return self.own[path]
            path = path.rpartition("/")[0]
        return self.dtype

    def uses(self, d: DType) -> bool:
        """Whether some products round their operands to d."""
        return self.dtype is d or d in self.own.values()


_EXACT = Rounding()
_rounding: ContextVar[Rounding] = ContextVar("rounding", default=_EXACT)


@contextmanager
def products_of(d: DType | Rounding | None) -> Iterator[None]:
    """Products of float32 that are made inside round their operands to d; None rounds nothing."""
    token = _rounding.set(d if isinstance(d, Rounding) else Rounding(d))
    try:
        yield
    finally:
        _rounding.reset(token)


def operand(x: Value) -> Value:
    """x as an operand of a product: rounded in mixed precision, otherwise unchanged."""
    d = _rounding.get().of(current_layer())
    return ROUNDED(x, dtype=d) if d is not None and x.dtype is f32 else x


def _carries(v: Value) -> bool:
    """Whether v holds all elements of its argument, and otherwise only zeros."""
    moves = v.op.movement or (v.op.name == "pad" and v.attrs["value"] == 0)
    return moves and len(v.args) == 1 and v.size >= v.args[0].size


def sooner(v: Value, a: Value) -> Value | None:
    """A rounding moved before movement, or removed where it changes nothing."""
    d = v.attrs["dtype"]
    if (a.op is ROUNDED and a.attrs["dtype"] is d) or (
            a.op.name == "cast" and a.args[0].dtype is d):
        return a
    return rebuilt(a, (ROUNDED(a.args[0], dtype=d),)) if _carries(a) else None


def fewer(v: Value) -> Value | None:
    """A selection from a rounded or widened tensor, moved before the conversion."""
    a = v.args[0]
    widens = a.op.name == "cast" and a.dtype is f32 and a.args[0].dtype in HALVES
    if v.size >= a.size or not (widens or a.op is ROUNDED):
        return None
    chosen = Value(v.op, (a.args[0], *v.args[1:]), v.attrs, v.shape, a.args[0].dtype)
    return Value(a.op, (chosen,), a.attrs, v.shape, v.dtype)


def converts(v: Value) -> bool:
    """Whether v was widened from 16 bits or rounded to them: products then read the 16 bits
    directly."""
    return v.op is ROUNDED or (v.op.name == "cast" and v.args[0].dtype in HALVES)


def narrowed(v: Value, known: dict[Value, Value]) -> Value | None:
    """v in 16 bits, or None if they do not hold it exactly.

    They do if v is rounded to 16 bits, was widened from them, or only moves such a tensor. `known`
    caches the results, so that readers share them.
    """
    if v not in known:
        result = None
        if v.op is ROUNDED:
            result = narrowed(v.args[0], known)  # it may be rounded already
            if result is None or result.dtype is not v.attrs["dtype"]:
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
