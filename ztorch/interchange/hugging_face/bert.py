"""BERT: an encoder of tokens, with the heads for classification and for masked words."""

from __future__ import annotations

from typing import Any

from ztorch import layers as L
from ztorch.interchange.hugging_face.layer_maker import LayerMaker
from ztorch.model.model import Model

PREFIXES = ("bert.",)
HEADS = ("BertModel", "BertForMaskedLM", "BertForSequenceClassification")


def build(maker: LayerMaker, length: int | None) -> Model:
    """The model of a config."""
    config = maker.config
    config.only(position_embedding_type="absolute", is_decoder=False)
    width, epsilon = config.size("hidden_size"), config.number("layer_norm_eps", 1e-12)
    inputs = {name: L.Input((length or "length",), dtype="int32", name=name)
              for name in ("input_ids", "token_type_ids", "attention_mask")}
    mask = L.Reshape((1, 1, -1), name="mask")(inputs["attention_mask"] > 0)
    places = config.size("max_position_embeddings")
    x = maker.embedding("embeddings.word_embeddings", config.size("vocab_size"),
                        width)(inputs["input_ids"])
    x = x + maker.embedding("embeddings.token_type_embeddings", config.size("type_vocab_size", 2),
                            width)(inputs["token_type_ids"])
    x = maker.positions("embeddings.position_embeddings", places,
                        lambda t: t("embeddings.position_embeddings.weight"))(x)
    x = maker.norm("embeddings.LayerNorm", epsilon)(x)
    x = maker.dropout("hidden_dropout_prob", 0.1, x)
    for k in range(config.depth("num_hidden_layers")):
        x = _block(maker, f"encoder.layer.{k}", x, mask, width, epsilon)
    return Model(inputs, _head(maker, x, width, epsilon), name="bert")


def _block(maker: LayerMaker, name: str, x: Any, mask: Any, width: int, epsilon: float) -> Any:
    """Attention and two dense layers, each with a residual connection and a normalization."""
    config = maker.config
    attention = maker.attention(
        f"{name}.attention", width, config.size("num_attention_heads"),
        {**{part: f"{name}.attention.self.{part}" for part in ("query", "key", "value")},
         "attention_output": f"{name}.attention.output.dense"},
        dropout=config.number("attention_probs_dropout_prob", 0.1))
    y = maker.dropout("hidden_dropout_prob", 0.1, attention(x, x, x, mask))
    x = maker.norm(f"{name}.attention.output.LayerNorm", epsilon)(x + y)
    y = maker.dense(f"{name}.intermediate.dense", config.size("intermediate_size"))(x)
    y = maker.dense(f"{name}.output.dense", width)(maker.activated("hidden_act", "gelu", y))
    return maker.norm(f"{name}.output.LayerNorm", epsilon)(
        x + maker.dropout("hidden_dropout_prob", 0.1, y))


def _head(maker: LayerMaker, x: Any, width: int, epsilon: float) -> Any:
    kind = maker.config.architecture
    if kind == "BertForMaskedLM":
        y = maker.dense("cls.predictions.transform.dense", width)(x)
        y = maker.activated("hidden_act", "gelu", y)
        y = maker.norm("cls.predictions.transform.LayerNorm", epsilon)(y)
        words = "embeddings.word_embeddings.weight"
        decoder = "cls.predictions.decoder.weight"
        return maker.add(
            L.Dense(maker.config.size("vocab_size"), name="cls.predictions.decoder"),
            {"kernel": lambda t: t(decoder if decoder in t else words).T,
             "bias": lambda t: t("cls.predictions.bias")})(y)
    pooled = maker.dense("pooler.dense", width)(x[:, 0]).tanh()
    if kind == "BertModel":
        return {"last_hidden_state": x, "pooler_output": pooled}
    rate = "classifier_dropout" if maker.config.values.get("classifier_dropout") is not None else \
        "hidden_dropout_prob"
    return maker.dense("classifier", maker.config.classes())(maker.dropout(rate, 0.1, pooled))
