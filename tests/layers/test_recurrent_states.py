"""Masks, states that go in and out, cells and stateful layers, beside Keras: outputs and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from ztorch import layers as L
from ztorch.dtypes import f64
from ztorch.errors import ConfigError, ShapeError, Unsupported
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Value
from ztorch.layers import Context, States
from ztorch.layers.symbol import leaves
from ztorch.model.model import Model
from ztorch.model.sequential import Sequential

random = np.random.default_rng(21)
BATCH, STEPS, FEATURES, UNITS = 3, 7, 5, 4
KINDS = ["SimpleRNN", "LSTM", "GRU"]
# As long as given, with a hole, and none but the first: Keras begins masked ones with zeros.
MASK = np.array([[True] * STEPS, [True, False, True, True, False, False, False],
                 [False, False, True, False, True, False, True]])


def draws(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [random.normal(size=shape) * 0.5 for shape in shapes]


def beside_keras(ours: Any, theirs: Any, masked: bool = False, states: int = 0,
                 shape: tuple[int, ...] = (BATCH, STEPS, FEATURES)) -> list[np.ndarray]:
    """All outputs, and the gradients of a weighted sum of them by input, states and weights."""
    keras, torch = references.keras(), references.torch()
    context = Context(states=States(f64))
    x, mask = leaf("input", "x", shape, f64), leaf("input", "m", shape[:2], "bool")
    given = [leaf("input", f"s{k}", (shape[0], UNITS), f64) for k in range(states)]
    y = leaves(ours(x, context, **({"mask": mask} if masked else {}),
                    **({"initial_state": given} if states else {})))
    weights = [context.read(w) for w in ours.weights]
    into = [leaf("input", f"into{k}", v.shape, f64) for k, v in enumerate(y)]
    total = sum((OPS.sum(v * w) for v, w in zip(y, into, strict=True)), start=OPS.full((), 0.0, f64))
    wrt = [x, *given, *weights]
    arrays = draws(*(v.shape for v in (*wrt, *into)))
    feeds = {**dict(zip((*wrt, *into), arrays, strict=True)), mask: MASK[:shape[0], :shape[1]]}
    got = evaluate([*y, *gradients(total, wrt)], feeds, oracle=True)

    tensors = [torch.tensor(a, requires_grad=True) for a in arrays[:1 + states]]
    theirs.build(shape)
    theirs.set_weights(arrays[1 + states:len(wrt)])
    how = {"mask": torch.tensor(feeds[mask])} if masked else {}
    if states:
        how["initial_state"] = tensors[1:]
    found = keras.tree.flatten(theirs(tensors[0], **how))
    sum((v * torch.tensor(w)).sum() for v, w in zip(found, arrays[len(wrt):], strict=True)).backward()
    want = [*(v.detach().numpy() for v in found), *(t.grad.numpy() for t in tensors),
            *(w.value.grad.numpy() for w in theirs.weights if w.trainable)]
    assert [a.shape for a in got] == [b.shape for b in want]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return got


def both(kind: str, **how: Any) -> tuple[Any, Any]:
    keras = references.keras()
    return getattr(L, kind)(UNITS, **how), getattr(keras.layers, kind)(UNITS, dtype="float64", **how)


# -- masks and states ----------------------------------------------------------------------------


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_masked_steps_carry_state_and_output(kind: str, sequences: bool, backwards: bool) -> None:
    if backwards:  # Keras on PyTorch flips the axes of the mask; the sequence flipped is the same
        keras = references.keras()
        ours = getattr(L, kind)(UNITS, return_sequences=sequences, go_backwards=True)
        x, context = leaf("input", "x", (BATCH, STEPS, FEATURES), f64), Context(states=States(f64))
        mask = leaf("input", "m", (BATCH, STEPS), "bool")
        y = ours(x, context, mask=mask)
        arrays = draws(x.shape, *(w.shape for w in ours.weights))
        feeds = dict(zip([x, *map(context.read, ours.weights)], arrays, strict=True))
        theirs = getattr(keras.layers, kind)(UNITS, dtype="float64", return_sequences=sequences)
        theirs.build(x.shape)
        theirs.set_weights(arrays[1:])
        tensor = references.torch().tensor
        want = theirs(tensor(arrays[0][:, ::-1].copy()), mask=tensor(MASK[:, ::-1].copy()))
        np.testing.assert_allclose(evaluate([y], {**feeds, mask: MASK}, oracle=True)[0],
                                   want.detach().numpy(), rtol=1e-5, atol=1e-6)
        return
    beside_keras(*both(kind, return_sequences=sequences), masked=True)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_states_go_in_and_out(kind: str, masked: bool) -> None:
    count = 2 if kind == "LSTM" else 1
    how = {"return_sequences": True, "return_state": True}
    got = beside_keras(*both(kind, **how), masked=masked, states=count)
    assert got[0].shape == (BATCH, STEPS, UNITS) and got[count].shape == (BATCH, UNITS)
    if not masked:
        np.testing.assert_array_equal(got[0][:, -1], got[1])
    beside_keras(*both(kind, return_state=True), masked=masked, states=count)


@pytest.mark.parametrize("sequences", [False, True])
def test_outputs_of_masked_steps_may_be_zero(sequences: bool) -> None:
    got = beside_keras(*both("LSTM", zero_output_for_mask=True, return_sequences=sequences),
                       masked=True)
    assert not got[0][1, -1].any() if sequences else not got[0][1].any()


@pytest.mark.parametrize("mode", ["concat", "sum", "mul", "ave", None])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_both_ways_with_states(kind: str, mode: str | None) -> None:
    keras = references.keras()
    states = 4 if kind == "LSTM" else 2
    ours, theirs = both(kind, return_sequences=mode != "ave", return_state=True)
    beside_keras(L.Bidirectional(ours, mode), keras.layers.Bidirectional(
        theirs, mode, dtype="float64"), states=states)


def test_both_ways_under_a_mask_are_each_way_alone() -> None:
    """Keras on PyTorch flips the axes of a mask that is read from the end."""
    layer = L.Bidirectional(L.LSTM(UNITS, return_sequences=True), "concat")
    context = Context(states=States(f64))
    x, mask = leaf("input", "x", (*MASK.shape, FEATURES), f64), leaf("input", "m", MASK.shape, "bool")
    y = layer(x, context, mask=mask)
    assert context.mask_of(y) is mask
    arrays = draws(x.shape, *(w.shape for w in layer.weights))
    got = evaluate([y], {**dict(zip([x, *map(context.read, layer.weights)], arrays, strict=True)),
                         mask: MASK}, oracle=True)[0]
    for way, part, order in ((arrays[1:4], got[..., :UNITS], 1), (arrays[4:], got[..., UNITS:], -1)):
        for row in range(BATCH):  # the row alone, without what is masked
            kept = np.flatnonzero(MASK[row])
            one = L.LSTM(UNITS, return_sequences=True)
            rows = leaf("input", "x", (1, len(kept), FEATURES), f64)
            inner = Context(states=States(f64))
            out = one(rows, inner)
            feeds = dict(zip(map(inner.read, one.weights), way, strict=True))
            feeds[rows] = arrays[0][row:row + 1, kept][:, ::order]
            want = np.zeros((STEPS, UNITS))
            want[kept] = evaluate([out], feeds, oracle=True)[0][0, ::order]
            np.testing.assert_allclose(part[row], want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 31])
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_many_lengths(kind: str, steps: int) -> None:
    beside_keras(*both(kind, return_sequences=True), shape=(2, steps, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_does_not_grow_with_the_length(kind: str) -> None:
    sizes = []
    for steps in (3, 1000):
        model = Sequential([L.Input((steps, 2)), getattr(L, kind)(3)])
        sizes.append(sum(len(row.nodes) for row in model.traced_layers()))
    assert sizes[0] == sizes[1]


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
    """A cell of a user: its output is no state."""

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
def test_a_cell_of_ones_own(masked: bool, sequences: bool) -> None:
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


def test_a_cell_says_where_it_begins() -> None:
    x = leaf("input", "x", (2, 3, 2), f64)
    y, *states = L.RNN(Counting(), return_state=True)(x, Context(states=States(f64)))
    array = draws(x.shape)[0]
    got = evaluate([y, *states], {x: array}, oracle=True)
    np.testing.assert_allclose(got[0], (1 + array[:, :2].sum(1)) * 7)
    np.testing.assert_allclose(got[1], 1 + array.sum(1))
    np.testing.assert_array_equal(got[2], [[8], [8]])


# -- in models -----------------------------------------------------------------------------------


def test_a_translator_of_two_models() -> None:
    """States of one layer begin another, through a declared Model and its config."""
    x, z = L.Input((5, 3), name="x"), L.Input((4, 3), name="z")
    y, h, c = L.LSTM(6, return_state=True, name="encoder")(x)
    out = L.LSTM(6, return_sequences=True, name="decoder")(z, initial_state=[h, c])
    model = Model([x, z], {"out": out, "code": y})
    again = Model.from_config(model.get_config())
    again.set_weights(model.get_weights())
    keras = references.keras()
    K = keras.layers
    a, b = keras.Input((5, 3)), keras.Input((4, 3))
    y, h, c = K.LSTM(6, return_state=True)(a)
    theirs = keras.Model([a, b], [K.LSTM(6, return_sequences=True)(b, initial_state=[h, c]), y])
    theirs.set_weights(model.get_weights())
    rows = {"x": random.normal(size=(2, 5, 3)).astype(np.float32),
            "z": random.normal(size=(2, 4, 3)).astype(np.float32)}
    want = theirs.predict([rows["x"], rows["z"]], verbose=0)
    for m in (model, again):
        got = m.compile("cpu", batch_size=2).predict(rows)
        np.testing.assert_allclose(got["out"], want[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(got["code"], want[1], rtol=1e-4, atol=1e-6)
    listed = L.LSTM(6)([z, *L.LSTM(6, return_state=True)(x)[1:]])
    assert listed.shape == (6,)


# -- wrong calls ---------------------------------------------------------------------------------


def test_wrong_states_and_masks_are_named() -> None:
    x, h = L.Input((5, 3)), L.Input((4,))
    with pytest.raises(ShapeError, match=r"layer 'lstm': it has 2 states of \(4,\) and \(4,\), and is "
                                         r"given 1"):
        L.LSTM(4)(x, initial_state=[h])
    with pytest.raises(ShapeError, match=r"layer 'gru': initial state 0 is float32\[4\] where the "
                                         r"layer has float32\[6\]"):
        L.GRU(6)(x, initial_state=h)
    with pytest.raises(ShapeError, match=r"layer 'gru': initial state 0 has 2 rows where inputs have "
                                         "3"):
        L.GRU(4)(leaf("input", "x", (3, 5, 2), f64), Context(states=States(f64)),
                 initial_state=leaf("input", "h", (2, 4), f64))
    with pytest.raises(ShapeError, match=r"layer 'gru'.*mask do not fit: \(5, 3\) and \(4,\)"):
        L.GRU(4)(x, mask=L.Input((4,), dtype="bool"))
    with pytest.raises(ShapeError, match=r"layer 'gru'.*\[x, \*states\] and initial_state="):
        L.GRU(4)([x, h], initial_state=h)
    with pytest.raises(ShapeError, match=r"layer 'bidirectional': it is given 1 states"):
        L.Bidirectional(L.GRU(4))(x, initial_state=[h])


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
    with pytest.raises(ShapeError, match=r"layer 'lstm_cell'.*besides one tensor it takes states"):
        Sequential([L.Input((3,)), L.LSTMCell(2)]).build()
    with pytest.raises(ShapeError, match=r"ends with layer 'lstm', which returns 3 tensors"):
        Sequential([L.Input((5, 3)), L.LSTM(2, return_state=True)]).build()
