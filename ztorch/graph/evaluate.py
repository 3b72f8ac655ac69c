"""The meaning of a graph: every op evaluated by NumPy, in the graph's dtypes or in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.dtypes import DType, bf16, f16, f64, round_bf16
from ztorch.graph.value import Value, topological

# Given a value, its array and those of its arguments; gives the array to go on with.
Nudge = Callable[[Value, np.ndarray, Sequence[np.ndarray]], np.ndarray]


def evaluate(roots: Sequence[Value], feeds: Mapping[Value, Any], oracle: bool = False,
             nudge: Nudge | None = None) -> list[np.ndarray]:
    """The arrays of the roots. With oracle=True every float is a float64. `nudge` may change what
    an op gave.

    >>> from ztorch import ops
    >>> from ztorch.graph.op import leaf
    >>> x = leaf("input", "x", (2,), "float32")
    >>> evaluate([ops.exp(x)], {x: np.zeros(2, np.float32)})
    [array([1., 1.], dtype=float32)]
    """
    done: dict[Value, np.ndarray] = {}
    for v in topological(roots):
        if v in feeds:
            raw = np.asarray(feeds[v])
        else:
            args = [done[a] if v.op.movement else _dense(done[a]) for a in v.args]
            with np.errstate(all="ignore"):
                raw = np.asarray(v.op.numpy(*args, **_attrs(v, oracle)))
            if nudge is not None:
                raw = nudge(v, raw, args)
        done[v] = _held(raw, v, oracle)
    return [done[r] for r in roots]


def _dense(x: np.ndarray) -> np.ndarray:
    """x in C order: NumPy adds up a view in another order, and a result must not depend on that."""
    return np.asarray(x, order="C")


def _held(x: np.ndarray, v: Value, oracle: bool) -> np.ndarray:
    d = v.dtype
    if oracle and d.is_float:
        x = x.astype(np.float64, copy=False)
        return _overflown(x) if v.attrs.get("dtype") is f16 else x
    x = x.astype(d.working, copy=False)
    return round_bf16(x) if d is bf16 else x


def _overflown(x: np.ndarray) -> np.ndarray:
    """What is rounded to float16 keeps its bits, but not what float16 cannot hold at all: programs
    that scale their loss see it, and skip a step."""
    return np.where(np.abs(x) >= 65520.0, np.copysign(np.inf, x), x)


def _attrs(v: Value, oracle: bool) -> dict[str, Any]:
    d = v.attrs.get("dtype")
    if oracle and isinstance(d, DType) and d.is_float:
        return {**v.attrs, "dtype": f64}
    return v.attrs
