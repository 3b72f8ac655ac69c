"""GELU, exact and by the usual approximation.

`gelu` is an ordinary function: kernels call it, and it becomes part of them. `place` is the tuple
of all counters, so `gelu_each` takes arrays of any rank from two on.
"""

import math

import numpy as np

import ztorch as zt


def gelu(z):
    """z times the share of a normal distribution that lies below z."""
    return 0.5 * z * (1.0 + math.erf(z / math.sqrt(2.0)))


@zt.kernel
def gelu_each(x):
    """GELU of each element."""
    out = np.empty_like(x)
    for place in zt.grid(*x.shape):
        out[place] = gelu(x[place])
    return out


@zt.kernel
def bias_gelu(x, bias):
    """GELU of x + bias with `tanh` in place of `erf`."""
    z = x + bias
    return 0.5 * z * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (z + 0.044715 * z**3)))
