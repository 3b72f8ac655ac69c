"""Convolutions of images (batch, height, width, channels), with a stride and zeros around them.

The condition keeps indices inside of the image. Sizes are arithmetic on shapes, done while
compiling: `stride` and `padding` are numbers, so each pair of them is a program of its own.
"""

import numpy as np

import ztorch as zt


@zt.kernel
def conv2d(x, w, stride=1, padding=0):
    """`w` is (height, width, channels in, channels out)."""
    batch, height, width, channels = x.shape
    kh, kw, _, filters = w.shape
    rows = (height + 2 * padding - kh) // stride + 1
    columns = (width + 2 * padding - kw) // stride + 1
    out = np.empty((batch, rows, columns, filters), x.dtype)
    for n, i, j, f in zt.grid(*out.shape):
        acc = 0.0
        for a in range(kh):
            for b in range(kw):
                y = i * stride + a - padding
                z = j * stride + b - padding
                if 0 <= y < height and 0 <= z < width:
                    for c in range(channels):
                        acc += x[n, y, z, c] * w[a, b, c, f]
        out[n, i, j, f] = acc
    return out


@zt.kernel
def depthwise_conv2d(x, w, stride=1, padding=0):
    """Each channel by a filter of its own: `w` is (height, width, channels)."""
    batch, height, width, channels = x.shape
    kh, kw, _ = w.shape
    rows = (height + 2 * padding - kh) // stride + 1
    columns = (width + 2 * padding - kw) // stride + 1
    out = np.empty((batch, rows, columns, channels), x.dtype)
    for n, i, j, c in zt.grid(*out.shape):
        acc = 0.0
        for a in range(kh):
            for b in range(kw):
                y = i * stride + a - padding
                z = j * stride + b - padding
                if 0 <= y < height and 0 <= z < width:
                    acc += x[n, y, z, c] * w[a, b, c]
        out[n, i, j, c] = acc
    return out
