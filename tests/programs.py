"""Small programs for tests of the training loop.

They run on the NumPy executable; `ZTORCH_TEST_ON=cpu pytest ...` runs the same tests on compiled
code.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tests.numpy_executable import compile_numpy
from ztorch import layers as L
from ztorch.model.sequential import Sequential
from ztorch.program.program import Program

ON = os.environ.get("ZTORCH_TEST_ON", "numpy")


def compiled(model: Sequential, batch_size: int, **how: Any) -> Program:
    if ON == "numpy":
        return compile_numpy(model, batch_size, **how)
    return model.compile(ON, batch_size=batch_size, **how)


def classifier(batch_size: int = 8, seed: int = 1, dropout: float = 0.2, **how: Any) -> Program:
    """3 classes from 4 numbers; the random step of its dropout is part of the state."""
    model = Sequential([L.Input((4,)), L.Dense(8, activation="tanh", name="hidden"),
                        L.Dropout(dropout), L.Dense(3, activation="softmax", name="out")],
                       name="flowers", seed=seed)
    return compiled(model, batch_size, **{
        "optimizer": "adam", "loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"],
        **how})


def regressor(batch_size: int = 8, **how: Any) -> Program:
    """One number from 2."""
    from ztorch.optimizers import SGD

    model = Sequential([L.Input((2,)), L.Dense(1, name="line")], name="line", seed=3)
    return compiled(model, batch_size, **{"optimizer": SGD(0.1), "loss": "mse", **how})


def flowers(rows: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows that the classifier can learn."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, rows).astype(np.int32)
    x = random.normal(0, 0.4, (rows, 4)).astype(np.float32)
    x[np.arange(rows), y] += 1.5
    return x, y


def same_states(a: Program, b: Program) -> bool:
    """Whether every state of two programs has the same bits."""
    left, right = a.executable.states_snapshot(), b.executable.states_snapshot()
    return list(left) == list(right) and all(np.array_equal(left[n], right[n]) for n in left)
