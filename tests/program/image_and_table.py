"""A model of an image and a table with two outputs, and data for it."""

from __future__ import annotations

from typing import Any

import numpy as np

import ztorch as zt
from tests import programs
from ztorch import layers as L
from ztorch.program.program import Program

random = np.random.default_rng(2)
ROWS = 20
IMAGE, META = (random.normal(size=(ROWS, n)).astype(np.float32) for n in (4, 3))
KIND = random.integers(0, 3, ROWS).astype(np.int32)
SIZE = random.normal(size=(ROWS, 1)).astype(np.float32)
X = {"image": IMAGE, "meta": META}
Y = {"kind": KIND, "size": SIZE}
HOW: dict[str, Any] = {
    "loss": {"kind": "sparse_categorical_crossentropy", "size": "mse"},
    "loss_weights": {"kind": 2.0, "size": 0.5},
    "metrics": {"kind": ["accuracy"], "size": ["mae"]}}


def declared(K: Any, names: bool = True) -> tuple[Any, Any]:
    image, meta = K.Input((4,), name="image"), K.Input((3,), name="meta")
    h = K.Concatenate()([K.Dense(6, activation="tanh")(image), meta])
    kind = K.Dense(3, activation="softmax", name="kind")(h)
    size = K.Dense(1, name="size")(h)
    if names:
        return {"image": image, "meta": meta}, {"kind": kind, "size": size}
    return [image, meta], [kind, size]


def compiled(names: bool = True, seed: int = 1, **how: Any) -> Program:
    model = zt.Model(*declared(L, names), name="two", seed=seed)
    return programs.compiled(model, 8, **{"optimizer": "adam", **HOW, **how})


def native(**how: Any) -> Program:
    return zt.Model(*declared(L), seed=1).compile("cpu", batch_size=8, threads=1, **how)
