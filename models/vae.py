"""A variational autoencoder of digits: what it learns can be drawn from. Kingma and Welling,
"Auto-encoding variational Bayes" (2013).

    ztorch train vae --out vae.zt

    from ztorch.models.vae import build, draw
    model = build()
    model.set_weights(zt.load("vae.zt").get_weights())
    pictures = draw(model, 16)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch import Sequential, ops
from ztorch import layers as L
from ztorch.config import number
from ztorch.graph.op import shape_error
from ztorch.graph.value import Value
from ztorch.layers import Context, Layer

DATA = "digits"
TARGET = "x"
LOSS = "binary_crossentropy"
OPTIMIZER = "adam"
LEARNING_RATE = 2e-3
METRICS = ("mae",)
EPOCHS = 40
BATCH_SIZE = 32
BAR = {"loss": 0.36}

PIXELS, CODE = 64, 8


class Latent(Layer):
    """A code drawn from the normal distribution whose means and logarithms of variances are the
    two halves of the input; outside of training, the means themselves.

    Adds to the loss how far that distribution is from the standard one, times `weight`.
    """

    def __init__(self, weight: float = 1.0, **common: Any):
        super().__init__(**common)
        self.weight = number("Latent(weight=...)", weight, least=0)

    def call(self, x: Value, context: Context) -> Value:
        if x.rank != 2 or x.shape[1] % 2:
            raise shape_error("Latent takes means and log variances side by side, not",
                              x.shape[1:], fix="end the encoder with Dense(2 * size of the code)")
        mean, log_variance = x[:, :x.shape[1] // 2], x[:, x.shape[1] // 2:]
        apart = ops.exp(log_variance) + mean * mean - 1.0 - log_variance
        context.add_loss(ops.sum(apart, axis=1) * (0.5 * self.weight))
        if not context.training:
            return mean
        seed, step, stream = context.random()
        noise = ops.random_normal(mean.shape, seed, step, stream, mean.dtype)
        return mean + ops.exp(log_variance * 0.5) * noise


def build() -> Sequential:
    """64 - 64 - a code of 8, drawn - 64 - 64. Losses are means over pixels, so the part of the
    code, which belongs to the whole picture, counts a 64th.

    >>> build().output_shape
    (8, 8, 1)
    """
    return Sequential([
        L.Input((8, 8, 1)),
        L.Flatten(),
        L.Dense(64, activation="relu", name="encoder"),
        L.Dense(2 * CODE, name="distribution"),
        Latent(1 / PIXELS, name="code"),
        Sequential([
            L.Input((CODE,)),
            L.Dense(64, activation="relu", name="hidden"),
            L.Dense(PIXELS, activation="sigmoid", name="pixels"),
            L.Reshape((8, 8, 1)),
        ], name="decoder"),
    ], name="vae", seed=1)


def draw(model: Sequential, count: int, seed: int = 0) -> np.ndarray:
    """New digits: codes of the standard normal distribution, as the model draws them."""
    decoder = model.get_layer("decoder")
    assert isinstance(decoder, Sequential)
    codes = np.random.default_rng(seed).standard_normal((count, CODE))
    return decoder.compile("cpu", batch_size=count).predict(codes)
