"""The smallest classifier, and data for it."""

from __future__ import annotations

from typing import Any

import numpy as np

import ztorch as zt
from ztorch import layers as L
from ztorch.program.program import Program

X = np.linspace(-1, 1, 80, dtype=np.float32).reshape(20, 4)
Y = np.arange(20) % 3


def model(units: int = 5, **how: Any) -> zt.Sequential:
    return zt.Sequential([L.Input((4,)), L.Dense(units, activation="relu"),
                          L.Dense(3, activation="softmax")], **how)


def compiled(units: int = 5, device: str = "cpu", **how: Any) -> Program:
    return model(units).compile(device, **{
        "batch_size": 8, "optimizer": "adam", "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"], **how})
