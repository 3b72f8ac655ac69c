"""One step of k-means: each point joins its nearest center, and centers move to their points."""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def k_means_step(points, centers):
    """New centers (k, features), and the number of each point's center."""
    count, features = points.shape
    labels = np.empty(count, np.int32)
    for i in range(count):
        nearest, at = math.inf, 0
        for c in range(centers.shape[0]):
            distance = 0.0
            for d in range(features):
                distance += (points[i, d] - centers[c, d]) ** 2
            if distance < nearest:
                nearest, at = distance, c
        labels[i] = at
    sums = np.zeros_like(centers)
    members = np.zeros(centers.shape[0], centers.dtype)
    for i in range(count):
        members[labels[i]] += 1.0
        for d in range(features):
            sums[labels[i], d] += points[i, d]
    out = np.empty_like(centers)
    for c, d in zt.grid(*centers.shape):
        out[c, d] = sums[c, d] / max(members[c], 1.0)
    return out, labels
