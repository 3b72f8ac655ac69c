"""Cells in loops: stacked ones, ours and users', and cells that are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from tests.layers.beside_keras import BATCH, FEATURES, MASK, STEPS, UNITS, beside_keras, draws
from ztorch import layers as L
from ztorch.dtypes import f64
from ztorch.errors import ConfigError, ShapeError, Unsupported
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Value
from ztorch.layers import Context, States
from ztorch.model.sequential import Sequential

# -- cells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sequences", [False, True])
def test_stacked_cells_are_those_of_keras(masked: bool, sequences: bool) -> None:
    K = references.keras().layers
    how = {"return_sequences": sequences, "return_state": True}
    d = {"dtype": "float64"}
    beside_keras(L.RNN([L.LSTMCell(4), L.GRUCell(3), L.SimpleRNNCell(2)], **how),
                 K.RNN(K.StackedRNNCells([K.LSTMCell(4, **d), K.GRUCell(3, **d),
                                          K.SimpleRNNCell(2, **d)], **d), **how, **d), masked)


@pytest.mark.parametrize("cell", ["LSTMCell", "GRUCell", "SimpleRNNCell"])
def test_a_cell_in_a_loop_is_its_layer(cell: str) -> None:
    loop, layer = L.RNN(getattr(L, cell)(UNITS)), getattr(L, cell.removesuffix("Cell"))(UNITS)
    context, x = Context(states=States(f64)), leaf("input", "x", (2, 4, 3), f64)
    values = [loop(x, context), layer(x, context)]
    arrays = draws(*(w.shape for w in layer.weights))
    feeds = {context.read(w): a for one in (loop, layer)
             for w, a in zip(one.weights, arrays, strict=True)}
    a, b = evaluate(values, {**feeds, x: draws(x.shape)[0]}, oracle=True)
    np.testing.assert_array_equal(a, b)


class Leaky(L.Layer):
    """A cell of a user: its output is not a state."""

    state_size = 3

    def __init__(self, **common: Any):
        super().__init__(**common)
        self.dense = self.adopt(L.Dense(3))

    def call(self, x: Value, context: Context, states: Any) -> tuple[Value, list[Value]]:
        h = states[0] * 0.9 + self.dense(x, context)
        return OPS.tanh(h) * 2.0, [h]


class Counting(L.Layer):
    """A cell with two states of different sizes, which do not begin at zero."""

    state_size, output_size = (2, 1), 2

    def get_initial_state(self, batch_size: int) -> list[Value]:
        return [OPS.full((batch_size, 2), 1.0, "float32"), OPS.full((batch_size, 1), 5.0, "float32")]

    def call(self, x: Value, context: Context, states: Any) -> tuple[Value, tuple[Value, ...]]:
        return states[0] * states[1], (states[0] + x, states[1] + 1.0)


class Doubling(L.Layer):
    """A cell around another one: its states are that one's."""

    def __init__(self, **common: Any):
        super().__init__(**common)
        self.cell = self.adopt(L.LSTMCell(4))
        self.state_size = self.cell.state_size

    def get_initial_state(self, batch_size: int) -> list[Value]:
        return self.cell.get_initial_state(batch_size)

    def call(self, x: Value, context: Context, states: Any) -> Any:
        y, new = self.cell(x, states, context=context)
        return y * 2.0, new


for own in (Leaky, Counting, Doubling):  # other tests list the layers that the package offers
    del L.LAYERS[own.__name__]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sequences", [False, True])
