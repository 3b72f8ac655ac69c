"""Compiled recurrent models beside Keras and PyTorch: twenty steps of training, and lengths to 1,000."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.covering import pairs
from tests.parity import HERE
from ztorch import layers as L
from ztorch.model.sequential import Sequential

random = np.random.default_rng(8)
STEPS, BATCH, RATE = 20, 5, 0.05
Layers = list[Any]


def masked(L: Any) -> Layers:
    return [L.Embedding(11, 6, mask_zero=True), L.LSTM(7, return_sequences=True), L.GRU(5)]


def both_ways(L: Any) -> Layers:
    return [L.Embedding(11, 6), L.Bidirectional(L.LSTM(5, return_sequences=True)),
            L.Bidirectional(L.GRU(3), merge_mode="sum")]


def cells(L: Any) -> Layers:
    return [L.Embedding(11, 6), L.RNN([L.LSTMCell(5), L.GRUCell(7)], return_sequences=True),
            L.RNN(L.SimpleRNNCell(3), go_backwards=True)]


def scored_by_step(L: Any) -> Layers:
    return [L.Embedding(11, 6, mask_zero=True), L.SimpleRNN(7, return_sequences=True), L.Dropout(0.0),
            L.GRU(5, return_sequences=True, reset_after=False)]


# Each of them on one level; test_recurrent.py has compiled code of all of them beside the oracle.
@pytest.mark.parametrize(("target", "layers"), pairs([HERE[-1], "scalar"], [masked, both_ways, cells, scored_by_step]))
def test_twenty_steps_are_those_of_keras(layers: Callable[[Any], Layers], target: str) -> None:
    keras = references.keras()
    keras.utils.clear_session()
    width = (BATCH, 9)
    model = Sequential([L.Input(width[1:], dtype="int32"), *layers(L), L.Dense(2)])
    theirs = keras.Sequential([keras.Input(batch_shape=width, dtype="int32"), *layers(keras.layers),
                               keras.layers.Dense(2)])
    theirs.set_weights(model.get_weights())
    theirs.compile(optimizer=keras.optimizers.SGD(RATE), loss="mse")
    program = model.compile(f"cpu:{target}", batch_size=BATCH, threads=1, loss="mse",
                            optimizer=zt.optimizers.SGD(RATE))
    for step in range(STEPS):
        x = random.integers(0, 11, width).astype(np.int32)
        for row, length in enumerate((9, 1, 4, 6, 9)):
            x[row, length:] = 0
        y = random.normal(size=(BATCH, *model.output_shape[1:])).astype(np.float32)
        want = float(theirs.train_on_batch(x, y))
        assert program.train_on_batch(x, y) == pytest.approx(want, rel=2e-4), step
    for w, a in zip(theirs.weights, program.get_weights(), strict=True):
        np.testing.assert_allclose(a, keras.ops.convert_to_numpy(w), rtol=2e-3, atol=2e-5,
                                   err_msg=w.path)


def in_torch(kind: str, a: np.ndarray) -> Any:
    """Columns of gates as PyTorch's rows, in its order."""
    order = (0, 1, 2, 3) if kind == "LSTM" else (1, 0, 2)
    parts = np.split(a, len(order), -1)
    return references.torch().tensor(np.concatenate([parts[k].T for k in order]))


def test_stateful_training_is_pytorchs_with_the_last_state() -> None:
    """Twenty batches, each of which goes on where the last one ended. Keras on PyTorch cannot."""
    torch = references.torch()
    model = Sequential([L.Input((6, 3)), L.GRU(5, stateful=True), L.Dense(2)])
    program = model.compile("cpu", batch_size=BATCH, threads=1, loss="mse", dtype="float64",
                            optimizer=zt.optimizers.SGD(RATE))
    gru, dense = torch.nn.GRU(3, 5, batch_first=True).double(), torch.nn.Linear(5, 2).double()
    kernel, recurrent, bias, out, shift = model.get_weights()
    gru.load_state_dict({"weight_ih_l0": in_torch("GRU", kernel), "weight_hh_l0": in_torch(
        "GRU", recurrent), "bias_ih_l0": in_torch("GRU", bias[0]),
        "bias_hh_l0": in_torch("GRU", bias[1])})
    dense.load_state_dict({"weight": torch.tensor(out.T), "bias": torch.tensor(shift)})
    sgd = torch.optim.SGD([*gru.parameters(), *dense.parameters()], lr=RATE)
    state = None
    for _ in range(STEPS):
        x, y = random.normal(size=(BATCH, 6, 3)), random.normal(size=(BATCH, 2))
        every, state = gru(torch.tensor(x), state)
        loss = torch.nn.functional.mse_loss(dense(every[:, -1]), torch.tensor(y))
        assert program.train_on_batch(x, y) == pytest.approx(loss.item(), rel=1e-9)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        state = state.detach()
    got = dict(zip(program.weight_names, program.get_weights(), strict=True))
    np.testing.assert_allclose(in_torch("GRU", got["gru/recurrent_kernel"]),
                               gru.weight_hh_l0.detach(), rtol=1e-9)


@pytest.mark.parametrize(("steps", "batch", "width"), [(1, 1, 1), (2, 3, 5), (33, 2, 17), (1000, 3, 7)])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_any_length_is_pytorchs(kind: str, steps: int, batch: int, width: int) -> None:
    """Outputs and all gradients of the loss, by one step of SGD with rate 1."""
    torch = references.torch()
    model = Sequential([L.Input((steps, 3)), getattr(L, kind)(width, return_sequences=True)])
    program = model.compile("cpu", batch_size=batch, threads=1, loss="mse", dtype="float64",
                            optimizer=zt.optimizers.SGD(1.0))
    theirs = getattr(torch.nn, kind)(3, width, batch_first=True).double()
    kernel, recurrent, bias = model.get_weights()
    gates = functools.partial(in_torch, kind)
    both = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
    theirs.load_state_dict({"weight_ih_l0": gates(kernel), "weight_hh_l0": gates(recurrent),
                            "bias_ih_l0": gates(both[0]), "bias_hh_l0": gates(both[1])})
    x = random.normal(size=(batch, steps, 3))
    y = random.normal(size=(batch, steps, width))
    actual = theirs(torch.tensor(x))[0]
    np.testing.assert_allclose(program.predict(x), actual.detach().numpy(), rtol=1e-9, atol=1e-11)
    torch.nn.functional.mse_loss(actual, torch.tensor(y)).backward()
    program.train_on_batch(x, y)
    moved = [a - b for a, b in zip((kernel, recurrent, bias), program.get_weights(), strict=True)]
    for name, a in (("weight_ih_l0", moved[0]), ("weight_hh_l0", moved[1])):
        np.testing.assert_allclose(gates(a), getattr(theirs, name).grad, rtol=1e-6, atol=1e-7)
    first = moved[2][0] if bias.ndim == 2 else moved[2]
    np.testing.assert_allclose(gates(first), theirs.bias_ih_l0.grad, rtol=1e-6, atol=1e-7)


def test_code_does_not_grow_with_the_length() -> None:
    sizes = []
    for steps in (10, 300, 1000):
        model = Sequential([L.Input((steps, 3)), L.Bidirectional(L.LSTM(4)), L.Dense(1)])
        program = model.compile("cpu", batch_size=2, threads=1, loss="mse", optimizer="sgd")
        sizes.append([len(program.executable.functions["train"].kernels),
                      len(program.executable.code)])
    assert sizes[2][0] == sizes[1][0] <= sizes[0][0] + 14  # two layers add three sums in groups
    assert sizes[2][1] <= sizes[0][1] * 1.5
