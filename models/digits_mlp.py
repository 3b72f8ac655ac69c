"""A dense network for handwritten digits of 8 x 8 pixels, which ship with ztorch. It trains in a
second.

    ztorch demo
    ztorch train digits_mlp --out digits.zt
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L

# Defaults of `ztorch train` and `ztorch export`.
DATA = "digits"
LOSS = "sparse_categorical_crossentropy"
OPTIMIZER = "adam"
LEARNING_RATE = 2e-3
METRICS = ("accuracy",)
EPOCHS = 30
BATCH_SIZE = 32
BAR = {"accuracy": 0.97}


def build() -> Sequential:
    """64 - 128 - 64 - 10.

    >>> build().count_params()
    17226
    """
    return Sequential([
        L.Input((8, 8, 1)),
        L.Flatten(),
        L.Dense(128, activation="relu", name="hidden_1"),
        L.Dense(64, activation="relu", name="hidden_2"),
        L.Dense(10, activation="softmax", name="digit"),
    ], name="digits_mlp", seed=1)
