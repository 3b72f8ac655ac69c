"""Regression on the columns of a table: a deep branch plus a linear one.

    ztorch train tabular_regressor
    ztorch train tabular_regressor --data yours.csv     # the last column is the target
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L

DATA = "friedman"
LOSS = "mse"
OPTIMIZER = "adam"
LEARNING_RATE = 3e-3
METRICS = ("mae",)
EPOCHS = 60
BATCH_SIZE = 32
BAR = {"loss": 1.6}


def build() -> Sequential:
    """Dense layers with two residual blocks of 64 features, plus a linear layer over all columns.

    >>> build().output_shape
    (None, 1)
    """
    deep = Sequential([
        L.Dense(64, activation="silu"),
        L.Residual(L.LayerNormalization(), L.Dense(64, activation="silu"), L.Dense(64)),
        L.Residual(L.LayerNormalization(), L.Dense(64, activation="silu"), L.Dense(64)),
        L.Dense(1),
    ], name="deep")
    return Sequential([L.Input((10,)), L.Add(deep, L.Dense(1, name="line"), name="both")],
                      name="tabular_regressor", seed=1)
