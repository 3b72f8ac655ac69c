"""GPT-2: a decoder of tokens that predicts the next one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch import layers as L
from ztorch.interchange.hugging_face.folder import Source, Tensors
from ztorch.interchange.hugging_face.layer_maker import LayerMaker
from ztorch.model.model import Model

PREFIXES = ("transformer.",)
HEADS = ("GPT2LMHeadModel", "GPT2Model")
_PARTS = ("query", "key", "value")


def build(maker: LayerMaker, length: int | None) -> Model:
    """The model of a config."""
    config = maker.config
    config.only(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False,
                add_cross_attention=False)
    width, epsilon = config.size("n_embd"), config.number("layer_norm_epsilon", 1e-5)
    ids = L.Input((length or "length",), dtype="int32", name="input_ids")
    x = maker.embedding("wte", config.size("vocab_size"), width)(ids)
    x = maker.positions("wpe", config.size("n_positions"), lambda t: t("wpe.weight"))(x)
    x = maker.dropout("embd_pdrop", 0.1, x)
    for k in range(config.depth("n_layer")):
        x = _block(maker, f"h.{k}", x, width, epsilon)
    x = maker.norm("ln_f", epsilon)(x)
    if config.architecture == "GPT2LMHeadModel":
        head = L.Dense(config.size("vocab_size"), use_bias=False, name="lm_head")
        x = maker.add(head, {"kernel": lambda t: t(
            "lm_head.weight" if "lm_head.weight" in t else "wte.weight").T})(x)
    return Model(ids, x, name="gpt2")


def _block(maker: LayerMaker, name: str, x: Any, width: int, epsilon: float) -> Any:
    """Attention and two dense layers on normalized inputs, each with a residual connection."""
    config = maker.config
    y = maker.norm(f"{name}.ln_1", epsilon)(x)
    y = _attention(maker, f"{name}.attn", width)(y)
    x = x + maker.dropout("resid_pdrop", 0.1, y)
    y = maker.norm(f"{name}.ln_2", epsilon)(x)
    inner = config.size("n_inner", 4 * width)
    y = maker.dense(f"{name}.mlp.c_fc", inner, transposed=False)(y)
    y = maker.activated("activation_function", "gelu_new", y)
    y = maker.dense(f"{name}.mlp.c_proj", width, transposed=False)(y)
    return x + maker.dropout("resid_pdrop", 0.1, y)


def _attention(maker: LayerMaker, name: str, width: int) -> Any:
    """Attention whose queries, keys and values share one matrix, as (in, out)."""
    heads = maker.config.size("n_head")
    dim = maker.divided(width, heads)

    def kernel(k: int) -> Source:
        return lambda t: maker.reshaped(_third(t, f"{name}.c_attn.weight", k), (width, heads, dim))

    def bias(k: int) -> Source:
        return lambda t: maker.reshaped(_third(t, f"{name}.c_attn.bias", k), (heads, dim))

    sources: dict[str, Source] = {
        "attention_output/kernel": lambda t: maker.reshaped(t(f"{name}.c_proj.weight"),
                                                            (heads, dim, width)),
        "attention_output/bias": lambda t: t(f"{name}.c_proj.bias")}
    for k, part in enumerate(_PARTS):
        sources |= {f"{part}/kernel": kernel(k), f"{part}/bias": bias(k)}
    return maker.add(L.MultiHeadAttention(heads, key_dim=dim, use_causal_mask=True, name=name,
                                          dropout=maker.config.number("attn_pdrop", 0.1)), sources)


def _third(tensors: Tensors, name: str, k: int) -> np.ndarray:
    """The columns of queries, keys or values."""
    array = tensors(name)
    third = array.shape[-1] // 3
    return array[..., k * third:(k + 1) * third]
