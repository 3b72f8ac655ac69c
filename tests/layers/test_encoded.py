"""Layers of the host within a model: the same numbers as on arrays, and the same as in Keras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.grouping import together
from ztorch import layers as L
from ztorch.errors import ConfigError, DataError, ShapeError, Unsupported

IDS = np.array([[7, 12, 3, 9], [5, 5, 9, 9]])
NUMBERS = np.array([[-1.0, 0.0, 0.4, 9.0], [0.5, 0.6, 2.0, 1.0]], np.float32)


@together()
@pytest.mark.parametrize("mode", ["int", "one_hot", "multi_hot", "count"])
@pytest.mark.parametrize(("layer", "how", "x"), [
    (L.IntegerLookup, {"vocabulary": [7, 12, 5], "mask_token": 9}, IDS),
    (L.IntegerLookup, {"vocabulary": [7, 5], "max_tokens": 9, "pad_to_max_tokens": True}, IDS),
    (L.Discretization, {"bin_boundaries": [0.0, 0.5, 2.0]}, NUMBERS),
    (L.CategoryEncoding, {"num_tokens": 13}, IDS)], ids=["masked", "padded", "bins", "categories"])
def test_a_model_equals_the_host(layer: Any, how: dict[str, Any], x: np.ndarray,
                                 mode: str) -> None:
    if (layer, mode) == (L.CategoryEncoding, "int"):
        mode = "count"
    made = layer(**how, output_mode=mode)
    inputs = L.Input((4,), dtype="int64" if x is IDS else None)
    model = zt.Model(inputs, made(inputs))
    got = references.Run(model.trace(2).functions["predict"])(x=x)["y"]
    np.testing.assert_array_equal(got, made(x))


def table(kind: Any) -> Any:
    layers = kind.layers
    a, b = (layers.Input((n,), dtype="int32", name=name) for n, name in ((1, "a"), (4, "b")))
    c = layers.Input((2,), name="c")
    parts = [layers.CategoryEncoding(4, output_mode="one_hot", name="encoded")(a),
             layers.CategoryEncoding(13, output_mode="count")(b),
             layers.Discretization(bin_boundaries=[0.0, 0.5], output_mode="multi_hot")(c)]
    return kind.Model([a, b, c], layers.Dense(2)(layers.Concatenate()(parts)))


def test_files_of_keras_in_both_directions(tmp_path: Path) -> None:
    keras, ours = references.keras(), table(zt)
    x = {"a": np.array([[3], [0]], np.int32), "b": IDS.astype(np.int32),
         "c": NUMBERS[:, 1:3].copy()}
    want = ours.predict(x, verbose=0)
    ours.save(tmp_path / "ours.keras")
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "ours.keras").predict(
        x, verbose=0), want, rtol=1e-5)
    theirs = table(keras)
    theirs.set_weights(ours.get_weights())
    theirs.save(tmp_path / "theirs.keras")
    loaded = zt.load_keras(tmp_path / "theirs.keras")
    assert "encoded" in [layer.name for layer in loaded.layers]
    np.testing.assert_allclose(loaded.predict(x, verbose=0), want, rtol=1e-5)


def test_numbers_out_of_range_are_refused_with_their_row() -> None:
    model = zt.Sequential([L.Input((1,)), L.CategoryEncoding(3, name="kind"), L.Dense(1)])
    model.compile("dummy")
    with pytest.raises(DataError, match=r"x holds 5\.0 in row 1; layer 'kind' takes integers from 0"):
        model.predict(np.array([[1.0], [5.0]]), verbose=0)


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda x: L.IntegerLookup()(x), ConfigError, "IntegerLookup has no vocabulary"),
    (lambda x: L.IntegerLookup(vocabulary=[1], num_oov_indices=0)(x), Unsupported, "which a model"),
    (lambda x: L.IntegerLookup(vocabulary=[1], invert=True)(x), Unsupported, "runs on the host"),
    (lambda x: L.Discretization(num_bins=3)(x), ConfigError, "Discretization has no bin_boundaries"),
    (lambda x: L.Hashing(3)(x), Unsupported, "Hashing runs on the host, before a model"),
    (lambda x: L.CategoryEncoding(3)(x, count_weights=x), ShapeError,
     "layer 'category_encoding': count_weights need output_mode='count'")])
def test_unsupported_computations_are_named(make: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make(L.Input((2,), dtype="int32"))
