"""Writes the files of this folder: `python -m tests.artifact.old.remember FOLDER`.

Run it with the ztorch that is to be remembered, before the version of a format is raised; FOLDER is named for the
version. `tests/artifact/test_old.py` loads the files in this folder.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import ztorch as zt
from ztorch import layers as L

HOW: dict[str, dict[str, Any]] = {
    "cpu": {"optimizer": "adam", "loss": "sparse_categorical_crossentropy",
            "metrics": ["accuracy"], "batch_size": 40},  # wide enough for three workers
    "webgpu": {"optimizer": "sgd", "loss": "mse", "batch_size": 8},
    "dummy": {"optimizer": "sgd", "loss": "mse", "batch_size": 8},
}


def model(kind: str) -> zt.Sequential:
    """The models that the artifacts were compiled from."""
    if kind == "cpu":
        layers = [L.Dense(96, activation="tanh", name="hidden"), L.Dropout(0.3),
                  L.Dense(3, activation="softmax", name="out")]
    else:
        layers = [L.Dense(6, activation="tanh", name="hidden"), L.Dense(3, name="out")]
    return zt.Sequential([L.Input((4,)), *layers], name="flowers", seed=1)


def remember(folder: Path) -> None:
    """An artifact of each kind after two epochs, with its results then and two epochs later."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 120).astype(np.int32)
    x = random.normal(labels[:, None], 1.0, (120, 4)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    for kind, how in HOW.items():
        y = labels if kind == "cpu" else np.eye(3, dtype=np.float32)[labels]
        program = model(kind).compile("cpu:scalar" if kind == "cpu" else kind, **how)
        first = program.fit(x, y, epochs=2, validation_split=0.2, verbose=0).history["loss"]
        program.save(folder / f"{kind}.zt")
        if kind == "cpu":
            program.save_checkpoint(folder / "cpu.safetensors")
        predicted = program.predict(x)
        more = program.fit(x, y, epochs=2, validation_split=0.2, verbose=0).history["loss"]
        if kind != "dummy":  # which computes nothing
            np.savez_compressed(folder / f"{kind}.npz", x=x, y=y, first=first, predicted=predicted,
                                more=more, then=program.predict(x))


if __name__ == "__main__":
    remember(Path(sys.argv[1]))
