"""A variational autoencoder, which can draw new digits: Kingma and Welling, "Auto-encoding
variational Bayes" (2013).

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
    """Draws a code from a normal distribution; when predicting, the code is its mean.

    The two halves of the input are the means and the logarithms of the variances. The layer adds
    the divergence of this distribution from the standard normal one to the loss.

    Args:
        weight: Factor of the divergence in the loss. Default: `1.0`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.
    """

    def __init__(self, weight: float = 1.0, **common: Any):
        super().__init__(**common)
        self.weight = number("Latent(weight=...)", weight, least=0)

    def call(self, x: Value, context: Context) -> Value:
        if x.rank != 2 or x.shape[1] % 2:
            raise shape_error("Latent takes means and log variances side by side, not",
                              x.shape[1:], fix="end the encoder with Dense(2 * size of the code)")
        mean, log_variance = x[:, :x.shape[1] // 2], x[:, x.shape[1] // 2:]
        divergence = ops.exp(log_variance) + mean * mean - 1.0 - log_variance
        context.add_loss(ops.sum(divergence, axis=1) * (0.5 * self.weight))
        if not context.training:
            return mean
        seed, step, stream = context.random()
        noise = ops.random_normal(mean.shape, seed, step, stream, mean.dtype)
        return mean + ops.exp(log_variance * 0.5) * noise


def build() -> Sequential:
    """An encoder to a code of 8 numbers and a decoder, both with a hidden layer of 64.

    The loss is a mean over 64 pixels, so the divergence of the code counts a 64th.

    >>> build().output_shape
    (None, 8, 8, 1)
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
    """New digits, decoded from codes of the standard normal distribution."""
    decoder = model.get_layer("decoder")
    assert isinstance(decoder, Sequential)
    codes = np.random.default_rng(seed).standard_normal((count, CODE))
    return decoder.compile("cpu", batch_size=count).predict(codes)
