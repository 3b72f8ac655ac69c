"""Llama: a decoder with rotary positions, gated dense layers and grouped-query attention."""

from __future__ import annotations

from typing import Any

from ztorch import layers as L
from ztorch.errors import Unsupported
from ztorch.interchange.hugging_face.folder import Config
from ztorch.interchange.hugging_face.layer_maker import LayerMaker
from ztorch.model.model import Model

PREFIXES = ("model.",)
HEADS = ("LlamaForCausalLM", "LlamaModel")


def build(maker: LayerMaker, length: int | None) -> Model:
    """The model of a config."""
    config = maker.config
    config.only(mlp_bias=False)
    width, epsilon = config.size("hidden_size"), config.number("rms_norm_eps", 1e-6)
    wavelength = _wavelength(config)
    ids = L.Input((length or "length",), dtype="int32", name="input_ids")
    x = maker.embedding("embed_tokens", config.size("vocab_size"), width)(ids)
    for k in range(config.depth("num_hidden_layers")):
        x = _block(maker, f"layers.{k}", x, width, epsilon, wavelength)
    x = maker.rms_norm("norm", epsilon)(x)
    if config.architecture == "LlamaForCausalLM":
        head = L.Dense(config.size("vocab_size"), use_bias=False, name="lm_head")
        x = maker.add(head, {"kernel": lambda t: t(
            "lm_head.weight" if "lm_head.weight" in t else "embed_tokens.weight").T})(x)
    return Model(ids, x, name="llama")


def _block(maker: LayerMaker, name: str, x: Any, width: int, epsilon: float,
           wavelength: float) -> Any:
    """Attention and gated dense layers on normalized inputs, each with a residual connection."""
    config = maker.config
    heads = config.size("num_attention_heads")
    has_dim = config.values.get("head_dim") is not None
    dim = config.size("head_dim") if has_dim else maker.divided(width, heads)
    modules = {part: f"{name}.self_attn.{letter}_proj" for part, letter in (
        ("query", "q"), ("key", "k"), ("value", "v"), ("attention_output", "o"))}
    attention = maker.attention(
        f"{name}.self_attn", width, heads, modules, config.size("num_key_value_heads", heads),
        dim, rotary=True,
        use_bias=config.flag("attention_bias"), use_causal_mask=True, rotary_wavelength=wavelength,
        dropout=config.number("attention_dropout", 0.0))
    x = x + attention(maker.rms_norm(f"{name}.input_layernorm", epsilon)(x))
    y = maker.rms_norm(f"{name}.post_attention_layernorm", epsilon)(x)
    inner = config.size("intermediate_size")
    gate = maker.dense(f"{name}.mlp.gate_proj", inner, use_bias=False)(y)
    up = maker.dense(f"{name}.mlp.up_proj", inner, use_bias=False)(y)
    y = maker.activated("hidden_act", "silu", gate) * up
    return x + maker.dense(f"{name}.mlp.down_proj", width, use_bias=False)(y)


def _wavelength(config: Config) -> float:
    """The base wavelength of rotary position embeddings."""
    rope = config.values.get("rope_parameters") or config.values.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    if kind != "default":
        raise Unsupported(f"{config.path}: positions are scaled by {kind!r}; ztorch reads models "
                          "without scaling")
    base = Config(rope, config.path)
    return base.number("rope_theta", config.number("rope_theta", 10000.0))
