"""Masks, states that go in and out, cells and stateful layers, beside Keras: outputs and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from tests.layers.beside_keras import (
    BATCH,
    FEATURES,
    MASK,
    STEPS,
    UNITS,
    beside_keras,
    draws,
    random,
)
from ztorch import layers as L
from ztorch.dtypes import f64
from ztorch.errors import ShapeError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.layers import Context, States
from ztorch.model.model import Model
from ztorch.model.sequential import Sequential

KINDS = ["SimpleRNN", "LSTM", "GRU"]


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
def test_states_as_inputs_and_outputs(kind: str, masked: bool) -> None:
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


@pytest.mark.parametrize("sequences", [False, True])
def test_masked_pixels_keep_their_state(sequences: bool) -> None:
    how: dict[str, Any] = {"padding": "same", "return_sequences": sequences}
    theirs = references.keras().layers.ConvLSTM1D(UNITS, 2, dtype="float64", **how)
    beside_keras(L.ConvLSTM1D(UNITS, 2, **how), theirs, True, shape=(2, 4, 5, 3), pixels=True)


@pytest.mark.parametrize("mode", ["concat", "sum", "mul", "ave", None])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_bidirectional_with_states(kind: str, mode: str | None) -> None:
    keras = references.keras()
    states = 4 if kind == "LSTM" else 2
    ours, theirs = both(kind, return_sequences=mode != "ave", return_state=True)
    beside_keras(L.Bidirectional(ours, mode), keras.layers.Bidirectional(
        theirs, mode, dtype="float64"), states=states)


def test_bidirectional_with_a_mask_equals_each_direction() -> None:
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
        for row in range(BATCH):  # the row alone, without its masked steps
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
    assert listed.shape == (None, 6)


# -- wrong calls ---------------------------------------------------------------------------------


def test_wrong_states_and_masks_are_named() -> None:
    x, h = L.Input((5, 3)), L.Input((4,))
    with pytest.raises(ShapeError, match=r"layer 'lstm': takes 2 states of \(4,\) and \(4,\), "
                                         r"not 1"):
        L.LSTM(4)(x, initial_state=[h])
    with pytest.raises(ShapeError, match=r"layer 'gru': initial state 0 is float32\[4\], but the "
                                         r"layer has float32\[6\]"):
        L.GRU(6)(x, initial_state=h)
    with pytest.raises(ShapeError, match=r"layer 'gru': initial state 0 has 2 rows, but inputs have "
                                         "3"):
        L.GRU(4)(leaf("input", "x", (3, 5, 2), f64), Context(states=States(f64)),
                 initial_state=leaf("input", "h", (2, 4), f64))
    with pytest.raises(ShapeError, match=r"layer 'gru'.*mask do not fit: \(5, 3\) and \(4,\)"):
        L.GRU(4)(x, mask=L.Input((4,), dtype="bool"))
    with pytest.raises(ShapeError, match=r"layer 'gru'.*mask do not fit: \(5, 3\) and \(5, 3\); the mask "):
        L.GRU(4)(x, mask=L.Input((5, 3), dtype="bool"))
    with pytest.raises(ShapeError, match=r"layer 'conv_lstm1d'.*\(5, 4, 3\) and \(5, 4\); the mask must "
                                         r"be \(5,\), .* or \(5, 3\), one for each position"):
        L.ConvLSTM1D(2, 2)(L.Input((5, 4, 3)), mask=L.Input((5, 4), dtype="bool"))
    with pytest.raises(ShapeError, match=r"layer 'gru': takes 1 state of \(4,\), not 2"):
        L.GRU(4)(x, initial_state=[h, h])
    with pytest.raises(ShapeError, match=r"layer 'gru'.*\[x, \*states\] and with initial_state="):
        L.GRU(4)([x, h], initial_state=h)
    with pytest.raises(ShapeError, match=r"layer 'bidirectional': it got 1 state, "):
        L.Bidirectional(L.GRU(4))(x, initial_state=[h])
