"""Whisper's encoder: features of speech, from its spectrum."""

from __future__ import annotations

from typing import Any

from ztorch import layers as L
from ztorch.interchange.hugging_face.layer_maker import LayerMaker
from ztorch.model.model import Model

PREFIXES = ("model.encoder.", "encoder.")
HEADS = ("WhisperForConditionalGeneration", "WhisperModel")
EPSILON = 1e-5  # of normalizations


def build(maker: LayerMaker, length: int | None) -> Model:
    """The encoder of a config, for spectra (steps, bins)."""
    config = maker.config
    width, places = config.size("d_model"), config.size("max_source_positions", 1500)
    spectrum = L.Input((2 * places, config.size("num_mel_bins", 80)), name="input_features")
    x = spectrum
    for name, strides in (("conv1", 1), ("conv2", 2)):
        x = maker.conv(L.Conv1D, name, width, 3, strides)(L.ZeroPadding1D(1)(x)).gelu()
    x = maker.positions("embed_positions", places, lambda t: t("embed_positions.weight"))(x)
    x = maker.dropout("dropout", 0.0, x)
    for k in range(config.depth("encoder_layers")):
        x = _block(maker, f"layers.{k}", x, width)
    return Model(spectrum, maker.norm("layer_norm", EPSILON)(x), name="whisper_encoder")


def _block(maker: LayerMaker, name: str, x: Any, width: int) -> Any:
    """Attention and two dense layers on normalized inputs, each with a residual connection."""
    config = maker.config
    modules = {part: f"{name}.self_attn.{end}_proj" for part, end in (
        ("query", "q"), ("key", "k"), ("value", "v"), ("attention_output", "out"))}
    attention = maker.attention(f"{name}.self_attn", width, config.size("encoder_attention_heads"),
                                modules, dropout=config.number("attention_dropout", 0.0))
    y = attention(maker.norm(f"{name}.self_attn_layer_norm", EPSILON)(x))
    x = x + maker.dropout("dropout", 0.0, y)
    y = maker.norm(f"{name}.final_layer_norm", EPSILON)(x)
    y = maker.dense(f"{name}.fc1", config.size("encoder_ffn_dim"))(y)
    y = maker.activated("activation_function", "gelu", y)
    y = maker.dropout("activation_dropout", 0.0, y)
    return x + maker.dropout("dropout", 0.0, maker.dense(f"{name}.fc2", width)(y))
