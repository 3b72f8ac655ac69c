"""Attention that never holds all scores: memory grows with the positions, not with their square.

Keys are visited a block at a time. Three things are kept for each query: the largest score so far,
the sum of the weights, and the weighted sum of values. When a larger score appears, what was summed
is scaled down to it.
"""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def flash_attention(q, k, v, block=64):
    """q, k, v are (batch, heads, positions, features); `block` divides the number of keys."""
    batch, heads, queries, features = q.shape
    out = np.empty_like(q)
    for b, h, i in zt.grid(batch, heads, queries):
        top, total = -math.inf, 0.0
        acc = np.zeros(features, q.dtype)
        for j in range(0, k.shape[2], block):
            scores = k[b, h, j:j + block] @ q[b, h, i] / math.sqrt(features)
            new = max(top, scores.max())
            weights = np.exp(scores - new)
            scale = math.exp(top - new)
            total = total * scale + weights.sum()
            acc = acc * scale + weights @ v[b, h, j:j + block]
            top = new
        out[b, h, i] = acc / total
    return out


@zt.kernel
def causal_flash_attention(q, k, v, block=64):
    """The same where a position sees itself and those before it."""
    batch, heads, queries, features = q.shape
    out = np.empty_like(q)
    for b, h, i in zt.grid(batch, heads, queries):
        top, total = -math.inf, 0.0
        acc = np.zeros(features, q.dtype)
        for j in range(0, k.shape[2], block):
            scores = k[b, h, j:j + block] @ q[b, h, i] / math.sqrt(features)
            scores = np.where(j + np.arange(block) <= i, scores, -math.inf)
            new = max(top, scores.max())
            weights = np.exp(scores - new)
            scale = math.exp(top - new)
            total = total * scale + weights.sum()
            acc = acc * scale + weights @ v[b, h, j:j + block]
            top = new
        out[b, h, i] = acc / total
    return out
