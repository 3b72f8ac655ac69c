"""Evaluates a graph with NumPy, in its own dtypes or in float64. This defines its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.dtypes import DType, f16, f64, rounded
from ztorch.graph.body import Body, arguments
from ztorch.graph.value import Value, topological
from ztorch.terminal.work_line import counted

# Called with a value, its array and the arrays of its arguments; returns the array to use instead.
Nudge = Callable[[Value, np.ndarray, Sequence[np.ndarray]], np.ndarray]


def evaluate(roots: Sequence[Value], feeds: Mapping[Value, Any], oracle: bool = False,
             nudge: Nudge | None = None) -> list[np.ndarray]:
    """The arrays of the roots.

    Args:
        roots: Values to evaluate.
        feeds: Arrays of values, such as inputs and states.
        oracle: Whether to compute with float64 for every float dtype. Default: `False`.
        nudge: Called on the result of each op; returns the array to use. Default: `None`.

    Returns:
        An array for each root.

    Examples:
        >>> from ztorch import ops
        >>> from ztorch.graph.op import leaf
        >>> x = leaf("input", "x", (2,), "float32")
        >>> evaluate([ops.exp(x)], {x: np.zeros(2, np.float32)})
        [array([1., 1.], dtype=float32)]
    """
    nodes = topological(roots, feeds)
    with np.errstate(all="ignore"):
        arrays = _arrays(counted("compute in float64", nodes) if oracle else nodes, feeds, oracle,
                       nudge)
    return [arrays[r] for r in roots]


def _arrays(nodes: Iterable[Value], feeds: Mapping[Value, Any], oracle: bool,
            nudge: Nudge | None) -> dict[Value, Any]:
    """The arrays of all nodes, which come after their arguments."""
    arrays: dict[Value, Any] = {}
    for v in nodes:
        if v in feeds:
            raw = np.asarray(feeds[v])
        elif v.op.kind == "loop":
            arrays[v] = _iterations(v.attrs["body"], [arrays[a] for a in v.args], oracle, nudge)
            continue
        elif v.op.kind == "threads":
            arrays[v] = v.op.numpy(*(arrays[a] for a in v.args), **v.attrs)
            continue
        elif v.op.kind in ("result", "threads_result"):
            raw = arrays[v.args[0]][v.attrs["index"]]
        else:
            args = [arrays[a] if v.op.movement else _dense(arrays[a]) for a in v.args]
            raw = np.asarray(v.op.numpy(*args, **_attrs(v, oracle)))
            if nudge is not None:
                raw = nudge(v, raw, args)
        arrays[v] = _rounded(raw, v, oracle)
    return arrays


def _iterations(body: Body, args: Sequence[np.ndarray], oracle: bool,
                nudge: Nudge | None) -> list[np.ndarray]:
    """The results of a loop: the last values of its carries, and the stacks of kept values."""
    state, sequences, shared = map(list, arguments(body, args))
    stacks = [np.zeros((body.trip_count, *v.shape), np.float64 if oracle and v.dtype.is_float else
                       v.dtype.working) for v in body.outs]
    for t in reversed(range(body.trip_count)) if body.reverse else range(body.trip_count):
        if body.proceed is not None and not state[body.proceed]:
            break
        feeds = dict(zip(body.leaves, [*state, *(x[t] for x in sequences), *shared], strict=True))
        arrays = _arrays(body.nodes, feeds, oracle, nudge)
        results = [arrays[r] for r in body.roots]
        state, outs = results[:len(state)], results[len(state):]
        for stack, x in zip(stacks, outs, strict=True):
            stack[t] = x
    return [*state, *stacks]


def _dense(x: np.ndarray) -> np.ndarray:
    """x in C order: NumPy sums a view in another order, and the result must not depend on it."""
    return np.asarray(x, order="C")


def _rounded(x: np.ndarray, v: Value, oracle: bool) -> np.ndarray:
    """x with the precision of v's dtype."""
    d = v.dtype
    if oracle and d.is_float:
        x = x.astype(np.float64, copy=False)
        return _with_overflow(x) if v.attrs.get("dtype") is f16 else x
    return rounded(d, x.astype(d.working, copy=False))


def _with_overflow(x: np.ndarray) -> np.ndarray:
    """x with infinity where float16 overflows. Digits are kept, but programs that scale their loss
    must see the overflow, since it makes them skip a step."""
    return np.where(np.abs(x) >= 65520.0, np.copysign(np.inf, x), x)  # rounds to above 65504


def _attrs(v: Value, oracle: bool) -> dict[str, Any]:
    d = v.attrs.get("dtype")
    if oracle and isinstance(d, DType) and d.is_float:
        return {**v.attrs, "dtype": f64}
    return v.attrs