def test_custom_cells(masked: bool, sequences: bool) -> None:
    layer = L.RNN(Leaky(), return_sequences=sequences, return_state=True)
    context, x = Context(states=States(f64)), leaf("input", "x", (*MASK.shape, FEATURES), f64)
    mask = leaf("input", "m", MASK.shape, "bool")
    y, last = layer(x, context, **({"mask": mask} if masked else {}))
    assert [w.path for w in layer.weights] == ["rnn/leaky/dense/kernel", "rnn/leaky/dense/bias"]
    array, kernel, bias = draws(x.shape, *(w.shape for w in layer.weights))
    values = [context.read(w) for w in layer.weights]
    got = evaluate([y, last], {x: array, mask: MASK, values[0]: kernel, values[1]: bias}, oracle=True)
    h, out, outs = np.zeros((BATCH, 3)), np.zeros((BATCH, 3)), []
    for t in range(STEPS):
        new = h * 0.9 + array[:, t] @ kernel + bias
        counts = MASK[:, t, None] | (not masked)
        h, out = np.where(counts, new, h), np.where(counts, np.tanh(new) * 2, out)
        outs.append(out)
    np.testing.assert_allclose(got[0], np.stack(outs, 1) if sequences else out, rtol=1e-12)
    np.testing.assert_allclose(got[1], h, rtol=1e-12)


def test_a_cell_around_a_cell() -> None:
    x, context = leaf("input", "x", (2, 3, 5), f64), Context(states=States(f64))
    around, alone = L.RNN(Doubling(), return_sequences=True), L.LSTM(4, return_sequences=True)
    values = [around(x, context), alone(x, context)]
    assert next(w.path for w in around.weights) == "rnn/doubling/lstm_cell/kernel"
    arrays = draws(*(w.shape for w in alone.weights))
    feeds = {context.read(w): a for layer in (around, alone)
             for w, a in zip(layer.weights, arrays, strict=True)}
    a, b = evaluate(values, {**feeds, x: draws(x.shape)[0]}, oracle=True)
    np.testing.assert_allclose(a, 2 * b, rtol=1e-12)


def test_a_cell_defines_its_initial_state() -> None:
    x = leaf("input", "x", (2, 3, 2), f64)
    y, *states = L.RNN(Counting(), return_state=True)(x, Context(states=States(f64)))
    array = draws(x.shape)[0]
    got = evaluate([y, *states], {x: array}, oracle=True)
    np.testing.assert_allclose(got[0], (1 + array[:, :2].sum(1)) * 7)
    np.testing.assert_allclose(got[1], 1 + array.sum(1))
    np.testing.assert_array_equal(got[2], [[8], [8]])


class Moving(L.Layer):
    state_size = 3

    def __init__(self, **common: Any):
        super().__init__(**common)
        self.norm = self.adopt(L.BatchNormalization())

    def call(self, x: Value, context: Context, states: Any) -> Any:
        y = self.norm(x, context)
        return y, [y]


class Forgetful(L.Layer):
    state_size = (3, 3)

    def call(self, x: Value, context: Context, states: Any) -> Any:
        return x, [x]


for own in (Moving, Forgetful):
    del L.LAYERS[own.__name__]


def test_wrong_cells_are_named() -> None:
    with pytest.raises(ConfigError, match=r"Late\.call takes context after other .*right after"):
        class Late(L.Layer):
            def call(self, x: Value, states: Any, context: Context) -> Any:
                return x, states

    x = leaf("input", "x", (2, 5, 3), f64)
    with pytest.raises(ConfigError, match=r"RNN takes a cell, such as LSTMCell\(8\), not <LSTM 'lstm'>"):
        L.RNN(L.LSTM(3))
    with pytest.raises(ConfigError, match="StackedRNNCells takes at least one cell"):
        L.RNN([])
    with pytest.raises(ShapeError, match=r"layer 'rnn': its cell 'forgetful' takes 2 states and "
                                         "returns 1"):
        L.RNN(Forgetful())(x, Context(states=States(f64)))
    with pytest.raises(Unsupported, match=r"layer 'rnn': a layer within its step.*BatchNormalization"):
        L.RNN(Moving())(x, Context(True, States(f64)))
    with pytest.raises(ShapeError, match=r"layer 'lstm_cell'.*besides a tensor it takes states"):
        Sequential([L.Input((3,)), L.LSTMCell(2)]).build()
    with pytest.raises(ShapeError, match=r"ends with layer 'lstm', which returns 3 tensors"):
        Sequential([L.Input((5, 3)), L.LSTM(2, return_state=True)]).build()
