"""Small models for sequences of several sizes, and random data."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import ztorch as zt
from tests.numpy_executable import compile_numpy
from ztorch import layers as L
from ztorch.program.program import Program

SIZES = (3, 6)


class SumOverTime(L.Layer):
    """Where there is no share of padding, the sum of all is that of real steps."""

    def call(self, x: Any, context: Any, mask: Any = None) -> Any:
        x = x if mask is None else zt.ops.where(zt.ops.expand_dims(mask, 2), x, 0.0)
        return zt.ops.sum(x * zt.ops.softplus(x), axis=1)


STEPS = {  # models that give something for each step
    "dense": lambda: [L.Dense(6, activation="tanh"), L.LayerNormalization(), L.Dropout(0.0)],
    "causal": lambda: [L.Conv1D(6, 3, dilation_rate=2, padding="causal"),
                       L.Activation("softmax")],
    "same": lambda: [L.Conv1D(6, 4, padding="same", activation="relu"),
                     L.Conv1D(5, 3, padding="same")],
    "attention": lambda: [L.TransformerEncoder(8, 2, rotary=True)],
    "decoder": lambda: [L.PositionEmbedding(sequence_length=6), L.TransformerDecoder(8, 2)],
    "sinusoidal": lambda: [L.SinusoidalPosition(), L.MultiHeadAttention(2, use_causal_mask=True)],
    "recurrent": lambda: [L.LSTM(3, return_sequences=True)],
    "both ways": lambda: [L.Bidirectional(L.SimpleRNN(3, return_sequences=True))],
    "distributed": lambda: [L.Lambda(lambda x: zt.ops.expand_dims(x, 3)),
                            L.TimeDistributed(L.LSTM(3)),
                            L.TimeDistributed(L.BatchNormalization(momentum=0.5))],
    "batch norm": lambda: [L.BatchNormalization(momentum=0.5), L.Dense(3)],
}
ROWS = {  # models that give something for each row
    "mean": lambda: [*STEPS["attention"](), L.GlobalAveragePooling1D()],
    "max": lambda: [*STEPS["same"](), L.GlobalMaxPooling1D(keepdims=True)],
    "lstm": lambda: [L.LSTM(5)],
    "backwards": lambda: [L.GRU(5, go_backwards=True)],
    "bidirectional": lambda: [L.Bidirectional(L.LSTM(3), merge_mode="sum")],
    "windows": lambda: [
        L.Conv1D(5, 3, strides=2, padding="same"), L.BatchNormalization(),
        L.MaxPooling1D(3, strides=2, padding="same"), L.GlobalAveragePooling1D()],
    "wide windows": lambda: [
        L.Conv1D(5, 2, padding=(2, 1), dilation_rate=2), L.MaxPooling1D(2), L.ReLU(),
        L.AveragePooling1D(2, strides=1, padding="same"), L.GlobalMaxPooling1D()],
    "softmax": lambda: [L.Softmax(axis=1), SumOverTime()],
    "strided": lambda: [
        L.SeparableConv1D(5, 4, strides=3, padding="same"),
        L.DepthwiseConv1D(3, strides=2, padding="causal"), L.LSTM(4)],
}
MODELS = {**STEPS, **ROWS}


def model(kind: str, size: Any = "time") -> zt.Sequential:
    return zt.Sequential([L.Input((size, 4)), *MODELS[kind](), L.Dense(2)], name="words", seed=5)


def compiled(kind: str, size: Any = "time", device: str = "cpu:scalar", **options: Any) -> Program:
    return model(kind, size).compile(device, **{
        "batch_size": 3, "loss": "mse", "optimizer": zt.optimizers.SGD(0.1), "metrics": ["mae"],
        **({"sizes": SIZES} if size == "time" else {}), **options})


def exact(kind: str, size: int) -> Program:
    """The program for one size alone, by the meaning of its ops."""
    return compile_numpy(model(kind, size), 3, zt.optimizers.SGD(0.1), "mse", ["mae"])


@functools.cache
def kept(kind: str) -> tuple[Program, list[np.ndarray]]:
    """A program that tests share, and its first weights."""
    program = compiled(kind)
    return program, program.get_weights()


def as_new(kind: str) -> Program:
    """It has no states beside its weights: SGD has none."""
    program, first = kept(kind)
    program.set_weights(first)
    return program


def data(kind: str, rows: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(100 * rows + size)
    y = (rows, size, 2) if kind in STEPS else (rows, 1, 2) if kind == "max" else (rows, 2)
    return (random.normal(size=(rows, size, 4)).astype(np.float32),
            random.normal(size=y).astype(np.float32))
