"""Stateful layers: their states from batch to batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L
from ztorch.errors import ConfigError, DataError, ShapeError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers import Context
from ztorch.model.sequential import Sequential

random = np.random.default_rng(21)


def stateful_models() -> tuple[Sequential, Any]:
    keras = references.keras()
    K = keras.layers
    ours = Sequential([L.Input((6, 3)), L.LSTM(4, stateful=True, return_sequences=True),
                       L.Bidirectional(L.GRU(3, stateful=True))])
    theirs = keras.Sequential([
        keras.Input(batch_shape=(2, 6, 3)), K.LSTM(4, stateful=True, return_sequences=True),
        K.Bidirectional(K.GRU(3, stateful=True))])
    named = [w for w in theirs.weights if "state" not in w.path.rpartition("/")[2]]
    for w, a in zip(named, ours.get_weights(), strict=True):
        w.assign(a)
    return ours, theirs


def test_stateful_programs_continue_from_the_last_batch(tmp_path: Any) -> None:
    ours, theirs = stateful_models()
    x = random.normal(size=(4, 6, 3)).astype(np.float32)
    program = ours.compile("cpu", batch_size=2)
    outputs = []
    for _ in range(3):
        outputs.append(program.predict(x))
        np.testing.assert_allclose(outputs[-1], theirs.predict(x, batch_size=2, verbose=0),
                                   rtol=1e-4, atol=1e-6)
    assert (outputs[0] != outputs[1]).any()
    program.save(tmp_path / "p.zt")
    np.testing.assert_array_equal(zt.load(tmp_path / "p.zt").predict(x), program.predict(x))
    program.reset_states()
    np.testing.assert_array_equal(program.predict(x), outputs[0])


def test_custom_layers_keep_states() -> None:
    """A value computed from a state alone is computed at each call, though the program only predicts."""
    class Total(L.Layer):
        def call(self, x: Value, context: Context) -> Value:
            total = context.remembered_state(self, "total", x.shape)
            context.remember_state(self, "total", total + x)
            return x + OPS.tanh(total)

    try:
        program = Sequential([L.Input((3,)), Total()]).compile("cpu", batch_size=2)
        x, total = np.float32([[1, 2, 3], [4, 5, 6]]) / 10, np.zeros((2, 3), np.float32)
        for _ in range(3):
            np.testing.assert_allclose(program.predict(x), x + np.tanh(total), rtol=1e-6)
            total += x
    finally:
        del L.LAYERS["Total"]


def test_training_and_evaluation_remember_too() -> None:
    ours, _ = stateful_models()
    x, y = random.normal(size=(2, 6, 3)), random.normal(size=(2, 6))
    program = ours.compile("cpu", batch_size=2, loss="mse", optimizer=zt.optimizers.SGD(0.0))
    first = program.evaluate(x, y, verbose=0)
    second = program.evaluate(x, y, verbose=0)
    program.reset_states()
    assert program.train_on_batch(x, y) == pytest.approx(first, rel=1e-6)
    assert program.train_on_batch(x, y) == pytest.approx(second, rel=1e-6)
    assert abs(first - second) > 1e-6
    assert not any("state_" in name for name in program.weight_names)


def test_a_stateful_program_refuses_another_batch_size() -> None:
    model = stateful_models()[0]
    program = model.compile("cpu", batch_size=2, loss="mse", optimizer="sgd")
    x, y = np.zeros((3, 6, 3)), np.zeros((3, 6))
    for call in (lambda: program.predict(x), lambda: program.predict_on_batch(x[:1]),
                 lambda: program.evaluate(x, y, verbose=0), lambda: program.fit(x, y, verbose=0),
                 lambda: program.train_on_batch(x[:1], y[:1]), lambda: program.predict(zt.Tensor(x)),
                 lambda: program.predict(iter([x]))):
        with pytest.raises(DataError, match=r"layer 'lstm' is stateful.*batches of 2 rows, and x has "
                                            r"[13]; pass a multiple of 2"):
            call()
    for call in (lambda: model.predict(x, batch_size=3),
                 lambda: model.fit(x, y, batch_size=3, verbose=0)):
        with pytest.raises(ConfigError, match=r"layer 'lstm' is stateful.*batches of 2 rows, not of "
                                              "3; omit batch_size"):
            call()


def test_stateful_layers_on_tensors() -> None:
    model = Sequential([L.Input((4, 3)), L.GRU(2, stateful=True)])
    x = zt.Tensor(random.normal(size=(2, 4, 3)).astype(np.float32))
    program = model.compile("cpu", batch_size=2)
    for _ in range(2):
        np.testing.assert_allclose(np.asarray(model(x)), program.predict(np.asarray(x)), rtol=1e-5,
                                   atol=1e-7)
    with pytest.raises(ShapeError, match=r"layer 'gru' is stateful: it remembers states of 2 rows and "
                                         r"is called on 1; call reset_states\(\)"):
        model(x[:1])
    model.reset_states()
    program.reset_states()
    np.testing.assert_allclose(np.asarray(model(x)), program.predict(np.asarray(x)), rtol=1e-5,
                               atol=1e-7)
    model.layers[0].reset_states()
    assert np.asarray(model(x[:1])).shape == (1, 2)
