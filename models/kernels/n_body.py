"""Forces between all pairs of bodies.

All iterations of `j` write the same `out[i, d]`, and `+=` says how they combine.
"""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def forces(places, masses, softening=0.01):
    """The acceleration of each body; `places` is (bodies, 3)."""
    out = np.zeros_like(places)
    bodies, axes = places.shape
    for i, j in zt.grid(bodies, bodies):
        if i != j:
            square = softening
            for d in range(axes):
                square += (places[j, d] - places[i, d]) ** 2
            pull = masses[j] / (square * math.sqrt(square))
            for d in range(axes):
                out[i, d] += pull * (places[j, d] - places[i, d])
    return out
