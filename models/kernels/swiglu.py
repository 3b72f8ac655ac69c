"""The feed-forward part of a modern transformer: two products, a gate, and a product back.

`silu` is an ordinary function that becomes part of the kernel. The gate is computed where the
products end, so `hidden` is written once.
"""

import math

import numpy as np

import ztorch as zt


def silu(z):
    """z times its sigmoid."""
    return z / (1.0 + math.exp(-z))


@zt.kernel
def swiglu(x, gate, up, down):
    """`(silu(x @ gate) * (x @ up)) @ down` of rows x."""
    rows, width = x.shape
    hidden = np.empty((rows, gate.shape[1]), x.dtype)
    for i, j in zt.grid(*hidden.shape):
        g, u = 0.0, 0.0
        for k in range(width):
            g += x[i, k] * gate[k, j]
            u += x[i, k] * up[k, j]
        hidden[i, j] = silu(g) * u
    out = np.empty_like(x)
    for i, j in zt.grid(*out.shape):
        acc = 0.0
        for k in range(hidden.shape[1]):
            acc += hidden[i, k] * down[k, j]
        out[i, j] = acc
    return out
