"""Images read at places between their pixels, as in spatial transformers and optical flow.

The places are data, so the reads are lookups, and the gradient goes to the image and to the places.
"""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def warp(image, flow):
    """Each pixel is `image` at its own place plus `flow` (height, width, 2): a mean of four pixels,
    of which those outside are zeros."""
    height, width = image.shape
    out = np.zeros_like(image)
    for i, j in zt.grid(height, width):
        y, x = i + flow[i, j, 0], j + flow[i, j, 1]
        top, left = math.floor(y), math.floor(x)
        for a in range(2):
            for b in range(2):
                if 0 <= top + a < height and 0 <= left + b < width:
                    share = (1 - abs(y - (top + a))) * (1 - abs(x - (left + b)))
                    out[i, j] += share * image[top + a, left + b]
    return out
