"""Sums, means and extremes along axes, and their positions."""

from __future__ import annotations

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


@node("CumSum")
def _cumulative_sum(n: Node) -> Result:
    x, axis = n.value(0), range(n.value(0).rank)[n.number(1)]
    backwards = n.attr("reverse", 0)
    x = OPS.flip(x, axis) if backwards else x
    y = OPS.cumsum(x, axis)
    if n.attr("exclusive", 0):
        front, length = tuple(int(k == axis) for k in range(x.rank)), x.shape[axis]
        shorter = tuple(slice(0, length - 1) if k == axis else slice(None) for k in range(x.rank))
        y = OPS.pad(y[shorter], front, (0,) * x.rank)
    return OPS.flip(y, axis) if backwards else y


@node("TopK", but="the largest; sorted")
def _top(n: Node) -> Result:
    if not n.attr("largest", 1):
        n.unsupported("largest=0; only the largest are taken")
    values, positions = OPS.top_k(n.value(0), n.number(1), axis=n.attr("axis", -1))
    return values, OPS.cast(positions, "int64")
