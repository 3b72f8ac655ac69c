"""Programs to write, and artifacts taken apart and put together again with wrong contents."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ztorch import layers as L
from ztorch.artifact.write import stored_zip
from ztorch.files.container import MANIFEST
from ztorch.model.sequential import Sequential
from ztorch.program.program import Program

Manifest = dict[str, Any]


def trainer(device: str = "cpu:scalar", dtype: str = "float32") -> Program:
    """A program whose training depends on every kind of state: slots, counter, dropout's step."""
    model = Sequential([L.Input((4,)), L.Dense(6, activation="tanh", name="hidden"),
                        L.Dropout(0.3), L.Dense(3, activation="softmax", name="out")],
                       name="flowers", seed=1)
    return model.compile(device, batch_size=8, optimizer="adam", dtype=dtype,
                         loss="sparse_categorical_crossentropy", metrics=["accuracy"])


def predictor(device: str = "cpu:scalar") -> Program:
    model = Sequential([L.Input((4,)), L.Dense(6, activation="relu", name="hidden"),
                        L.Dense(3, name="out")], name="small", seed=1)
    return model.compile(device, batch_size=2)


def flowers(rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    y = random.integers(0, 3, rows).astype(np.int32)
    return random.normal(y[:, None], 1.0, (rows, 4)).astype(np.float32), y


@cache
def whole() -> bytes:
    """The bytes of an artifact that predicts."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        predictor().save(Path(folder) / "small.zt")
        return (Path(folder) / "small.zt").read_bytes()


def apart(data: bytes) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest, and the other members."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(files.pop(MANIFEST)), files


def together(manifest: Manifest | bytes, files: dict[str, bytes], rehash: bool = True) -> bytes:
    """An artifact whose hashes are all right, whatever it says."""
    if isinstance(manifest, dict):
        if rehash:
            manifest["files"] = {n: {"size": len(d), "sha256": hashlib.sha256(d).hexdigest()}
                                 for n, d in files.items()}
        manifest = json.dumps(manifest).encode()
    return stored_zip({MANIFEST: manifest, **files}, hashlib.sha256(manifest).hexdigest())


def changed(change: Callable[[Manifest], object], data: bytes | None = None) -> bytes:
    """An artifact with another manifest, sealed again."""
    manifest, files = apart(data or whole())
    change(manifest)
    return together(manifest, files, rehash=False)


def same_states(a: Program, b: Program) -> bool:
    left, right = a.executable.states_snapshot(), b.executable.states_snapshot()
    return list(left) == list(right) and all(np.array_equal(left[n], right[n]) for n in left)
