"""Models that generate, and a reference that computes the whole row for each number."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import ztorch as zt
from ztorch import layers as L
from ztorch.model.sampling import NOISE_STREAM
from ztorch.ops.random import NUMPY_WORDS, threefry
from ztorch.program.program import Program

LENGTH, WORDS, WIDTH = 10, 7, 12


def model(*middle: L.Layer, last: Any = "softmax", **common: Any) -> zt.Sequential:
    """A model that predicts the next number at each position; `middle` are its layers."""
    return zt.Sequential([L.Input((LENGTH,), dtype="int32"), L.Embedding(WORDS, WIDTH), *middle,
                          L.Dense(WORDS, activation=last, kernel_initializer="he_normal")],
                         name="writer", seed=3, **common)


def decoder(**how: Any) -> L.Layer:
    return L.TransformerDecoder(20, 3, dropout=0.3, **how)


def recurrent(kind: str) -> L.Layer:
    """With a strong state, so that numbers depend on all before them."""
    layer: L.Layer = getattr(L, kind)(WIDTH, return_sequences=True, recurrent_initializer="he_normal")
    return layer


def called_twice(*layers: L.Layer) -> zt.Model:
    """A model that calls each layer twice: each call has caches of its own."""
    ids = L.Input((LENGTH,), dtype="int32")
    y = L.Embedding(WORDS, WIDTH)(ids)
    for layer in layers:
        y = layer(layer(y))
    return zt.Model(ids, L.Dense(WORDS, kernel_initializer="he_normal")(y), name="writer", seed=3)


MODELS = {
    "post-norm": lambda: model(L.PositionEmbedding(initializer="normal"), decoder(), decoder()),
    "pre-norm": lambda: model(L.PositionEmbedding(20, initializer="normal"),
                              decoder(normalize_first=True, activation="gelu"),
                              L.LayerNormalization()),
    "sinusoidal": lambda: model(L.SinusoidalPosition(), decoder()),
    "rotary": lambda: model(L.TransformerDecoder(20, 2, rotary=True), decoder()),
    "no positions": lambda: model(L.ReLU()),
    "recurrent": lambda: model(recurrent("GRU"), L.MultiHeadAttention(2, use_causal_mask=True),
                               L.RNN(L.StackedRNNCells([L.LSTMCell(5), L.SimpleRNNCell(WIDTH)]),
                                     return_sequences=True)),
    "called twice": lambda: called_twice(recurrent("LSTM"), L.MultiHeadAttention(
        2, use_causal_mask=True)),
    "own blocks, logits": lambda: model(
        L.PositionEmbedding(), L.Residual(L.RMSNormalization(), L.MultiHeadAttention(
            2, key_dim=5, value_dim=3, use_causal_mask=True)), L.ReLU(), last=None),
}


@functools.cache
def compiled(name: str, device: str = "cpu", dtype: str = "float32", rows: int = 1) -> Program:
    return MODELS[name]().compile(device, batch_size=2, decode=rows, dtype=dtype)


def gumbel(seed: int, step: int) -> np.ndarray:
    """The noise of one number, as programs draw it."""
    key = (np.full(WORDS, seed, np.uint32), np.full(WORDS, NOISE_STREAM, np.uint32))
    counter = (np.arange(WORDS, dtype=np.uint32), np.full(WORDS, step, np.uint32))
    bits = threefry(NUMPY_WORDS, key, counter)[0] >> np.uint32(9)
    return -np.log(-np.log((bits + np.float64(0.5)) / 2**23))


def uncached(program: Program, prompt: list[int], length: int, temperature: float = 1.0,
             top_k: int = WORDS, top_p: float = 1.0, stop: int = -1, seed: int = 0) -> list[int]:
    """Generation by its definition: the whole row is computed for each number."""
    window, made = prompt[-LENGTH:], []
    while len(made) < length and stop not in made:
        row = np.array([window + [0] * (LENGTH - len(window))])
        y = program.predict(row)[0, len(window) - 1].astype(np.float64)
        logits = np.log(y) if abs(y.sum() - 1) < 1e-5 else y  # of a softmax
        scaled = logits / (temperature or 1)
        order = np.argsort(-scaled, kind="stable")
        odds = np.exp(scaled[order] - scaled.max())
        odds[top_k:] = 0
        before = np.concatenate([[0], np.cumsum(odds / odds.sum())[:-1]])
        kept = order[(odds > 0) & (before < top_p)]
        noise = gumbel(seed, len(made)) if temperature else np.zeros(WORDS)
        made.append(int(kept[(scaled + noise)[kept].argmax()]))
        if len(window) == LENGTH:
            window = window[-(LENGTH // 2):]
        window = [*window, made[-1]]
    return made
