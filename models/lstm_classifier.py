"""An LSTM that reads handwritten digits row by row, as sequences of 8 steps of 8 pixels.

    ztorch train lstm_classifier --out digits.zt
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L

DATA = "digits"
LOSS = "sparse_categorical_crossentropy"
OPTIMIZER = "adam"
LEARNING_RATE = 5e-3
METRICS = ("accuracy",)
EPOCHS = 30
BATCH_SIZE = 32
BAR = {"accuracy": 0.96}


def build() -> Sequential:
    """A bidirectional LSTM of 32 units over 8 rows, then a dense layer of 10.

    >>> build().count_params()
    11146
    """
    return Sequential([
        L.Input((8, 8, 1)),
        L.Reshape((8, 8), name="rows"),
        L.Bidirectional(L.LSTM(32), name="reader"),
        L.Dropout(0.2),
        L.Dense(10, activation="softmax", name="digit"),
    ], name="lstm_classifier", seed=1)
