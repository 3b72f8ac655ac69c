"""A transformer that writes verse letter by letter, trained on the poems that ship with ztorch.

    ztorch train tiny_gpt --out gpt.zt
    ztorch generate gpt.zt "Shall I compare thee" --length 200

    from ztorch.models.tiny_gpt import write
    print(write(zt.load("gpt.zt"), "Shall I compare thee", 200))
"""

from __future__ import annotations

from ztorch import Sequential
from ztorch import layers as L
from ztorch.data.verse import ALPHABET, LENGTH, decode, encode
from ztorch.program.program import Program

DATA = "verse"
LOSS = "sparse_categorical_crossentropy"
OPTIMIZER = "adam"
LEARNING_RATE = 2e-3
METRICS = ("accuracy",)
EPOCHS = 6
BATCH_SIZE = 32
DECODE = True  # compile the function that generates text too
BAR = {"accuracy": 0.36}


def build(blocks: int = 2, width: int = 48, heads: int = 4) -> Sequential:
    """Blocks of causal attention over 32 letters; each position predicts the next letter.

    >>> build().output_shape
    (None, 32, 36)
    """
    return Sequential([
        L.Input((LENGTH,), dtype="int32"),
        L.Embedding(len(ALPHABET), width, name="letters"),
        L.PositionEmbedding(name="positions"),
        *(L.TransformerDecoder(4 * width, heads, dropout=0.1, activation="gelu",
                               normalize_first=True, name=f"block_{k}") for k in range(blocks)),
        L.LayerNormalization(name="norm"),
        L.Dense(len(ALPHABET), activation="softmax", name="next_letter"),
    ], name="tiny_gpt", seed=1)


def write(program: Program, beginning: str, length: int, temperature: float = 0.5,
          top_k: int | None = None, seed: int = 0) -> str:
    """Continues a text. Each letter is drawn by its probability; a higher temperature makes
    unlikely letters more frequent."""
    letters = program.generate(encode(beginning), length, temperature=temperature, top_k=top_k,
                               seed=seed)
    return beginning + decode(letters)
