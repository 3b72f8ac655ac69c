"""ViT: an encoder of the patches of an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch import layers as L
from ztorch.interchange.hugging_face.folder import Tensors
from ztorch.interchange.hugging_face.parts import Parts
from ztorch.model.model import Model

PREFIXES = ("vit.",)
HEADS = ("ViTForImageClassification", "ViTModel")


def build(parts: Parts, length: int | None) -> Model:
    """The model of a config, for images (rows, columns, channels)."""
    config = parts.config
    width, epsilon = config.size("hidden_size"), config.number("layer_norm_eps", 1e-12)
    side, patch = config.size("image_size", 224), config.size("patch_size", 16)
    count = (side // patch) ** 2
    image = L.Input((side, side, config.size("num_channels", 3)), name="pixel_values")
    x = parts.conv(L.Conv2D, "embeddings.patch_embeddings.projection", width, patch, patch)(image)
    # A row of zeros is the class token: its vector is added with that of its position.
    x = L.ZeroPadding1D((1, 0), name="embeddings.cls_token")(L.Reshape((count, width))(x))
    x = parts.positions("embeddings.position_embeddings", count + 1, _table)(x)
    x = parts.dropout("hidden_dropout_prob", 0.0, x)
    for k in range(config.depth("num_hidden_layers")):
        x = _block(parts, f"encoder.layer.{k}", x, width, epsilon)
    x = parts.norm("layernorm", epsilon)(x)
    if config.architecture == "ViTForImageClassification":
        x = parts.dense("classifier", config.classes())(x[:, 0])
    return Model(image, x, name="vit")


def _table(tensors: Tensors) -> np.ndarray:
    """A vector for each position; that of the class token is added to the first."""
    table = tensors("embeddings.position_embeddings")[0].copy()
    table[0] += tensors("embeddings.cls_token").reshape(-1)
    return table


def _block(parts: Parts, name: str, x: Any, width: int, epsilon: float) -> Any:
    """Attention and two dense layers on normalized inputs, each with a residual connection."""
    config = parts.config
    attention = parts.attention(
        f"{name}.attention", width, config.size("num_attention_heads"),
        {**{part: f"{name}.attention.attention.{part}" for part in ("query", "key", "value")},
         "attention_output": f"{name}.attention.output.dense"},
        use_bias=True, dropout=config.number("attention_probs_dropout_prob", 0.0))
    y = attention(parts.norm(f"{name}.layernorm_before", epsilon)(x))
    x = x + parts.dropout("hidden_dropout_prob", 0.0, y)
    y = parts.norm(f"{name}.layernorm_after", epsilon)(x)
    y = parts.dense(f"{name}.intermediate.dense", config.size("intermediate_size"))(y)
    y = parts.dense(f"{name}.output.dense", width)(parts.activated("hidden_act", "gelu", y))
    return x + parts.dropout("hidden_dropout_prob", 0.0, y)
