"""Padded axes beside masks of layers: both hide steps by the same means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.numpy_executable import compile_numpy
from ztorch import layers as L
from ztorch.errors import Unsupported
from ztorch.graph.value import Value
from ztorch.layers.context import Context

SIZES = (3, 6)
IDS = np.array([[1, 4, 0, 2, 0], [3, 0, 0, 0, 0], [2, 5, 1, 7, 6]], np.int32)


class LastSum(L.Layer):
    """Mixes the elements along the last axis."""

    def call(self, x: Value, context: Context, mask: Value | None = None) -> Value:
        return zt.ops.sum(x, axis=2)


class CubicSum(L.Layer):
    """Mixes steps, and hides those that are masked."""

    def call(self, x: Value, context: Context, mask: Value | None = None) -> Value:
        if mask is not None:
            x = zt.ops.where(zt.ops.expand_dims(mask, 2), x, 0.0)
        return zt.ops.sum(x * x * x, axis=1)


class Softmaxed(L.Layer):
    """Weighs steps by a softmax over those that count."""

    def call(self, x: Value, context: Context, mask: Value | None = None) -> Value:
        if mask is not None:
            x = zt.ops.where(zt.ops.expand_dims(mask, 2), x, -1e9)
        return zt.ops.softmax(x, axis=1)

    def compute_mask(self, x: Value, mask: Value | None = None) -> Value | None:
        return mask


MASKED: dict[str, Any] = {
    "steps": lambda: [L.GRU(3, return_sequences=True), L.Dense(2)],
    "lstm": lambda: [L.LSTM(3)],
    "both ways": lambda: [L.Bidirectional(L.SimpleRNN(3, return_sequences=True)), L.LSTM(2)],
    "attention": lambda: [L.TransformerEncoder(4, 2), L.GlobalAveragePooling1D()],
    "norm": lambda: [L.BatchNormalization(momentum=0.5), L.GlobalAveragePooling1D()],
    "own": lambda: [Softmaxed(), CubicSum()],
    "cells": lambda: [L.RNN([L.LSTMCell(3), L.GRUCell(2)], return_sequences=True)],
}


def model(kind: str, size: Any) -> zt.Sequential:
    return zt.Sequential([L.Input((size,), dtype="int32"), L.Embedding(9, 4, mask_zero=True),
                          *MASKED[kind]()], seed=3)


@pytest.mark.parametrize("kind", MASKED)
def test_masks_that_travel_and_padding_hide_steps_together(kind: str) -> None:
    options: dict[str, Any] = {"batch_size": 3, "loss": "mse", "metrics": ["mae"],
                               "optimizer": zt.optimizers.SGD(0.1)}
    varying = model(kind, "time").compile("cpu:scalar", sizes=SIZES, **options)
    exact = compile_numpy(model(kind, IDS.shape[1]), **options)
    weights = exact.get_weights()
    varying.set_weights(weights)
    y = exact.predict(IDS)
    np.testing.assert_allclose(varying.predict(IDS), y, rtol=0, atol=1e-6)
    targets = np.random.default_rng(1).normal(size=y.shape).astype(np.float32)
    assert varying.evaluate(IDS, targets, verbose=0) == pytest.approx(
        exact.evaluate(IDS, targets, verbose=0), rel=1e-5)
    for _ in range(2):
        assert varying.train_on_batch(IDS, targets) == pytest.approx(
            exact.train_on_batch(IDS, targets), rel=1e-5)
    for ours, theirs in zip(varying.get_weights(), exact.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


def test_states_pass_from_one_sequence_to_another() -> None:
    """An encoder and a decoder, each of several lengths."""
    def pair(first: Any, second: Any) -> zt.Model:
        source, target = L.Input((first, 2), name="source"), L.Input((second, 3), name="target")
        _, *states = L.LSTM(4, return_state=True)(source)
        y = L.LSTM(4, return_sequences=True)(target, initial_state=states)
        return zt.Model([source, target], y, seed=1)

    random = np.random.default_rng(2)
    x = {"source": random.normal(size=(2, 5, 2)).astype(np.float32),
         "target": random.normal(size=(2, 2, 3)).astype(np.float32)}
    sizes = {"words": 6, "signs": (3, 4)}
    varying = pair("words", "signs").compile("cpu:scalar", batch_size=2, sizes=sizes)
    exact = compile_numpy(pair(5, 2), 2)
    varying.set_weights(exact.get_weights())
    np.testing.assert_allclose(varying.predict(x), exact.predict(x), rtol=0, atol=1e-6)


def test_outputs_from_the_last_step_to_the_first_are_refused() -> None:
    model = zt.Sequential([L.Input(("time", 4)), L.LSTM(3, return_sequences=True,
                                                        go_backwards=True)])
    with pytest.raises(Unsupported, match="layer 'lstm' would mix padding into its result"):
        model.compile("cpu:scalar", batch_size=1, sizes=4)


def test_a_mask_of_steps_hides_no_padding_of_another_axis() -> None:
    model = zt.Sequential([L.Input(("time", 4)), L.Permute((2, 1)), LastSum(name="last")])
    with pytest.raises(Unsupported, match="layer 'last' would mix padding into its result"):
        model.compile("cpu:scalar", batch_size=1, sizes=4)


def stateful(size: Any) -> zt.Sequential:
    return zt.Sequential([L.Input((size, 2)), L.SimpleRNN(3, stateful=True, name="memory")], seed=4)


def test_stateful_layers_ignore_padding() -> None:
    random = np.random.default_rng(5)
    x = [random.normal(size=(n, 2)).astype(np.float32) for n in (5, 2, 1, 4)]
    program = stateful("time").compile("cpu:scalar", batch_size=2, sizes=SIZES)
    first = program.predict(x)  # two batches, in this order
    again = [compile_numpy(stateful(len(a) + len(b)), 1) for a, b in ((x[0], x[2]), (x[1], x[3]))]
    for k, (alone, rows) in enumerate(zip(again, (x[::2], x[1::2]), strict=True)):
        alone.set_weights(program.get_weights())
        np.testing.assert_allclose(first[2 + k], alone.predict(np.concatenate(rows)[None])[0],
                                   rtol=0, atol=1e-6)


def test_stateful_layers_need_one_batch_size() -> None:
    with pytest.raises(Unsupported, match=r"layer 'memory' is stateful.*batch_size=8"):
        stateful(4).compile("cpu:scalar", batch_size=(1, 8))
