"""Pooling, upsampling, frames: against Keras and PyTorch, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.layers.against_keras import is_keras
from ztorch import layers as L
from ztorch.errors import ConfigError, ShapeError
from ztorch.layers import Layer
from ztorch.model.sequential import Sequential

random = np.random.default_rng(6)
LINE, IMAGE = (2, 9, 3), (2, 7, 8, 3)

CASES: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "max 1d": ("MaxPooling1D", {}, LINE),
    "max 1d, same": ("MaxPooling1D", {"pool_size": 4, "strides": 3, "padding": "same"}, LINE),
    "max": ("MaxPooling2D", {}, IMAGE),
    "max, overlapping": ("MaxPooling2D", {"pool_size": 3, "strides": (1, 2)}, IMAGE),
    "max, same": ("MaxPooling2D", {"pool_size": (3, 2), "padding": "same"}, IMAGE),
    "average 1d": ("AveragePooling1D", {"pool_size": 2}, LINE),
    # Padded alike on both sides: elsewhere Keras on PyTorch repeats the border, as on no other backend.
    "average 1d, same": ("AveragePooling1D", {"pool_size": 3, "strides": 2, "padding": "same"},
                         LINE),
    "average": ("AveragePooling2D", {"pool_size": (2, 3)}, IMAGE),
    "average, same": ("AveragePooling2D", {"pool_size": (5, 3), "strides": 1, "padding": "same"},
                      IMAGE),
    "mean 1d": ("GlobalAveragePooling1D", {}, LINE),
    "mean": ("GlobalAveragePooling2D", {"keepdims": True}, IMAGE),
    "largest 1d": ("GlobalMaxPooling1D", {"keepdims": True}, LINE),
    "largest": ("GlobalMaxPooling2D", {}, IMAGE),
    "up 1d": ("UpSampling1D", {"size": 3}, LINE),
    "up": ("UpSampling2D", {}, IMAGE),
    "up, bilinear": ("UpSampling2D", {"size": (3, 2), "interpolation": "bilinear"}, IMAGE),
    "zeros 1d": ("ZeroPadding1D", {}, LINE),
    "zeros 1d, pair": ("ZeroPadding1D", {"padding": (0, 3)}, LINE),
    "zeros": ("ZeroPadding2D", {}, IMAGE),
    "zeros, axes": ("ZeroPadding2D", {"padding": (2, 1)}, IMAGE),
    "zeros, pairs": ("ZeroPadding2D", {"padding": ((1, 2), (0, 3))}, IMAGE),
    "cropping 1d": ("Cropping1D", {"cropping": (2, 1)}, LINE),
    "cropping": ("Cropping2D", {"cropping": ((1, 2), (0, 3))}, IMAGE),
    "cropping nothing": ("Cropping2D", {}, IMAGE),
}

NARROW = {"GlobalAveragePooling1D": 1e-5, "GlobalAveragePooling2D": 1e-5}  # Keras takes float32


@pytest.mark.parametrize("name", CASES)
def test_layers_are_keras(name: str) -> None:
    layer, how, shape = CASES[name]
    is_keras(layer, how, random.normal(size=shape), NARROW.get(layer, 1e-9)).compiled_agrees()


@pytest.mark.parametrize("name", ["max 1d, same", "max, overlapping", "average, same", "mean",
                                  "largest", "up, bilinear", "zeros 1d, pair", "zeros, pairs",
                                  "cropping"])
def test_channels_first(name: str) -> None:
    layer, how, (batch, *axes, channels) = CASES[name]
    x = random.normal(size=(batch, channels, *axes))
    is_keras(layer, {**how, "data_format": "channels_first"}, x,
             NARROW.get(layer, 1e-9)).compiled_agrees()


def test_other_names() -> None:
    assert L.MaxPool2D is L.MaxPooling2D and L.AvgPool1D is L.AveragePooling1D
    assert L.Conv2D(3, 3, padding="SAME").padding == L.MaxPooling3D(padding="Same").padding == "same"
    assert L.GlobalAvgPool2D is L.GlobalAveragePooling2D


@pytest.mark.parametrize("layer", [L.MaxPooling2D((2, 3), 1, "same"), L.AveragePooling2D(2),
                                   L.UpSampling2D(3), L.ZeroPadding2D((1, 2)), L.Cropping2D(1),
                                   L.GlobalMaxPooling2D(keepdims=True)], ids=lambda v: v.name)
def test_configs_survive_json(layer: Layer) -> None:
    model = Sequential([L.Input((6, 6, 2)), layer])
    again = Sequential.from_json(model.to_json())
    assert again.layers[0].get_config() == layer.get_config()


def built(shape: tuple[int, ...], layer: Layer) -> None:
    Sequential([L.Input(shape), layer]).build()


def test_mistakes_are_named() -> None:
    with pytest.raises(ShapeError, match=r"layer 'max_pooling2d': pooling windows are larger than "
                                         r"the inputs: \(4, 4\) and \(\d+, 3, 9, 2\)"):
        built((3, 9, 2), L.MaxPooling2D(4))
    with pytest.raises(ShapeError, match=r"layer 'average_pooling1d': .* 2 axes \(steps, channels"
                                         r"\) besides the batch, not \(3, 9, 2\)"):
        built((3, 9, 2), L.AveragePooling1D(2))
    with pytest.raises(ShapeError, match=r"layer 'cropping2d': cropping .* leaves nothing of inputs "
                                         r"\(3, 9, 2\); crop less"):
        built((3, 9, 2), L.Cropping2D((2, 1)))
    with pytest.raises(ConfigError, match=r"MaxPooling2D\(strides=...\).*at least 1, not 0"):
        L.MaxPooling2D(2, strides=0)
    with pytest.raises(ConfigError, match=r"ZeroPadding2D\(padding=...\) must be .* 2 axes"):
        L.ZeroPadding2D((1, 2, 3))
    with pytest.raises(ConfigError, match=r"UpSampling2D\(interpolation='cubic'\) must be "
                                          "'nearest' or 'bilinear' or 'bicubic'"):
        L.UpSampling2D(interpolation="cubic")
