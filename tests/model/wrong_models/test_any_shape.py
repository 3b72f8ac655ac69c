"""Every layer on inputs of any rank, width and dtype, fresh or built for others: it works, or says in
an error of ztorch's own why not."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.covering import share
from tests.cases.grouping import together
from ztorch import layers as L
from ztorch.errors import ZtorchError

SHAPES = ((), (6,), (32,), (7, 6), (7, 5), (8, 8, 6), (3, 3, 3), (4, 4, 4, 6))
# For the arguments that layers need, by their names.
ARGUMENTS: dict[str, Any] = {
    "units": 3, "filters": 4, "kernel_size": 3, "pool_size": 2, "rate": 0.5, "stddev": 0.5, "n": 2,
    "num_heads": 2, "intermediate_dim": 8, "input_dim": 10, "output_dim": 4, "axes": 1,
    "target_shape": (-1,), "dims": (2, 1), "scale": 2.0, "activation": "relu", "shape": (3,),
    "height": 4, "width": 4, "factor": 0.1, "height_factor": 0.1, "width_factor": 0.1,
    "head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2, "output_size": 2,
    "init_values": 0.1, "projection_dim": 6, "drop_path_rate": 0.1, "op": "relu",
    "equation": "...b,bc->...c", "output_shape": 4,
    "function": lambda x: x, "cells": [L.LSTMCell(2), L.GRUCell(3)]}
CELLS = ("SimpleRNNCell", "LSTMCell", "GRUCell", "StackedRNNCells")  # they take states as well
LAYERS = {cls.__name__: cls for cls in L.LAYERS.values() if cls.__module__.startswith("ztorch.layers")}


@zt.kernel
def running_sum(x):
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = x[i] + (out[i - 1] if i > 0 else 0)
    return out


def made(name: str) -> L.Layer:
    if name in ("Bidirectional", "TimeDistributed", "SpectralNormalization"):
        return LAYERS[name](L.LSTM(2) if name == "Bidirectional" else L.Dense(2))
    if name in ("Residual", "Parallel"):
        inner = [L.Dense(6), L.Dense(6)]
        return L.Residual(*inner) if name == "Residual" else L.Parallel(inner)
    if name == "Checkpoint":
        return L.Checkpoint(L.Dense(2))
    if name == "Kernel":
        return L.Kernel(running_sum)
    if name == "RNN":
        return L.RNN(L.GRUCell(3))
    if name == "Input":
        return L.Input(ARGUMENTS["shape"])
    if name == "RandomPosterization":
        return L.RandomPosterization(4)
    if name == "Encoded":
        return L.Encoded(L.CategoryEncoding(3))
    if name == "MelSpectrogram":
        return L.MelSpectrogram(4, 2, num_mel_bins=3)
    if name == "STFTSpectrogram":
        return L.STFTSpectrogram(frame_length=3)
    needed = [p.name for p in inspect.signature(LAYERS[name]).parameters.values()
              if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return LAYERS[name](**{n: ARGUMENTS[n] for n in needed})


def pairs_of_shapes() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Each shape beside a third of all, which are others for each; in a full run beside all."""
    return [(one, other) for turn, one in enumerate(SHAPES) for other in share(SHAPES, turn, of=3)]


@together(of=20)
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_it_works_or_says_why_not(name: str) -> None:
    worked = 0
    for (first, then), d in itertools.product(pairs_of_shapes(), (None, "int32")):
        layer = made(name)
        for shape in (first, then):
            try:
                worked += layer(L.Input(shape, dtype=d)).shape is not None
            except ZtorchError as error:
                assert f"layer '{layer.name}" in str(error)
    # Several inputs, and more axes than these shapes have.
    others = ("ConvLSTM3D", "Add", "Average", "Concatenate", "Dot", "Maximum", "Minimum", "Multiply", "Subtract")
    assert bool(worked) == (name not in (*others, *CELLS))


@together(of=40)
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_lists_of_tensors_too(name: str) -> None:
    for one, other in pairs_of_shapes():
        layer, pair = made(name), [L.Input(one), L.Input(other)]
        for given in ([pair], pair, [pair[:1]], [[]]):
            try:
                assert layer(*given) is not None
            except ZtorchError as error:
                assert f"layer '{layer.name}" in str(error)
