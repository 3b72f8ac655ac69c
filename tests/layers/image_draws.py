"""Images for augmentation layers, the layers' random draws, and the expected results."""

from __future__ import annotations

import numpy as np

from tests.layers.running import Traced
from ztorch import ops
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant
from ztorch.layers import Layer

random = np.random.default_rng(21)
IMAGES = random.uniform(0, 1, size=(5, 8, 10, 3))


def draws(batch: int, count: int, stream: int = 0, step: int = 0) -> np.ndarray:
    """A layer's draws for each example: an array (batch, count)."""
    seed = constant(np.zeros(2, np.uint32))
    u = ops.random_uniform((batch, count), seed, constant(np.uint32(step)), stream)
    return evaluate([u], {})[0].astype(np.float64)


def seen(layer: Layer, x: np.ndarray = IMAGES, training: bool = True) -> np.ndarray:
    return Traced(layer, x, training).oracle()[0]
