"""The mode of layers called on arrays, where no program has one: each case beside Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch
from tests import references
from tests.cases.grouping import together

IMAGES = np.random.default_rng(3).random((64, 3, 4, 1)).astype(np.float32)


def within(keras: Any, inner: str, default: Any = "none") -> Any:
    """A layer of a user that calls another; `default` is that of its argument `training`."""
    class Own(keras.layers.Layer):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.layers.RandomFlip() if inner == "flip" else keras.layers.Dropout(0.5)

    def without(self: Any, x: Any) -> Any:
        return self.inner(x)

    def with_mode(self: Any, x: Any, training: Any = default) -> Any:
        return self.inner(x, training=training)

    return type("Outer", (Own,), {"call": without if default == "none" else with_mode})()


def functional(keras: Any) -> Any:
    x = keras.layers.Input(IMAGES.shape[1:])
    return keras.Model(x, keras.layers.RandomFlip()(x))


CASES: dict[str, Callable[[Any], Any]] = {
    "flip": lambda keras: keras.layers.RandomFlip(),
    "mix up": lambda keras: keras.layers.MixUp(),
    "contrast": lambda keras: keras.layers.RandomContrast(0.9, (0, 1)),
    "auto contrast": lambda keras: keras.layers.AutoContrast(value_range=(0, 1)),
    "dropout": lambda keras: keras.layers.Dropout(0.5),
    "sequential": lambda keras: keras.Sequential([keras.layers.RandomFlip()]),
    "model": functional,
    "in a layer": lambda keras: within(keras, "flip"),
    "in a layer in inference": lambda keras: within(keras, "flip", False),
    "in a layer without a mode": lambda keras: within(keras, "flip", None),
    "dropout in a layer in training": lambda keras: within(keras, "dropout", True),
    "dropout in a layer without a mode": lambda keras: within(keras, "dropout", None),
}


def changes(layer: Any, **mode: Any) -> bool:
    y = layer(IMAGES, **mode)
    return not np.allclose(np.asarray(y.detach() if hasattr(y, "detach") else y), IMAGES, atol=1e-3)


@together()
@pytest.mark.parametrize("name", CASES)
def test_a_layer_alone_has_its_own_mode(name: str) -> None:
    make = CASES[name]
    assert changes(make(ztorch)) == changes(make(references.keras()))


def test_a_given_mode_and_predictions_come_first() -> None:
    for name in ("flip", "sequential", "model"):
        layer = CASES[name](ztorch)
        assert changes(layer, training=True) and not changes(layer, training=False)
    model = functional(ztorch)
    np.testing.assert_array_equal(model.predict(IMAGES), IMAGES)
    same, _ = model.stateless_call([], [], IMAGES, training=False)
    np.testing.assert_array_equal(same.numpy(), IMAGES)
