"""Weights that a model class makes itself, in files of Keras."""

from __future__ import annotations

from typing import Any

import numpy as np

import ztorch as zt
from tests import references


def test_weights_that_a_model_class_makes_itself(tmp_path: Any) -> None:
    """They are in both kinds of files, compiled or not, in Keras' order."""
    def model_of(kind: Any) -> Any:
        class Shifted(kind.Model):
            def __init__(self) -> None:
                super().__init__()
                self.inner = kind.layers.Dense(2)
                self.fixed = self.add_weight(name="fixed", shape=(2,), trainable=False)
                self.shift = self.add_weight(name="shift", shape=(2,))

            def call(self, x: Any) -> Any:
                return self.inner(x) * self.fixed + 2.0 * self.shift

        return Shifted

    keras, x = references.keras(), np.random.default_rng(0).normal(size=(4, 3)).astype("f")
    ours, theirs = model_of(zt)(), model_of(keras)()
    theirs(x)
    for k in range(2):
        ours.build((None, 3))
        ours.set_weights([w + 1.0 for w in ours.get_weights()])
        expected = ours.predict(x, verbose=0)
        ours.save(tmp_path / "m.keras")
        ours.save_weights(tmp_path / "m.weights.h5")
        theirs.load_weights(tmp_path / "m.weights.h5")
        again = model_of(zt)()
        again.build((None, 3))
        again.load_weights(tmp_path / "m.weights.h5")
        own = {"Shifted": type(ours)}
        for each in (theirs, again, zt.load_model(tmp_path / "m.keras", custom_objects=own),
                     keras.models.load_model(tmp_path / "m.keras", custom_objects={
                         "Shifted": type(theirs)})):
            np.testing.assert_allclose(each.predict(x, verbose=0), expected, rtol=1e-6, atol=1e-6)
        if k == 0:
            ours.compile("adam", "mse")
            ours.fit(x, x[:, :2], verbose=0)
