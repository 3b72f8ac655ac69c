"""Attention that never holds all scores: memory grows with the positions, not with their square.

A block of queries visits the keys a block at a time. Three things are kept for each query: the
largest score so far, the sum of the weights, and the weighted sum of values. When a larger score
appears, the sums are rescaled to it. Slices such as `k[b, h, j:j + block]` are values with
the operators and methods of NumPy.

The gradient of `flash_attention` is the compiler's: it takes one block of queries at a time, visits
the keys again and keeps these three of each visit, so its memory grows with the positions, too.
`attention` is the same with a gradient written by hand, which needs fewer products: the logarithm
of each query's sum of weights tells any weight at once.
"""

import math

import numpy as np

import ztorch as zt


def seen(i, j, block):
    """Whether a query of the block at `i` sees a key of that at `j`: itself and those before it."""
    places = np.arange(block)
    return j + places <= i + places[:, None]


@zt.kernel
def attention_and_sums(q, k, v, block, causal):
    """The result, and the logarithm of the sum of each query's weights, exp(score)."""
    batch, heads, queries, features = q.shape
    out = np.empty_like(q)
    sums = np.empty((batch, heads, queries), q.dtype)
    for b, h in zt.grid(batch, heads):
        for i in range(0, queries, block):
            rows = q[b, h, i:i + block] / math.sqrt(features)
            top = np.full(block, -math.inf, q.dtype)
            total = np.zeros(block, q.dtype)
            acc = np.zeros((block, features), q.dtype)
            for j in range(0, k.shape[2], block):
                scores = rows @ k[b, h, j:j + block].T
                if causal:
                    scores = np.where(seen(i, j, block), scores, -math.inf)
                new = np.maximum(top, scores.max(axis=1))
                weights = np.exp(scores - new[:, None])
                scale = np.exp(top - new)
                total = total * scale + weights.sum(axis=1)
                acc = acc * scale[:, None] + weights @ v[b, h, j:j + block]
                top = new
            out[b, h, i:i + block] = acc / total[:, None]
            sums[b, h, i:i + block] = top + np.log(total)
    return out, sums


@zt.kernel
def flash_attention(q, k, v, block=64, causal=False):
    """q, k, v are (batch, heads, positions, features); `block` divides the positions. Causal: a
    position sees itself and those before it."""
    out, _ = attention_and_sums(q, k, v, block, causal)
    return out


@zt.kernel
def attention_gradient(q, k, v, out, sums, upstream, block, causal):
    """The gradients of q, k and v, for `upstream`, that of `out`.

    A score's gradient is its weight times how far the gradient of the weight is above the query's
    mean, which is the product of `out` and `upstream`.
    """
    batch, heads, queries, features = q.shape
    factor = 1.0 / math.sqrt(features)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for b, h in zt.grid(batch, heads):
        for j in range(0, k.shape[2], block):
            keys, values = k[b, h, j:j + block], v[b, h, j:j + block]
            for i in range(0, queries, block):
                rows, up = q[b, h, i:i + block] * factor, upstream[b, h, i:i + block]
                scores = rows @ keys.T
                if causal:
                    scores = np.where(seen(i, j, block), scores, -math.inf)
                weights = np.exp(scores - sums[b, h, i:i + block][:, None])
                mean = (up * out[b, h, i:i + block]).sum(axis=1)
                slopes = weights * (up @ values.T - mean[:, None])
                dv[b, h, j:j + block] += weights.T @ up
                dk[b, h, j:j + block] += slopes.T @ rows
                dq[b, h, i:i + block] += slopes @ keys * factor
    return dq, dk, dv


@zt.custom_gradient
def attention(q, k, v, block=64, causal=False):
    """`flash_attention`, whose gradient is `attention_gradient`."""
    out, sums = attention_and_sums(q, k, v, block, causal)

    def backward(upstream):
        return attention_gradient(q, k, v, out, sums, upstream, block, causal)

    return out, backward
