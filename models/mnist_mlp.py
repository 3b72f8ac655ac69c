"""A dense network for MNIST with two hidden layers of 512 units.

Download the four IDX files of MNIST (or of Fashion-MNIST), gzipped or not, from
https://storage.googleapis.com/cvdf-datasets/mnist/ into the folder data/mnist; then

    ztorch train mnist_mlp --out mnist.zt
    ztorch train mnist_mlp --data fashion_mnist --epochs 15
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L

DATA = "mnist"
LOSS = "sparse_categorical_crossentropy"
OPTIMIZER = "adam"
LEARNING_RATE = 1e-3
METRICS = ("accuracy",)
EPOCHS = 10
BATCH_SIZE = 128
STAND_IN = "digits_28"
BAR = {"accuracy": 0.96}  # of the stand-in


def build() -> Sequential:
    """784 - 512 - 512 - 10.

    >>> build().count_params()
    669706
    """
    return Sequential([
        L.Input((28, 28, 1)),
        L.Flatten(),
        L.Dense(512, activation="relu", name="hidden_1"),
        L.Dropout(0.2),
        L.Dense(512, activation="relu", name="hidden_2"),
        L.Dropout(0.2),
        L.Dense(10, activation="softmax", name="digit"),
    ], name="mnist_mlp", seed=1)
