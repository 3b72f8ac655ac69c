"""Models with random weights, for tests of ONNX files."""

from __future__ import annotations

import numpy as np

from ztorch.model.model import Model


def randomized(model: Model) -> Model:
    """With weights that are nowhere 0 or 1, and variances above 0."""
    random = np.random.default_rng(1)
    for w in model.weights:
        w.value = random.uniform(0.2, 0.9, w.shape) * (1 if "variance" in w.name else
                                                       random.choice([-1, 1], w.shape))
    return model
