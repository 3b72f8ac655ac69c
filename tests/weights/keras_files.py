"""A small model of Keras' on disk, and invalid files derived from it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from ztorch import layers as L
from ztorch.model.sequential import Sequential

h5py = pytest.importorskip("h5py")


def model() -> Sequential:
    return Sequential([L.Input((4,)), L.Dense(3), L.Dense(2)])


def written(tmp_path: Path) -> bytes:
    model().save_weights(tmp_path / "w.weights.h5")
    return (tmp_path / "w.weights.h5").read_bytes()


def changed(tmp_path: Path, change: Any) -> Path:
    data = io.BytesIO(written(tmp_path))
    with h5py.File(data, "r+") as file:
        change(file)
    (tmp_path / "bad.weights.h5").write_bytes(data.getvalue())
    return tmp_path / "bad.weights.h5"


def replaced(array: Any, **how: Any) -> Any:
    def change(file: Any) -> None:
        group = file["layers/dense/vars"]
        del group["0"]
        group.create_dataset("0", data=array, **how)
    return change
