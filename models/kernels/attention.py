"""Attention of many heads, by the definition: a row of scores for every query.

The largest score is subtracted before `exp`, so no score is too large; a masked position has the
score -inf and the weight 0. A row that is masked everywhere gives zeros, not NaN.
"""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def attention(q, k, v, mask):
    """q, k, v: (batch, heads, positions, features). `mask` is (queries, keys): who sees whom."""
    batch, heads, queries, features = q.shape
    keys = k.shape[2]
    out = np.empty_like(q)
    for b, h, i in zt.grid(batch, heads, queries):
        scores = np.empty(keys, q.dtype)
        for j in range(keys):
            dot = 0.0
            for d in range(features):
                dot += q[b, h, i, d] * k[b, h, j, d]
            scores[j] = dot / math.sqrt(features) if mask[i, j] else -math.inf
        top = max(scores.max(), -1e30)
        weights = np.exp(scores - top)
        total = max(weights.sum(), 1e-30)
        for d in range(features):
            acc = 0.0
            for j in range(keys):
                acc += weights[j] * v[b, h, j, d]
            out[b, h, i, d] = acc / total
    return out
