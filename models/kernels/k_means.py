"""One step of k-means: each point joins its nearest centre, and centres move to their points."""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def k_means_step(points, centres):
    """New centres (k, features), and the number of each point's centre."""
    count, features = points.shape
    labels = np.empty(count, np.int32)
    for i in range(count):
        nearest, at = math.inf, 0
        for c in range(centres.shape[0]):
            distance = 0.0
            for d in range(features):
                distance += (points[i, d] - centres[c, d]) ** 2
            if distance < nearest:
                nearest, at = distance, c
        labels[i] = at
    sums = np.zeros_like(centres)
    members = np.zeros(centres.shape[0], centres.dtype)
    for i in range(count):
        members[labels[i]] += 1.0
        for d in range(features):
            sums[labels[i], d] += points[i, d]
    out = np.empty_like(centres)
    for c, d in zt.grid(*centres.shape):
        out[c, d] = sums[c, d] / max(members[c], 1.0)
    return out, labels
