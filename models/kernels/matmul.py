"""Matrix products.

A sum of products is recognized: the three loops become one matrix product, with the
blocks and vectors that the machine likes best. Later work on `acc` is fused with it.
A signature names sizes: a call in which two sizes of one name differ is an error.
"""

import numpy as np

import ztorch as zt


@zt.kernel("any[m, k], any[k, n] -> any[m, n]")
def matmul(a, b):
    """The product of two matrices."""
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    for i, j in zt.grid(*out.shape):
        acc = 0.0
        for k in range(a.shape[1]):
            acc += a[i, k] * b[k, j]
        out[i, j] = acc
    return out


@zt.kernel("any[b, m, k], any[b, k, n] -> any[b, m, n]")
def batched_matmul(a, b):
    """The products of two stacks of matrices, one by one."""
    out = np.empty((a.shape[0], a.shape[1], b.shape[2]), a.dtype)
    for n, i, j in zt.grid(*out.shape):
        acc = 0.0
        for k in range(a.shape[2]):
            acc += a[n, i, k] * b[n, k, j]
        out[n, i, j] = acc
    return out


@zt.kernel
def linear_relu(x, weight, bias):
    """A dense layer and its activation in one kernel."""
    out = np.empty((x.shape[0], weight.shape[1]), x.dtype)
    for i, j in zt.grid(*out.shape):
        acc = bias[j]
        for k in range(x.shape[1]):
            acc += x[i, k] * weight[k, j]
        out[i, j] = max(acc, 0.0)
    return out


@zt.kernel
def tiled_matmul(a, b, tile=16):
    """The same product, a square tile at a time: slices of arrays are values, and `@` multiplies
    them. `tile` divides all sizes."""
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    for i in range(0, a.shape[0], tile):
        for j in range(0, b.shape[1], tile):
            acc = np.zeros((tile, tile), a.dtype)
            for k in range(0, a.shape[1], tile):
                acc += a[i:i + tile, k:k + tile] @ b[k:k + tile, j:j + tile]
            out[i:i + tile, j:j + tile] = acc
    return out
