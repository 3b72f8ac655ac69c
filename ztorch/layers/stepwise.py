"""Which layers can run one position of a sequence at a time, as in decoding."""

from __future__ import annotations

import sys
from typing import Any

from ztorch.errors import Unsupported
from ztorch.layers import (
    activation,
    attention,
    containers,
    core,
    embedding,
    gated,
    group_attention,
    merge,
    normalization,
    operation,
    recurrent,
    regularization,
    rnn,
    spatial_dropout,
    transformer,
    unit_scale,
)
from ztorch.layers.layer import Layer


def need_stepwise(model: Layer) -> None:
    """Raises Unsupported unless every layer can run one position at a time.

    A layer can if one position and its cache give the same result as the whole row.
    """
    within = sys.maxsize  # depth below which layers are parts of a recurrent layer's step
    for depth, layer in list(model.walk())[1:]:
        if depth > within:
            continue
        within = depth if isinstance(layer, recurrent.RecurrentLayer) else sys.maxsize
        if fault := _fault(layer):
            raise Unsupported(f"layer {layer.path!r} ({type(layer).__name__}) cannot run one "
                              f"position at a time: {fault}. Omit decode=True, or change the layer")


def _fault(layer: Layer) -> str:
    """Why a layer cannot run by position; empty if it can. Subclasses are not trusted: they may do
    anything."""
    kind = type(layer)
    if kind in (gated.SimpleRNN, gated.LSTM, gated.GRU, rnn.RNN):
        return _recurrent_fault(layer)
    if isinstance(layer, transformer.TransformerDecoder) and layer.cross_attention is not None:
        return "it attends to a second sequence"
    if kind in (attention.MultiHeadAttention, group_attention.GroupQueryAttention,
                transformer.TransformerEncoder):
        causal = getattr(layer, "use_causal_mask", False)
        return "" if causal else "it uses later positions"
    if kind in _NORMALIZATIONS:
        return "" if getattr(layer, "axis", None) == -1 else "it mixes positions"
    if not isinstance(getattr(layer, "activation", None), str | None):
        return "its activation is a custom function, which may mix positions"
    if getattr(layer, "mask_zero", False):
        return "its mask needs all positions"
    if isinstance(layer, operation.Operation) and layer.op in _ELEMENTWISE and not any(
            isinstance(a, dict) and "array" in a for a in layer.arguments):
        return ""
    if kind in (*_POSITIONWISE, transformer.TransformerDecoder, containers.Identity,
                containers.Residual):
        return ""
    return "it mixes positions, or is not known to keep them apart"


def _recurrent_fault(layer: Any) -> str:
    """Why a recurrent layer cannot run by position; empty if it can."""
    if layer.go_backwards:
        return "it uses later positions"
    if layer.stateful:
        return "stateful=True keeps its state from call to call"
    if layer.return_state:
        return "return_state=True gives the state after the last position"
    return "" if layer.return_sequences else "without return_sequences=True it gives one position"


_NORMALIZATIONS = (normalization.LayerNormalization, unit_scale.RMSNormalization,
                   normalization.BatchNormalization, unit_scale.UnitNormalization)
_ELEMENTWISE = ("add", "sub", "mul", "div", "neg", "relu", "gelu", "silu", "sigmoid", "tanh")
_POSITIONWISE = (
    core.Dense, core.Rescaling, merge.Add, merge.Multiply, embedding.Embedding,
    embedding.PositionEmbedding, embedding.SinusoidalPosition, activation.Activation,
    activation.ReLU, activation.LeakyReLU, activation.ELU, regularization.Dropout,
    spatial_dropout.SpatialDropout1D, regularization.GaussianNoise, regularization.GaussianDropout,
    regularization.AlphaDropout)
