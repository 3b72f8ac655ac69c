"""Matrix products, Einsum, determinants and attention."""

from __future__ import annotations

import math

import numpy as np

from ztorch.dtypes import DType, boolean, f64
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node
from ztorch.interchange.onnx.padded_tensors import is_padded, masked, padded_like


@node("MatMul")
def _matmul(n: Node) -> Result:
    return product(n, n.value(0), n.value(1))


def product(n: Node, a: Value, b: Value) -> Value:
    """The product of matrices; padding along the summed axis is masked."""
    a, b = masked(n, a, (a.rank - 1,), 0), masked(n, b, (max(b.rank - 2, 0),), 0)
    y: Value = OPS.matmul(a, b)
    return y


@node("Gemm")
def _gemm(n: Node) -> Result:
    a, b = n.value(0), n.value(1)
    a = OPS.transpose(a) if n.attr("transA", 0) else a
    b = OPS.transpose(b) if n.attr("transB", 0) else b
    n.attr("broadcast")  # an attribute of old opsets without effect here
    y, kind = product(n, a, b), a.dtype
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    c = n.value(2) if n.has(2) and beta != 0.0 else None
    if not kind.is_float and not (float(alpha).is_integer() and float(beta).is_integer()):
        y, c = OPS.cast(y, f64), None if c is None else OPS.cast(c, f64)
    y = y if alpha == 1.0 else y * alpha
    if c is not None:
        y = y + (c if beta == 1.0 else c * beta)
    return OPS.cast(y, kind)


@node("Einsum")
def _einsum(n: Node) -> Result:
    equation, operands = n.attr("equation").replace(" ", ""), n.values()
    inputs, arrow, result = equation.partition("->")
    if arrow and "." not in inputs:  # padding along summed axes is masked
        operands = [masked(n, x, [k for k, c in enumerate(letters) if c not in result], 0)
                    for x, letters in zip(operands, inputs.split(","), strict=True)]
    return OPS.einsum(equation, *operands)


@node("Det")
def _det(n: Node) -> Result:
    return OPS.det(n.value(0))


_OTHERS = (2, 3, 5)  # inputs of Attention that may have another dtype: values, mask, past values


def _of_one_dtype(n: Node, kind: DType) -> Result:
    """Attention in the dtype of its queries, as the standard's definition needs; the output of all
    values keeps their own dtype."""
    inputs = [n.input(k) if n.has(k) else None for k in range(len(n.inputs))]
    for k in _OTHERS:
        if n.has(k) and n.value(k).dtype is not boolean:
            inputs[k] = OPS.cast(n.value(k), kind)
    results = [*n.defined(*inputs)]
    if len(results) > 2 and results[2] is not None:
        all_values = n.as_value(results[2])
        new_values = n.value(2)
        if new_values.rank != 4:
            new_values = split_heads(new_values, all_values.shape[1])
        results[2] = OPS.concat(n.value(5), new_values, axis=2) if n.has(5) else new_values
    return tuple(results)


@node("Attention")
def _attention(n: Node) -> Result:
    q, k, v = n.value(0), n.value(1), n.value(2)
    if any(n.has(at) and n.value(at).dtype not in (q.dtype, boolean) for at in _OTHERS):
        return _of_one_dtype(n, q.dtype)
    n.only(softcap=0.0)  # else ONNX's decomposition of Attention is imported
    if n.has(4) or n.has(5) or n.has(6):
        n.unsupported("past keys and values, or lengths of them")
    flat = q.rank == 3
    if flat:
        heads, shared = n.attr("q_num_heads"), n.attr("kv_num_heads")
        q, k, v = split_heads(q, heads), split_heads(k, shared), split_heads(v, shared)
    scale, causal = n.attr("scale"), bool(n.attr("is_causal", 0))
    mask, queries = n.value(3) if n.has(3) else None, q
    if is_padded(n, k, {2}):
        keys = n.context.padding.of(k)[2]
        real = OPS.reshape(keys.value, (keys.batch, 1, 1, keys.size))
        if mask is not None and mask.dtype is not boolean:
            mask = OPS.where(real, mask, float(np.finfo(mask.dtype.working).min))
        else:
            mask = real if mask is None else OPS.bitwise_and(mask, real)
        k, v = masked(n, k, (2,), 0), masked(n, v, (2,), 0)
        mask = OPS.broadcast_to(mask, (*mask.shape[:2], q.shape[2], keys.size))
        n.context.padding.declare(mask, {})
    if mask is None or mask.dtype is boolean:
        y = OPS.attention(q, k, v, mask, causal, scale)
    else:
        rows, columns = (OPS.iota((q.shape[2], k.shape[2]), axis) for axis in (0, 1))
        y = biased_attention(q, k, v, mask, OPS.less_equal(columns, rows) if causal else None,
                             q.shape[-1] ** -0.5 if scale is None else scale)
    y = padded_like(n, y, queries)
    if not flat:
        return y
    y = OPS.transpose(y, (0, 2, 1, 3))
    return OPS.reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3]))


def split_heads(x: Value, heads: int) -> Value:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    return OPS.transpose(OPS.reshape(x, (*x.shape[:2], heads, -1)), (0, 2, 1, 3))


def biased_attention(q: Value, k: Value, v: Value, bias: Value | None, mask: Value | None,
                     scale: float, softcap: float = 0.0) -> Value:
    """Attention whose scores are bounded, or have a bias.

    Args:
        q: Queries, (batch, heads, length, size).
        k: Keys, of as many heads, or fewer that queries share.
        v: Values, of as many heads as the keys.
        bias: What is added to the scores; None: nothing.
        mask: Which keys each query attends to; None: all.
        scale: The factor of the scores.
        softcap: If positive, the bound of scores, by tanh. Default: `0.0`.
    """
    if k.shape[1] != q.shape[1]:
        k, v = (OPS.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = OPS.matmul(q, OPS.swapaxes(k, -1, -2)) * scale
    scores = OPS.tanh(scores / softcap) * softcap if softcap else scores
    scores = scores if bias is None else scores + bias
    scores = scores if mask is None else OPS.where(mask, scores, -math.inf)
    return OPS.matmul(OPS.softmax(scores), v)
