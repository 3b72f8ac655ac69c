"""ViT: an encoder of the patches of an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch import layers as L
from ztorch.interchange.hugging_face.folder import Tensors
from ztorch.interchange.hugging_face.layer_maker import LayerMaker
from ztorch.model.model import Model

PREFIXES = ("vit.",)
HEADS = ("ViTForImageClassification", "ViTModel")


def build(maker: LayerMaker, length: int | None) -> Model:
    """The model of a config, for images (rows, columns, channels)."""
    config = maker.config
    width, epsilon = config.size("hidden_size"), config.number("layer_norm_eps", 1e-12)
    side, patch = config.size("image_size", 224), config.size("patch_size", 16)
    count = (side // patch) ** 2
    image = L.Input((side, side, config.size("num_channels", 3)), name="pixel_values")
    x = maker.conv(L.Conv2D, "embeddings.patch_embeddings.projection", width, patch, patch)(image)
    # The class token is a row of zeros here; its vector is added with that of its position.
    x = L.ZeroPadding1D((1, 0), name="embeddings.cls_token")(L.Reshape((count, width))(x))
    x = maker.positions("embeddings.position_embeddings", count + 1, _table)(x)
    x = maker.dropout("hidden_dropout_prob", 0.0, x)
    for k in range(config.depth("num_hidden_layers")):
        x = _block(maker, f"encoder.layer.{k}", x, width, epsilon)
    x = maker.norm("layernorm", epsilon)(x)
    if config.architecture == "ViTForImageClassification":
        x = maker.dense("classifier", config.classes())(x[:, 0])
    return Model(image, x, name="vit")


def _table(tensors: Tensors) -> np.ndarray:
    """The vector of each position; the first has the class token's added to it."""
    table = tensors("embeddings.position_embeddings")[0].copy()
    table[0] += tensors("embeddings.cls_token").reshape(-1)
    return table


def _block(maker: LayerMaker, name: str, x: Any, width: int, epsilon: float) -> Any:
    """Attention and two dense layers on normalized inputs, each with a residual connection."""
    config = maker.config
    attention = maker.attention(
        f"{name}.attention", width, config.size("num_attention_heads"),
        {**{part: f"{name}.attention.attention.{part}" for part in ("query", "key", "value")},
         "attention_output": f"{name}.attention.output.dense"},
        use_bias=True, dropout=config.number("attention_probs_dropout_prob", 0.0))
    y = attention(maker.norm(f"{name}.layernorm_before", epsilon)(x))
    x = x + maker.dropout("hidden_dropout_prob", 0.0, y)
    y = maker.norm(f"{name}.layernorm_after", epsilon)(x)
    y = maker.dense(f"{name}.intermediate.dense", config.size("intermediate_size"))(y)
    y = maker.dense(f"{name}.output.dense", width)(maker.activated("hidden_act", "gelu", y))
    return x + maker.dropout("hidden_dropout_prob", 0.0, y)
