"""Further results of attention and its gradients: numbers of rows, and results in 16 bits."""

from __future__ import annotations

from ztorch.dtypes import DType
from ztorch.graph.narrow import ROUNDED
from ztorch.graph.op import OPS
from ztorch.graph.rewrite import rewrite
from ztorch.graph.value import Graph, Op, Value, not_evaluated


def _infer(node: Value, index: int, shape: tuple[int, ...],
           dtype: DType) -> tuple[tuple[int, ...], DType]:
    return shape, dtype


# Of attention, for each row: 0: the number that makes exp2(score * log2(e) + number) the weights;
# 1: the sum of exponentials. Of gradients by keys, 1: that of the keys. Of both, SHORT + n is the
# result n in 16 bits, where the node itself is result 0.
ATTENTION_RESULT = Op("attention", "attention_result", _infer, not_evaluated)
SHORT = 2


def with_short_results(graph: Graph) -> Graph:
    """The graph with results of attention in 16 bits where it rounds them, so that no kernel does
    nothing else."""
    return rewrite(graph, _short)


def _short(v: Value) -> Value | None:
    if v.op is not ROUNDED:
        return None
    x, path = v.args[0], []
    while x.op.movement and len(x.args) == 1:
        path.append(x)
        x = x.args[0]
    node, n = (x.args[0], x.attrs["index"]) if x.op is ATTENTION_RESULT else (x, 0)
    of_rows = node.op.kind == "attention" and n
    if node.op.kind not in ("attention", "attention_gradient") or of_rows:
        return None
    d = v.attrs["dtype"]
    short = ATTENTION_RESULT(node, index=SHORT + n, shape=x.shape, dtype=d)
    for step in reversed(path):
        short = Value(step.op, (short,), step.attrs, step.shape, d)
    return OPS.cast(short, v.dtype)
