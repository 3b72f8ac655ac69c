"""BERT: an encoder of tokens, with the heads that classify rows or fill gaps."""

from __future__ import annotations

from typing import Any

from ztorch import layers as L
from ztorch.interchange.hugging_face.parts import Parts
from ztorch.model.model import Model

PREFIXES = ("bert.",)
HEADS = ("BertModel", "BertForMaskedLM", "BertForSequenceClassification")


def build(parts: Parts, length: int | None) -> Model:
    """The model of a config."""
    config = parts.config
    config.only(position_embedding_type="absolute", is_decoder=False)
    width, epsilon = config.size("hidden_size"), config.number("layer_norm_eps", 1e-12)
    inputs = {name: L.Input((length or "length",), dtype="int32", name=name)
              for name in ("input_ids", "token_type_ids", "attention_mask")}
    seen = L.Reshape((1, 1, -1), name="seen")(inputs["attention_mask"] > 0)
    places = config.size("max_position_embeddings")
    x = parts.embedding("embeddings.word_embeddings", config.size("vocab_size"),
                        width)(inputs["input_ids"])
    x = x + parts.embedding("embeddings.token_type_embeddings", config.size("type_vocab_size", 2),
                            width)(inputs["token_type_ids"])
    x = parts.positions("embeddings.position_embeddings", places,
                        lambda t: t("embeddings.position_embeddings.weight"))(x)
    x = parts.norm("embeddings.LayerNorm", epsilon)(x)
    x = parts.dropout("hidden_dropout_prob", 0.1, x)
    for k in range(config.depth("num_hidden_layers")):
        x = _block(parts, f"encoder.layer.{k}", x, seen, width, epsilon)
    return Model(inputs, _head(parts, x, width, epsilon), name="bert")


def _block(parts: Parts, name: str, x: Any, seen: Any, width: int, epsilon: float) -> Any:
    """Attention and two dense layers, each with a residual connection and a normalization."""
    config = parts.config
    attention = parts.attention(
        f"{name}.attention", width, config.size("num_attention_heads"),
        {**{part: f"{name}.attention.self.{part}" for part in ("query", "key", "value")},
         "attention_output": f"{name}.attention.output.dense"},
        dropout=config.number("attention_probs_dropout_prob", 0.1))
    y = parts.dropout("hidden_dropout_prob", 0.1, attention(x, x, x, seen))
    x = parts.norm(f"{name}.attention.output.LayerNorm", epsilon)(x + y)
    y = parts.dense(f"{name}.intermediate.dense", config.size("intermediate_size"))(x)
    y = parts.dense(f"{name}.output.dense", width)(parts.activated("hidden_act", "gelu", y))
    return parts.norm(f"{name}.output.LayerNorm", epsilon)(
        x + parts.dropout("hidden_dropout_prob", 0.1, y))


def _head(parts: Parts, x: Any, width: int, epsilon: float) -> Any:
    kind = parts.config.architecture
    if kind == "BertForMaskedLM":
        y = parts.dense("cls.predictions.transform.dense", width)(x)
        y = parts.activated("hidden_act", "gelu", y)
        y = parts.norm("cls.predictions.transform.LayerNorm", epsilon)(y)
        words = "embeddings.word_embeddings.weight"
        decoder = "cls.predictions.decoder.weight"
        return parts.add(
            L.Dense(parts.config.size("vocab_size"), name="cls.predictions.decoder"),
            {"kernel": lambda t: t(decoder if decoder in t else words).T,
             "bias": lambda t: t("cls.predictions.bias")})(y)
    pooled = parts.dense("pooler.dense", width)(x[:, 0]).tanh()
    if kind == "BertModel":
        return {"last_hidden_state": x, "pooler_output": pooled}
    rate = "classifier_dropout" if parts.config.values.get("classifier_dropout") is not None else \
        "hidden_dropout_prob"
    return parts.dense("classifier", parts.config.classes())(parts.dropout(rate, 0.1, pooled))
