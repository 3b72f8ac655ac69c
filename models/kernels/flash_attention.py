"""Attention that never holds all scores: memory grows with the positions, not with their square.

A block of queries visits the keys a block at a time. Three things are kept for each query: the
largest score so far, the sum of the weights, and the weighted sum of values. When a larger score
appears, the sums are rescaled to it. Slices such as `k[b, h, j:j + block]` are values with
the operators and methods of NumPy. The gradient computes the scores again; it keeps these three of
every block of keys.
"""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def flash_attention(q, k, v, block=64, causal=False):
    """q, k, v are (batch, heads, positions, features); `block` divides the positions. Causal: a
    position sees itself and those before it."""
    batch, heads, queries, features = q.shape
    out = np.empty_like(q)
    for b, h in zt.grid(batch, heads):
        for i in range(0, queries, block):
            rows = q[b, h, i:i + block] / math.sqrt(features)
            top = np.full(block, -math.inf, q.dtype)
            total = np.zeros(block, q.dtype)
            acc = np.zeros((block, features), q.dtype)
            for j in range(0, k.shape[2], block):
                scores = rows @ k[b, h, j:j + block].T
                if causal:
                    places = np.arange(block)
                    scores = np.where(j + places <= i + places[:, None], scores, -math.inf)
                new = np.maximum(top, scores.max(axis=1))
                weights = np.exp(scores - new[:, None])
                scale = np.exp(top - new)
                total = total * scale + weights.sum(axis=1)
                acc = acc * scale[:, None] + weights @ v[b, h, j:j + block]
                top = new
            out[b, h, i:i + block] = acc / total[:, None]
    return out
