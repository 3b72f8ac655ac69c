"""Sums, means and extremes along axes, and their positions."""

from __future__ import annotations

import numpy as np

from ztorch.graph.op import OPS
from ztorch.interchange.onnx.node import Node, Result, node

_PLAIN = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min",
          "ReduceProd": "prod", "ReduceLogSumExp": "logsumexp", "ReduceSumSquare": "sum",
          "ReduceL1": "sum", "ReduceL2": "sum", "ReduceLogSum": "sum"}


@node(*_PLAIN)
def _reduce(n: Node) -> Result:
    x, axes = n.value(0), n.ints("axes", 1)
    if not axes:
        if n.attr("noop_with_empty_axes", 0):
            return x
        axes = tuple(range(x.rank))
    if n.op in ("ReduceSumSquare", "ReduceL2"):
        x = x * x
    elif n.op == "ReduceL1":
        x = OPS.abs(x)
    y = getattr(OPS, _PLAIN[n.op])(x, axis=axes, keepdims=bool(n.attr("keepdims", 1)))
    return (OPS.sqrt(y) if n.op == "ReduceL2" else
            OPS.log(y) if n.op == "ReduceLogSum" else y)


@node("ArgMax", "ArgMin", but="the first of equals")
def _position(n: Node) -> Result:
    n.only(select_last_index=0)
    x, axis = n.value(0), n.attr("axis", 0)
    y = OPS.cast((OPS.argmax if n.op == "ArgMax" else OPS.argmin)(x, axis=axis), "int64")
    return OPS.expand_dims(y, axis % x.rank) if n.attr("keepdims", 1) else y


@node("CumSum", but="of floats")
def _cumulative_sum(n: Node) -> Result:
    x, axis = n.value(0), n.number(1)
    if not x.dtype.is_float:
        n.unsupported(f"of {x.dtype}; cast it to a float")
    at = range(x.rank)[axis]
    length = x.shape[at]
    seen = np.tri(length, k=-1 if n.attr("exclusive", 0) else 0).T  # (from, to)
    seen = seen.T if n.attr("reverse", 0) else seen
    order = (*(k for k in range(x.rank) if k != at), at)
    y = OPS.matmul(OPS.transpose(x, order), n.as_value(seen.astype(np.float32)))
    return OPS.transpose(y, tuple(order.index(k) for k in range(x.rank)))
