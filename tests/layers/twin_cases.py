"""One table of all layers: how each is tried beside PyTorch, or why it has no twin there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import ztorch as zt
from tests.layers.torch_images import ACTIVATIONS
from ztorch import layers as L
from ztorch import ops
from ztorch.layers import LAYERS, Layer

BATCH = 3


@dataclass(frozen=True, eq=False)
class Case:
    """A layer of that name with these arguments, on examples of this shape; ids below `ids`."""

    layer: str
    shape: tuple[int, ...]
    how: dict[str, Any] = field(default_factory=dict)
    training: bool = False
    ids: int = 0
    made: Callable[[], Layer] | None = None  # where arguments are layers, which are used once

    def make(self) -> Layer:
        return self.made() if self.made else getattr(L, self.layer)(**self.how)

    def rows(self, batch: int = BATCH, seed: int = 4) -> np.ndarray:
        random = np.random.default_rng(seed)
        if self.ids:
            return random.integers(0, self.ids, (batch, *self.shape)).astype(np.int32)
        return random.normal(size=(batch, *self.shape)).astype(np.float32).astype(np.float64)

    def __str__(self) -> str:
        options = ",".join(f"{k}={v}" for k, v in self.how.items()) if not self.made else "layers"
        return f"{self.layer}({options}) of {'x'.join(map(str, self.shape))}".replace(" ", "")


Entry = tuple[tuple[int, ...], dict[str, Any]]
LINE, IMAGE, ROWS = (9, 4), (7, 6, 4), (5, 6)  # no size is a whole number of vectors
VOLUME = (3, 5, 4, 2)


def last_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[-1], *shape[:-1])


def at(shape: tuple[int, ...], *hows: dict[str, Any]) -> list[Entry]:
    return [(shape, how) for how in hows]


def both(shape: tuple[int, ...], *hows: dict[str, Any]) -> list[Entry]:
    """With channels last, and the last one with channels first too."""
    return [*at(shape, *hows), (last_first(shape), {**hows[-1], "data_format": "channels_first"})]


def windows(shape: tuple[int, ...], *hows: dict[str, Any]) -> list[Entry]:
    """Each with channels last and with channels first."""
    return [entry for how in hows for entry in both(shape, how)]


def mean_of(x: Any) -> Any:
    return ops.mean(x, axis=1)


mean_of.torch = lambda x: x.mean(1)  # type: ignore[attr-defined]


@zt.kernel("any[b, n, m], any[n, m], any[m] -> any[b, n, m]")
def scale_shift(x, scale, shift):
    out = np.empty_like(x)
    for b, i, j in zt.grid(*x.shape):
        out[b, i, j] = x[b, i, j] * scale[i, j] + shift[j]
    return out


_CONV = [{"filters": 5, "kernel_size": 3}, {"filters": 6, "kernel_size": 2, "strides": 2,
         "padding": "same", "groups": 2, "activation": "tanh"},
         {"filters": 3, "kernel_size": 3, "dilation_rate": 2, "padding": "same",
          "use_bias": False}]
_FRAMED = {"kernel_size": 3, "strides": 2, "padding": 2}  # as PyTorch counts it
_CAUSAL = {"kernel_size": 3, "padding": "causal", "dilation_rate": 2}
_DEPTH = [{"kernel_size": 3, "depth_multiplier": 2}, {"kernel_size": 4, "strides": 2, "padding":
          "same", "activation": "sigmoid"}, {"kernel_size": 2, "dilation_rate": 3, "use_bias": False}]
_WIDER = [{"filters": 5, "kernel_size": 3}, {"filters": 3, "kernel_size": 3, "strides": 2,
          "padding": "same"}, {"filters": 2, "kernel_size": 2, "strides": 3, "use_bias": False},
          {"filters": 3, "kernel_size": 3, "strides": 2, "padding": "same", "output_padding": 1,
           "activation": "tanh"}, {"filters": 2, "kernel_size": 2, "dilation_rate": 2}]
_POOL = [{"pool_size": 2}, {"pool_size": 3, "strides": 2, "padding": "same"},
         {"pool_size": 3, "strides": 1}]
_GATED: list[dict[str, Any]] = [
    {"units": 4}, {"units": 3, "return_sequences": True, "go_backwards": True},
    {"units": 3, "use_bias": False, "return_sequences": True}]

# Arguments and shapes of examples, for layers whose arguments are numbers and words.
PLAIN: dict[str, list[Entry]] = {
    "Dense": [*at((5,), {"units": 3}, {"units": 3, "use_bias": False, "activation": "softmax"}),
              *at((2, 3, 5), {"units": 7, "activation": "gelu"})],
    "Activation": at(ROWS, *({"activation": name} for name in ACTIVATIONS)),
    "ReLU": at(ROWS, {}, {"max_value": 1.0, "negative_slope": 0.2, "threshold": 0.3}),
    "LeakyReLU": at(ROWS, {}, {"negative_slope": 0.1}),
    "PReLU": at((3, 5, 2), {"alpha_initializer": "ones"}, {"shared_axes": (1, 2)}),
    "ELU": at(ROWS, {}, {"alpha": 0.7}),
    "Softmax": [*at(ROWS, {}, {"axis": 1}), *at((3, 4, 5), {"axis": (1, 3)})],
    "Flatten": at((3, 4, 5), {}, {"data_format": "channels_first"}),
    "Reshape": at((3, 4, 5), {"target_shape": (5, 12)}, {"target_shape": (2, -1)}),
    "Permute": at((3, 4, 5), {"dims": (3, 1, 2)}),
    "RepeatVector": at((5,), {"n": 3}),
    "Rescaling": at(ROWS, {"scale": 0.25}, {"scale": -2.0, "offset": 0.5}),
    "Identity": at(ROWS, {}),
    # -- windows -----------------------------------------------------------------------------------
    "Conv1D": [*windows(LINE, *_CONV), *both(LINE, {"filters": 3, **_CAUSAL}),
               *at(LINE, {"filters": 3, **_FRAMED})],
    "Conv2D": windows(IMAGE, *_CONV, {"filters": 2, "kernel_size": (4, 3), "strides": (1, 2)},
                      {"filters": 3, "kernel_size": (3, 2), "padding": ((1, 0), (2, 1))}),
    "DepthwiseConv1D": [*windows(LINE, *_DEPTH), *both(LINE, _CAUSAL)],
    "DepthwiseConv2D": [*windows(IMAGE, *_DEPTH), *at(IMAGE, _FRAMED)],
    "SeparableConv1D": [*windows(LINE, *({"filters": 5, **how} for how in _DEPTH)),
                        *both(LINE, {"filters": 3, **_CAUSAL})],
    "SeparableConv2D": windows(IMAGE, *({"filters": 5, **how} for how in _DEPTH)),
    "Conv1DTranspose": windows((5, 4), *_WIDER),
    "Conv2DTranspose": windows((4, 3, 4), *_WIDER, {
        "filters": 3, "kernel_size": (4, 3), "strides": (2, 3), "padding": "same"}),
    **{f"{kind}Pooling{n}D": windows(shape, *_POOL) for kind in ("Max", "Average")
       for n, shape in ((1, LINE), (2, IMAGE))},
    **{f"Global{kind}Pooling{n}D": windows(shape, {}, {"keepdims": True})
       for kind in ("Max", "Average") for n, shape in ((1, LINE), (2, IMAGE))},
    "Conv3D": both(VOLUME, {"filters": 3, "kernel_size": 2, "strides": (1, 2, 1), "padding": "same"}),
    "Conv3DTranspose": at((2, 3, 2, 2), {"filters": 3, "kernel_size": 2, "strides": 2}),
    **{f"{kind}Pooling3D": at(VOLUME, {"pool_size": 2, "strides": (1, 2, 2)})
       for kind in ("Max", "Average")},
    **{f"Global{kind}Pooling3D": at(VOLUME, {"keepdims": True}) for kind in ("Max", "Average")},
    "ZeroPadding3D": at(VOLUME, {"padding": ((1, 0), (0, 2), (1, 1))}),
    "Cropping3D": at(VOLUME, {"cropping": ((1, 0), (0, 2), (1, 1))}),
    "UpSampling3D": both(VOLUME, {"size": (1, 2, 3)}),
    **{f"Adaptive{kind}Pooling{n}D": both(shape, *({"output_size": size} for size in sizes))
       for kind in ("Max", "Average") for n, shape, *sizes in (
           (1, LINE, 3), (2, IMAGE, (3, 4)), (3, VOLUME, (1, 2, 2)))},
    "UpSampling1D": at(LINE, {}, {"size": 3}),
    "UpSampling2D": windows(IMAGE, {"size": (2, 3)}, {"interpolation": "bilinear", "size": (3, 2)}),
    "ZeroPadding1D": both(LINE, {}, {"padding": (0, 2)}),
    "ZeroPadding2D": both(IMAGE, {}, {"padding": ((1, 2), (0, 3))}),
    "Cropping1D": at(LINE, {}, {"cropping": (0, 2)}),
    "Cropping2D": both(IMAGE, {}, {"cropping": ((1, 2), (0, 3))}),
    "Resizing": windows(IMAGE, {"height": 9, "width": 5}, {"height": 3, "width": 11,
                        "interpolation": "nearest"}, {"height": 3, "width": 4, "antialias": True}),
    "CenterCrop": both(IMAGE, {"height": 4, "width": 3}),
    # -- normalization -----------------------------------------------------------------------------
    "LayerNormalization": [*at(ROWS, {}, {"axis": 1, "center": False}),
                           *at((3, 4, 5), {"axis": (1, 3), "epsilon": 1e-5})],
    "BatchNormalization": [*at(ROWS, {}, {"axis": 1, "momentum": 0.8}),
                           *at(ROWS, {"center": False, "scale": False}), *at((4, 3, 5), {})],
    "GroupNormalization": [*at(IMAGE, {"groups": 2}, {"groups": -1, "epsilon": 1e-5}),
                           *at(last_first(IMAGE), {"groups": 4, "axis": 1, "scale": False})],
    "RMSNormalization": [*at(ROWS, {}), *at((3, 4, 5), {"axis": (1, 3)})],
    "UnitNormalization": [*at(ROWS, {}), *at((3, 4, 5), {"axis": (1, 3)})],
    "Normalization": at(ROWS, {}, {"axis": 1}, {"mean": [1.0] * 6, "variance": [4.0] * 6},
                        {"mean": 1.0, "variance": 0.25, "invert": True, "axis": None}),
    # -- text --------------------------------------------------------------------------------------
    "Embedding": at((5,), {"input_dim": 11, "output_dim": 3}),
    "Masking": at(ROWS, {}, {"mask_value": 0.5}),
    "PositionEmbedding": at(ROWS, {}, {"sequence_length": 9}),
    "SinusoidalPosition": at(ROWS, {}, {"max_wavelength": 100.0}),
    "RotaryEmbedding": [*at(ROWS, {}), *at((3, 5, 4), {"sequence_axis": 2, "max_wavelength": 50.0})],
    "MultiHeadAttention": at(
        ROWS, {"num_heads": 2}, {"num_heads": 3, "key_dim": 2, "value_dim": 5, "output_shape": 7},
        {"num_heads": 2, "use_bias": False, "use_causal_mask": True},
        {"num_heads": 1, "key_dim": 4, "rotary": True}),
    **{f"Transformer{kind}": at((5, 8), {"intermediate_dim": 7, "num_heads": 2},
                                {"intermediate_dim": 9, "num_heads": 2, "activation": "gelu",
                                 "normalize_first": True}) for kind in ("Encoder", "Decoder")},
    # -- recurrent ---------------------------------------------------------------------------------
    "SimpleRNN": at(ROWS, *_GATED, {"units": 3, "activation": "relu"}),
    "LSTM": at(ROWS, *_GATED),
    "GRU": at(ROWS, *_GATED),
    "ConvLSTM1D": at((3, 7, 2), {"filters": 3, "kernel_size": 3}, {
        "filters": 2, "kernel_size": 2, "padding": "same", "dilation_rate": 2, "go_backwards": True,
        "return_sequences": True, "use_bias": False}),
    "ConvLSTM2D": [*at((3, 5, 4, 2), {"filters": 3, "kernel_size": 2, "strides": 2}),
                   *at((3, 2, 5, 4), {"filters": 2, "kernel_size": (3, 2), "padding": "same",
                                      "data_format": "channels_first", "activation": "relu",
                                      "return_sequences": True})],
    "ConvLSTM3D": at((2, 3, 4, 3, 2), {"filters": 2, "kernel_size": 2, "padding": "same"}),
    # -- chance ------------------------------------------------------------------------------------
    "Dropout": at(ROWS, {"rate": 0.4}, {"rate": 0.4, "noise_shape": (None, 1, None), "seed": 5}),
    "SpatialDropout1D": at(LINE, {"rate": 0.4}),
    "SpatialDropout2D": both(IMAGE, {"rate": 0.4}),
    "SpatialDropout3D": both(VOLUME, {"rate": 0.4}),
    "LayerScale": at(ROWS, {"init_values": 0.5, "projection_dim": 6}),
    "StochasticDepth": at(ROWS, {"drop_path_rate": 0.4}),
    "GaussianNoise": at(ROWS, {"stddev": 0.5}),
    "GaussianDropout": at(ROWS, {"rate": 0.4}),
    "AlphaDropout": at(ROWS, {"rate": 0.4}, {"rate": 0.4, "noise_shape": (None, 1, None)}),
}

# Layers of layers, made again each time.
NESTED: dict[str, list[tuple[tuple[int, ...], Callable[[], Layer]]]] = {
    **{kind: [(ROWS, lambda kind=kind: getattr(L, kind)(L.Dense(3), L.Dense(3, "tanh")))]
       for kind in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")},
    "Dot": [(ROWS, lambda axes=axes, n=n: L.Parallel([L.Dense(4), L.Dense(4)], L.Dot(axes, n)))
            for axes, n in (((2, 2), False), ((1, 1), False), (-1, True))]
           + [((5,), lambda: L.Parallel([L.Dense(4), L.Dense(4)], L.Dot(1)))],
    "Residual": [(ROWS, lambda: L.Residual(L.Dense(4, "tanh"), L.Dense(6))),
                 (ROWS, lambda: L.Residual(L.Dense(4), shortcut=L.Dense(4, use_bias=False)))],
    "Parallel": [(ROWS, lambda: L.Parallel([L.Dense(3), L.Identity()])),
                 (ROWS, lambda: L.Parallel([L.Dense(6), L.Identity()], L.Concatenate(axis=1)))],
    "Checkpoint": [(ROWS, lambda: L.Checkpoint(L.Dense(3, "tanh")))],
    "TimeDistributed": [((3, 5, 4), lambda: L.TimeDistributed(L.Conv1D(3, 2))),
                        (ROWS, lambda: L.TimeDistributed(L.Dense(3, "softmax")))],
    "Bidirectional": [(ROWS, lambda merge=merge, s=s: L.Bidirectional(L.LSTM(
        3, return_sequences=s), merge)) for merge, s in (
            ("concat", True), ("sum", False), ("mul", True), ("ave", False))]
                     + [(ROWS, lambda: L.Bidirectional(L.GRU(3, return_sequences=True)))],
    "RNN": [(ROWS, lambda: L.RNN(L.LSTMCell(4))),
            (ROWS, lambda: L.RNN(L.SimpleRNNCell(3), go_backwards=True, return_sequences=True)),
            (ROWS, lambda: L.RNN([L.GRUCell(4), L.LSTMCell(3)], return_sequences=True))],
    "Lambda": [(ROWS, lambda: L.Lambda(mean_of))],
    "Kernel": [(ROWS, lambda: L.Kernel(scale_shift, {"scale": "glorot_uniform", "shift": "zeros"}))],
}

IN_TRAINING = {"BatchNormalization", "Dropout", "SpatialDropout1D", "SpatialDropout2D",
               "SpatialDropout3D",
               "GaussianNoise", "GaussianDropout", "AlphaDropout", "StochasticDepth"}

# Why a layer is not here, and where else it is proved.
CELLS: dict[str, dict[str, Any]] = {
    "SimpleRNNCell": {"units": 3}, "LSTMCell": {"units": 3}, "GRUCell": {"units": 3}}
NOT_IN_KERAS = {
    "Input": "computes nothing", "Operation": "ops are compared by themselves",
    **dict.fromkeys((*CELLS, "StackedRNNCells"), "a step of RNN, which is tried with them"),
    **dict.fromkeys(("Attention", "AdditiveAttention", "EinsumDense"),
                    "beside Keras, with its gradients: test_score_attention.py"),
    **dict.fromkeys(("GroupQueryAttention", "SpectralNormalization", "ActivityRegularization"),
                    "beside Keras, with its gradients: test_group_and_spectral.py"),
    **dict.fromkeys(("RandomFlip", "RandomCrop", "RandomTranslation", "RandomContrast",
                     "RandomBrightness", "RandomErasing"),
                    "PyTorch has none; beside NumPy and Keras in test_augmentation.py"),
    **dict.fromkeys(("RandomRotation", "RandomZoom", "RandomShear", "RandomPerspective", "RandomHue",
                     "RandomSaturation", "RandomColorDegeneration", "RandomGrayscale",
                     "RandomColorJitter", "RandomInvert", "RandomPosterization", "RandomSharpness",
                     "RandomGaussianBlur", "Solarization", "AutoContrast"),
                    "beside Keras: test_warps_and_colors.py"),
    **dict.fromkeys(("Equalization", "ContrastLimitedAdaptiveHistogramEqualization",
                     "STFTSpectrogram", "MelSpectrogram", "ReversibleEmbedding", "MixUp",
                     "CutMix", "RandAugment", "AugMix", "RandomElasticTransform"), "beside Keras and NumPy: test_tones_and_spectra.py"),
    "Encoded": "beside the layers of the host: test_encoded.py",
}


def _cases() -> list[Case]:
    result = [Case(name, shape, how, training, 11 if name == "Embedding" else 0)
              for name, entries in PLAIN.items() for shape, how in entries
              for training in ((False, True) if name in IN_TRAINING else (False,))]
    return result + [Case(name, shape, made=made) for name, entries in NESTED.items()
                     for shape, made in entries]


CASES = _cases()


def public() -> dict[str, type[Layer]]:
    """All layers that the package offers, by their own names; not those of its docstrings' examples."""
    return {name: kind for name, kind in LAYERS.items()
            if kind.__name__ == name and kind.__module__.startswith("ztorch.layers.")
            and hasattr(sys.modules[kind.__module__], name)}
