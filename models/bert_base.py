"""BERT's encoder: Devlin et al., "BERT: pre-training of deep bidirectional transformers" (2018).

12 blocks, 768 features, 12 heads, 30522 words. It is complete except for the segment embeddings,
since rows hold one sentence. By default it ends in the head for masked words; with `classes` it
ends in one that classifies rows.

The small one fills gaps in rows whose second half repeats the first:

    ztorch train bert_base:small --out gaps.zt
    ztorch train bert_base --data ids.npy,words.npy --out bert.zt
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L
from ztorch.data.gaps import WORDS

SMALL = {"length": 24, "words": WORDS, "width": 48, "blocks": 2, "heads": 4, "places": 24}
SMALL_DATA = "gaps"
LOSS = "sparse_categorical_crossentropy"
OPTIMIZER = "adam"
LEARNING_RATE = 2e-3
METRICS = ("accuracy",)
EPOCHS = 6
BATCH_SIZE = 32
BAR = {"accuracy": 0.97}  # 0.98 at best: where both copies of a word are masked, it is lost

EPSILON = 1e-12  # of layer normalizations, as in the paper's code


def normal(width: int) -> dict[str, object]:
    """Normal values of deviation 0.02 for 768 features; larger for fewer features, so that sums
    over all features keep their size."""
    stddev = 0.02 * (768 / width) ** 0.5
    return {"class_name": "TruncatedNormal", "config": {"stddev": stddev}}


def build(length: int = 128, words: int = 30522, width: int = 768, blocks: int = 12,
          heads: int = 12, places: int = 512, dropout: float = 0.1,
          classes: int | None = None) -> Sequential:
    """An encoder for rows of `length` words, with embeddings for `places` positions.

    >>> build().output_shape, build(classes=2).output_shape
    ((None, 128, 30522), (None, 2))
    """
    return Sequential([
        L.Input((length,), dtype="int32"),
        *encoder(words, width, blocks, heads, places, dropout),
        *(masked_words(words, width) if classes is None else whole_row(length, width, classes)),
    ], name="bert_base", seed=1)


def encoder(words: int, width: int, blocks: int, heads: int, places: int,
            dropout: float) -> list[L.Layer]:
    return [
        L.Embedding(words, width, embeddings_initializer=normal(width), name="words"),
        L.PositionEmbedding(places, initializer=normal(width), name="places"),
        L.LayerNormalization(epsilon=EPSILON, name="norm"),
        L.Dropout(dropout),
        *(L.TransformerEncoder(4 * width, heads, dropout=dropout, activation="gelu",
                               layer_norm_epsilon=EPSILON, kernel_initializer=normal(width),
                               name=f"block_{k + 1}") for k in range(blocks)),
    ]


def masked_words(words: int, width: int) -> list[L.Layer]:
    """The head that predicts a word at each position, as in pre-training; its matrix is not tied to
    the embeddings."""
    return [L.Dense(width, activation="gelu", kernel_initializer=normal(width), name="transform"),
            L.LayerNormalization(epsilon=EPSILON, name="transform_norm"),
            L.Dense(words, activation="softmax", kernel_initializer=normal(width), name="word")]


def whole_row(length: int, width: int, classes: int) -> list[L.Layer]:
    """The head that classifies a row, from the features of its first position."""
    return [L.Cropping1D((0, length - 1), name="first_place"),
            L.Flatten(),
            L.Dense(width, activation="tanh", kernel_initializer=normal(width), name="pooler"),
            L.Dropout(0.1, name="pooler_dropout"),
            L.Dense(classes, activation="softmax", kernel_initializer=normal(width), name="class")]
