"""Who wrote this? 32 letters of verse, read by a small transformer.

    ztorch train text_classifier --out poets.zt

Seven kilobytes teach it to be right about two times in three on lines it has not seen, where
always naming the same poet would be right in 43 of 100.
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L
from ztorch.data.verse import ALPHABET, LENGTH, POETS

DATA = "poets"
LOSS = "sparse_categorical_crossentropy"
OPTIMIZER = "adam"
LEARNING_RATE = 1e-3
METRICS = ("accuracy",)
EPOCHS = 4
BATCH_SIZE = 32
BAR = {"accuracy": 0.6}


def build(width: int = 32, heads: int = 4) -> Sequential:
    """Letters as vectors, attention in both directions, one vector for all positions.

    >>> build().output_shape
    (3,)
    """
    return Sequential([
        L.Input((LENGTH,), dtype="int32"),
        L.Embedding(len(ALPHABET), width, name="letters"),
        L.PositionEmbedding(name="positions"),
        L.TransformerEncoder(2 * width, heads, dropout=0.2, name="block"),
        L.GlobalAveragePooling1D(name="mean"),
        L.Dropout(0.2),
        L.Dense(len(POETS), activation="softmax", name="poet"),
    ], name="text_classifier", seed=1)
