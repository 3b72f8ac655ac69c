"""LeNet-5 for MNIST, with modern activations.

For the data see mnist_mlp; then

    ztorch train lenet --out lenet.zt
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
BATCH_SIZE = 32
STAND_IN = "digits_28"
BAR = {"accuracy": 0.96}  # of the stand-in


def build() -> Sequential:
    """Two convolutions of 5 x 5, each with pooling; then dense layers of 120, 84 and 10.

    >>> build().count_params()
    61706
    """
    return Sequential([
        L.Input((28, 28, 1)),
        L.Conv2D(6, 5, padding="same", activation="relu", name="conv_1"),
        L.MaxPooling2D(2, name="pool_1"),
        L.Conv2D(16, 5, activation="relu", name="conv_2"),
        L.MaxPooling2D(2, name="pool_2"),
        L.Flatten(),
        L.Dense(120, activation="relu", name="hidden_1"),
        L.Dense(84, activation="relu", name="hidden_2"),
        L.Dense(10, activation="softmax", name="digit"),
    ], name="lenet", seed=1)
