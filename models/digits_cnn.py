"""A small convolutional network for handwritten digits of 8 x 8 pixels, which ship with ztorch.

    ztorch train digits_cnn --out digits.zt
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L

DATA = "digits"
LOSS = "sparse_categorical_crossentropy"
OPTIMIZER = "adam"
LEARNING_RATE = 2e-3
METRICS = ("accuracy",)
EPOCHS = 20
BATCH_SIZE = 32
BAR = {"accuracy": 0.97}


def build() -> Sequential:
    """Two convolutions and two dense layers, with fewer weights than digits_mlp.

    >>> build().count_params()
    9258
    """
    return Sequential([
        L.Input((8, 8, 1)),
        L.Conv2D(16, 3, padding="same", activation="relu", name="conv_1"),
        L.MaxPooling2D(2, name="pool_1"),
        L.Conv2D(32, 3, padding="same", activation="relu", name="conv_2"),
        L.MaxPooling2D(2, name="pool_2"),
        L.Flatten(),
        L.Dense(32, activation="relu", name="hidden"),
        L.Dense(10, activation="softmax", name="digit"),
    ], name="digits_cnn", seed=1)
