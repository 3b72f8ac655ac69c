"""How our layers differ from those of Keras, and which cases can be tried beside them."""

from __future__ import annotations

from tests.layers.twin_cases import NESTED, Case

# Layers that Keras lacks.
OURS = {
    **dict.fromkeys(("PositionEmbedding", "RotaryEmbedding", "TransformerEncoder",
                     "TransformerDecoder"), "KerasHub's names and weights: test_attention.py"),
    "Operation": "an op on a symbolic tensor: test_symbolic_ops.py",
    "SinusoidalPosition": "KerasHub's SinePositionEncoding, which adds itself here",
    **dict.fromkeys(("Residual", "Parallel"), "branches within a Sequential"),
    "Kernel": "Keras has no kernels: tests/kernels",
    **dict.fromkeys(("LayerScale", "StochasticDepth"),
                    "of keras.applications: interchange/test_keras_applications.py"),
    "Encoded": "Keras' layers of these names: test_encoded.py",
    "Checkpoint": "Keras has RematScope: program/test_memory_limit.py",
}

# Arguments of ours alone.
ADDED = {
    "AdditiveAttention": {"seed": "Keras takes it among **kwargs"},
    "MultiHeadAttention": {"use_causal_mask": "in Keras an argument of the call",
                           "rotary": "positions by turning", "rotary_wavelength": "its limit",
                           "num_key_value_heads": "in Keras a layer: GroupQueryAttention"},
    "GroupQueryAttention": {"use_causal_mask": "in Keras an argument of the call",
                            "rotary": "positions by turning"},
    **{name: {"branches": "within a Sequential there is one tensor"}
       for name in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")},
    **{name: {"zero_output_for_mask": "Keras takes it among **kwargs"}
       for name in ("SimpleRNN", "LSTM", "GRU", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")},
    **{name: {"data_format": "as for all layers of images; Keras takes it among **kwargs"}
       for name in ("RandomContrast", "RandomBrightness", "Solarization", "AutoContrast")},
}
# What Keras on PyTorch refuses or fails at, or computes as none of its other backends does; the words
# of PyTorch alone prove these.
NOT_BESIDE_KERAS = {
    ("DepthwiseConv1D", "padding", "causal"), ("SeparableConv1D", "padding", "causal"),
    ("Activation", "activation", "threshold"),  # its function needs arguments
    ("LayerNormalization", "axis", 1), ("RMSNormalization", "axis", (1, 3)),
    ("AveragePooling2D", "padding", "same"),  # repeats the border where it is not alike on both sides
}


def beside_keras(case: Case) -> bool:
    own = {*ADDED.get(case.layer, {})} - {"data_format"}
    return (case.layer not in {*OURS, *NESTED} and not case.training and not own & {*case.how}
            and isinstance(case.how.get("padding", ""), str if "Conv" in case.layer else object)
            and not any((case.layer, k, v) in NOT_BESIDE_KERAS
                        for k, v in case.how.items() if not isinstance(v, list))
            and (case.layer != "MultiHeadAttention" or "key_dim" in case.how))
