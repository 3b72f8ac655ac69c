"""Llama: a decoder with rotated positions, gated layers and shared heads of keys."""

from __future__ import annotations

from typing import Any

from ztorch import layers as L
from ztorch.errors import Unsupported
from ztorch.interchange.hugging_face.folder import Config
from ztorch.interchange.hugging_face.parts import Parts
from ztorch.model.model import Model

PREFIXES = ("model.",)
HEADS = ("LlamaForCausalLM", "LlamaModel")


def build(parts: Parts, length: int | None) -> Model:
    """The model of a config."""
    config = parts.config
    config.only(mlp_bias=False)
    width, epsilon = config.size("hidden_size"), config.number("rms_norm_eps", 1e-6)
    wavelength = _wavelength(config)
    ids = L.Input((length or "length",), dtype="int32", name="input_ids")
    x = parts.embedding("embed_tokens", config.size("vocab_size"), width)(ids)
    for k in range(config.depth("num_hidden_layers")):
        x = _block(parts, f"layers.{k}", x, width, epsilon, wavelength)
    x = parts.rms_norm("norm", epsilon)(x)
    if config.architecture == "LlamaForCausalLM":
        head = L.Dense(config.size("vocab_size"), use_bias=False, name="lm_head")
        x = parts.add(head, {"kernel": lambda t: t(
            "lm_head.weight" if "lm_head.weight" in t else "embed_tokens.weight").T})(x)
    return Model(ids, x, name="llama")


def _block(parts: Parts, name: str, x: Any, width: int, epsilon: float, wavelength: float) -> Any:
    """Attention and gated dense layers on normalized inputs, each with a residual connection."""
    config = parts.config
    heads = config.size("num_attention_heads")
    modules = {part: f"{name}.self_attn.{letter}_proj" for part, letter in (
        ("query", "q"), ("key", "k"), ("value", "v"), ("attention_output", "o"))}
    attention = parts.attention(
        f"{name}.self_attn", width, heads, modules, config.size("num_key_value_heads", heads),
        config.size("head_dim", parts.divided(width, heads)), rotary=True,
        use_bias=config.flag("attention_bias"), use_causal_mask=True, rotary_wavelength=wavelength,
        dropout=config.number("attention_dropout", 0.0))
    x = x + attention(parts.rms_norm(f"{name}.input_layernorm", epsilon)(x))
    y = parts.rms_norm(f"{name}.post_attention_layernorm", epsilon)(x)
    inner = config.size("intermediate_size")
    gate = parts.dense(f"{name}.mlp.gate_proj", inner, use_bias=False)(y)
    up = parts.dense(f"{name}.mlp.up_proj", inner, use_bias=False)(y)
    y = parts.activated("hidden_act", "silu", gate) * up
    return x + parts.dense(f"{name}.mlp.down_proj", width, use_bias=False)(y)


def _wavelength(config: Config) -> float:
    """The base of the rotations."""
    rope = config.values.get("rope_parameters") or config.values.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    if kind != "default":
        raise Unsupported(f"{config.path}: positions are scaled by {kind!r}; ztorch reads models "
                          "without scaling")
    base = Config(rope, config.path)
    return base.number("rope_theta", config.number("rope_theta", 10000.0))
