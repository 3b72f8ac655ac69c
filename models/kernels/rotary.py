"""Rotary position embedding: pairs of features turn by an angle that grows with the position.

Two layouts are in use. `rotary_interleaved` turns neighbors (0, 1), (2, 3); `rotary_halves` turns
feature d of the first half with feature d of the second.
"""

import math

import numpy as np

import ztorch as zt


def angle(position, pair, features, base):
    """How far a pair has turned at a position: the first pairs turn fastest."""
    return position * math.exp(pair * (-2.0 * math.log(base) / features))


@zt.kernel
def rotary_interleaved(x, base=10000.0):
    """x is (batch, heads, positions, features)."""
    out = np.empty_like(x)
    batch, heads, positions, features = x.shape
    for b, h, t, d in zt.grid(batch, heads, positions, features // 2):
        c = math.cos(angle(t, d, features, base))
        s = math.sin(angle(t, d, features, base))
        even, odd = x[b, h, t, 2 * d], x[b, h, t, 2 * d + 1]
        out[b, h, t, 2 * d] = even * c - odd * s
        out[b, h, t, 2 * d + 1] = even * s + odd * c
    return out


@zt.kernel
def rotary_halves(x, base=10000.0):
    """x is (batch, heads, positions, features)."""
    out = np.empty_like(x)
    batch, heads, positions, features = x.shape
    half = features // 2
    for b, h, t, side, d in zt.grid(batch, heads, positions, 2, half):  # each with its partner
        c = math.cos(angle(t, d, features, base))
        s = math.sin(angle(t, d, features, base))
        partner = x[b, h, t, (1 - side) * half + d]
        turned = partner * (s if side == 1 else -s)
        out[b, h, t, side * half + d] = x[b, h, t, side * half + d] * c + turned
    return out
