"""Functional models with an input that no output depends on: they take it and ignore it, as in Keras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch.errors import DataError
from ztorch.interchange.keras import load_keras

X = {"a": np.arange(15.0, dtype=np.float32).reshape(5, 3) / 7, "b": np.ones((5, 2), np.float32)}
Y = np.ones((5, 2), np.float32)


def model(framework: Any) -> Any:
    a, b = (framework.layers.Input((n,), name=name) for name, n in (("a", 3), ("b", 2)))
    hidden = framework.layers.Dense(4, kernel_initializer="ones", name="hidden")(a)
    y = framework.layers.Dense(2, kernel_initializer="ones", name="y")(hidden)
    m = framework.Model([a, b], y)
    m.compile("sgd", "mse")
    return m


def test_scores_are_keras(tmp_path: Path) -> None:
    ours, theirs = model(zt), model(references.keras())
    pair = [*X.values()]
    assert [layer.name for layer in ours.layers] == [layer.name for layer in theirs.layers]
    for x in (X, pair):
        np.testing.assert_allclose(ours.predict(x), theirs.predict(x, verbose=0), rtol=1e-6)
    for fit in ({"epochs": 2, "shuffle": False}, {"batch_size": 2, "shuffle": False}):
        losses = [m.fit(X, Y, verbose=0, **fit).history["loss"] for m in (ours, theirs)]
        np.testing.assert_allclose(*losses, rtol=1e-5)
    want = theirs.predict(X, verbose=0)
    np.testing.assert_allclose(np.asarray(ours(pair)), want, rtol=1e-5)
    theirs.save(path := str(tmp_path / "theirs.keras"))
    np.testing.assert_allclose(load_keras(path).predict(X), want, rtol=1e-5)
    ours.save(path := str(tmp_path / "ours.zt"))
    np.testing.assert_allclose(zt.load(path).predict(pair), want, rtol=1e-5)
    ours.save(path := str(tmp_path / "ours.keras"))
    np.testing.assert_allclose(references.keras().models.load_model(path).predict(X, verbose=0), want,
                               rtol=1e-5)


def test_its_shape_is_checked() -> None:
    with pytest.raises(DataError, match=r"x\['b'\] has shape \(5, 7\), but the model takes \(N, 2\)"):
        model(zt).predict({"a": X["a"], "b": np.ones((5, 7))})
    with pytest.raises(DataError, match="the model has 2 inputs"):
        model(zt).predict([X["a"]])


def test_its_size_may_vary() -> None:
    a, b = zt.layers.Input((3,)), zt.layers.Input((None, 2))
    y = zt.layers.Dense(1, kernel_initializer="ones")(a)
    got = zt.Model([a, b], y).predict([X["a"], np.ones((5, 4, 2))])
    np.testing.assert_allclose(got, X["a"].sum(1, keepdims=True), rtol=1e-6)


def test_exported_files_take_it(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    ours = model(zt)
    ours.export(tmp_path / "m.onnx")
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    [got] = session.run(None, {f"x/{name}": x for name, x in X.items()})
    np.testing.assert_allclose(got, ours.predict(X), rtol=1e-6)
    ours.export(tmp_path / "c", format="c")
    [header] = (tmp_path / "c").glob("*.h")
    assert "x_b" in header.read_text()
