"""The shape of a row that each layer of the catalog takes, and arguments that it can be made with."""

from __future__ import annotations

from typing import Any

from tests.layers.twin_cases import CELLS, PLAIN
from ztorch import layers as L

AUGMENTING: dict[str, dict[str, Any]] = {
    "RandomFlip": {}, "RandomCrop": {"height": 3, "width": 3}, "RandomTranslation": {
        "height_factor": 0.1, "width_factor": 0.1}, "RandomContrast": {"factor": 0.2},
    "RandomBrightness": {"factor": 0.2}, "RandomErasing": {}, "RandomZoom": {"height_factor": 0.1},
    "RandomColorJitter": {"hue_factor": 0.1}, "RandomPosterization": {"factor": 4},
    **{name: {"factor": 0.2} for name in (
        "RandomRotation", "RandomHue", "RandomSaturation", "RandomColorDegeneration",
        "RandomGrayscale", "RandomInvert", "RandomSharpness", "RandomGaussianBlur",
        "RandomPerspective")},
    **{name: {} for name in ("RandomShear", "Solarization", "AutoContrast", "MixUp", "CutMix", "RandAugment", "AugMix", "RandomElasticTransform",
                             "Equalization", "ContrastLimitedAdaptiveHistogramEqualization")}}
TRIED: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    **{name: entries[0] for name, entries in PLAIN.items()},
    **{name: ((7, 6, 3), how) for name, how in AUGMENTING.items()},
    **{name: ((6,), how) for name, how in CELLS.items()},
    "Attention": ((5, 6), {}), "AdditiveAttention": ((5, 6), {}),
    "EinsumDense": ((5, 6), {"equation": "abc,cd->abd", "output_shape": (None, 3),
                             "bias_axes": "d"}),
    "GroupQueryAttention": ((5, 6), {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2}),
    "SpectralNormalization": ((6,), {"layer": L.Dense(3)}),
    "StackedRNNCells": ((6,), {"cells": [L.GRUCell(3)]}),
    "ActivityRegularization": ((6,), {"l1": 0.1}),
    "STFTSpectrogram": ((20, 2), {"frame_length": 8}),
    "MelSpectrogram": ((40,), {"fft_length": 16, "sequence_stride": 8, "num_mel_bins": 4}),
    "ReversibleEmbedding": ((5,), {"input_dim": 11, "output_dim": 3}),
    "Encoded": ((5,), {"layer": L.CategoryEncoding(4)}),
    "Operation": ((6,), {"op": "softplus"}), "Input": ((), {"shape": (3,)})}
