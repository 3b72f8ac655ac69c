"""Matrix products, sums of products by a formula, and attention."""

from __future__ import annotations

import math

from ztorch.dtypes import boolean
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node


@node("MatMul")
def _matmul(n: Node) -> Result:
    return OPS.matmul(n.value(0), n.value(1))


@node("Gemm")
def _gemm(n: Node) -> Result:
    a, b = n.value(0), n.value(1)
    a = OPS.transpose(a) if n.attr("transA", 0) else a
    b = OPS.transpose(b) if n.attr("transB", 0) else b
    n.attr("broadcast")  # of old opsets, where it only said what is so anyway
    y = OPS.matmul(a, b)
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    y = y if alpha == 1.0 else y * alpha
    if not n.has(2) or beta == 0.0:
        return y
    return y + (n.value(2) if beta == 1.0 else n.value(2) * beta)


@node("Einsum")
def _einsum(n: Node) -> Result:
    return OPS.einsum(n.attr("equation").replace(" ", ""), *n.values())


@node("Det")
def _det(n: Node) -> Result:
    return OPS.det(n.value(0))


@node("Attention")
def _attention(n: Node) -> Result:
    n.only(softcap=0.0)  # else what the standard defines Attention by is imported
    if n.has(4) or n.has(5) or n.has(6):
        n.unsupported("past keys and values, or lengths of them")
    q, k, v = n.value(0), n.value(1), OPS.cast(n.value(2), n.value(0).dtype)
    flat = q.rank == 3
    if flat:
        heads, shared = n.attr("q_num_heads"), n.attr("kv_num_heads")
        q, k, v = _heads(q, heads), _heads(k, shared), _heads(v, shared)
    scale, causal = n.attr("scale"), bool(n.attr("is_causal", 0))
    mask = n.value(3) if n.has(3) else None
    if mask is None or mask.dtype is boolean:
        y = OPS.attention(q, k, v, mask, causal, scale)
    else:
        y = _with_bias(q, k, v, mask, causal, q.shape[-1] ** -0.5 if scale is None else scale)
    if not flat:
        return y
    y = OPS.transpose(y, (0, 2, 1, 3))
    return OPS.reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3]))


def _heads(x: Value, heads: int) -> Value:
    return OPS.transpose(OPS.reshape(x, (*x.shape[:2], heads, -1)), (0, 2, 1, 3))


def _with_bias(q: Value, k: Value, v: Value, bias: Value, causal: bool, scale: float) -> Value:
    """A mask of numbers is added to the scores."""
    if k.shape[1] != q.shape[1]:
        each = q.shape[1] // k.shape[1]
        k, v = (OPS.reshape(OPS.broadcast_to(OPS.expand_dims(x, 2), (
            *x.shape[:2], each, *x.shape[2:])), (x.shape[0], -1, *x.shape[2:])) for x in (k, v))
    scores = OPS.matmul(q, OPS.transpose(k, (0, 1, 3, 2))) * scale + bias
    if causal:
        rows, columns = (OPS.iota(scores.shape, axis) for axis in (-2, -1))
        scores = OPS.where(OPS.less_equal(columns, rows), scores, -math.inf)
    return OPS.matmul(OPS.softmax(scores), v)
