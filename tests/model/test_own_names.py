"""Classes of users that have the name of a class of the package: both keep their meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L

X = np.arange(8.0, dtype=np.float32).reshape(2, 4)


class Rescaling(L.Layer):
    """Adds a number, where the package's Rescaling multiplies."""

    def __init__(self, scale: float, **common: Any):
        super().__init__(**common)
        self.scale = scale

    def call(self, x: Any) -> Any:  # type: ignore[override]
        return x + self.scale


class MeanAbsoluteError(zt.losses.Loss):
    """The largest error of each row."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return zt.ops.max(zt.ops.abs(y_true - y_pred), axis=-1)


def model() -> Any:
    return zt.Sequential([L.Input((4,)), Rescaling(3.0), L.Rescaling(10.0)])


@pytest.mark.parametrize("custom", [None, {"Rescaling": Rescaling}, [Rescaling]])
def test_configs_tell_them_apart(tmp_path: Path, custom: Any) -> None:
    want = (X + 3) * 10
    copies = [zt.models.clone_model(model()), zt.models.model_from_json(model().to_json(), custom)]
    for name in ("model.zt", "model.keras"):
        own = model()
        own.compile(loss=MeanAbsoluteError())
        own.save(tmp_path / name)
        copies.append(zt.models.load_model(tmp_path / name, custom_objects=custom))
    for copy in copies:
        np.testing.assert_allclose(copy.predict(X, verbose=0), want)
    np.testing.assert_allclose(zt.load(tmp_path / "model.zt").evaluate(X, X, verbose=0), (want - X).max(axis=1).mean())


def test_names_are_those_of_the_package() -> None:
    own = model()
    own.compile(loss="MeanAbsoluteError")
    np.testing.assert_allclose(own.evaluate(X, X, verbose=0), np.abs((X + 3) * 10 - X).mean())
    config = {"class_name": "Rescaling", "config": {"scale": 2.0}}
    np.testing.assert_allclose(L.Layer.get(config)(X), 2 * X)
