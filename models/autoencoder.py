"""An autoencoder: compresses digits to 16 numbers and reconstructs them, without labels.

    ztorch train autoencoder --out autoencoder.zt
    ztorch run autoencoder.zt digits.npy -o redrawn.npy
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L

DATA = "digits"
TARGET = "x"  # it learns to reconstruct its input
LOSS = "mse"
OPTIMIZER = "adam"
LEARNING_RATE = 2e-3
METRICS = ("mae",)
EPOCHS = 40
BATCH_SIZE = 32
BAR = {"loss": 0.012}  # predicting the mean image gives 0.07


def build() -> Sequential:
    """64 - 64 - 16 - 64 - 64.

    >>> build().output_shape
    (None, 8, 8, 1)
    """
    return Sequential([
        L.Input((8, 8, 1)),
        L.Flatten(),
        L.Dense(64, activation="relu", name="encoder"),
        L.Dense(16, activation="tanh", name="code"),
        L.Dense(64, activation="relu", name="decoder"),
        L.Dense(64, activation="sigmoid", name="pixels"),
        L.Reshape((8, 8, 1)),
    ], name="autoencoder", seed=1)
