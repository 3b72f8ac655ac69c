"""Text files for models that predict what comes next: letters, bytes or words as numbers."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import fraction, positive
from ztorch.data.arrays import need_file
from ztorch.data.batches import Batches
from ztorch.data.registry import Pair
from ztorch.errors import ConfigError, DataError

TOKENIZERS = ("chars", "bytes", "words")
UNKNOWN = "<unknown>"  # stands for words that the vocabulary lacks
_WORD = re.compile(r"\w+|[^\w\s]")


@checked
def text(path: str | os.PathLike[str], length: int = 64, tokenizer: str = "chars", *,
         stride: int | None = None, vocab: Sequence[Any] | None = None,
         vocab_size: int | None = None, batch_size: int = 32, seed: int | None = None) -> Text:
    """Batches of passages of a text file in UTF-8: x holds `length` tokens, y for each of them the
    one that follows. Passages begin `stride` tokens apart, by default side by side.

        verse = zt.data.text("shakespeare.txt", length=64, seed=0)
        train, validation = verse.split(0.1)
        program.fit(train, validation_data=validation)  # Embedding(len(verse.vocab), ...) first

    A token is a character ("chars"), a byte ("bytes") or a word or sign without the space between
    ("words": the vocab_size most frequent, all others are one unknown word). `vocab` of another
    text makes the same numbers mean the same.
    """
    return Text(path, length, tokenizer, stride, vocab, vocab_size, batch_size, seed)


class Text(Batches):
    """What `text` gives. `vocab` holds each token at its number, `tokens` the whole text as
    numbers; `encode` and `decode` go from one to the other."""

    def __init__(self, path: str | os.PathLike[str], length: int, tokenizer: str,
                 stride: int | None, vocab: Sequence[Any] | None, vocab_size: int | None,
                 batch_size: int, seed: int | None):
        self.where = os.fspath(path)
        self.length = positive("text(length=...)", length)
        self.stride = self.length if stride is None else positive("text(stride=...)", stride)
        if tokenizer not in TOKENIZERS:
            raise ConfigError(f"text(tokenizer={tokenizer!r}) must be 'chars', 'bytes' or 'words'")
        self.tokenizer = tokenizer
        if vocab_size is not None and (tokenizer != "words" or vocab is not None):
            raise ConfigError("text(vocab_size=...) counts words that are found: use it with "
                              "tokenizer='words' and without vocab")
        if not isinstance(vocab, Sequence | None):
            raise ConfigError(f"text(vocab={vocab!r}) must be the vocab of another text")
        need_file(path)
        raw = Path(path).read_bytes()
        content: Any = raw
        if tokenizer != "bytes":
            try:
                content = raw.decode("utf-8-sig").replace("\r\n", "\n")
            except UnicodeDecodeError as error:
                raise DataError(f"{self.where} is not text in UTF-8 (at byte {error.start}); save "
                                "it as UTF-8, or use tokenizer='bytes'") from None
        self.vocab = tuple(self._found(content, vocab_size) if vocab is None else vocab)
        self._places = {token: k for k, token in enumerate(self.vocab)}
        if len(self._places) != len(self.vocab):
            raise ConfigError("text(vocab=...) names a token twice")
        self.tokens = self.encode(content)
        count = (len(self.tokens) - self.length - 1) // self.stride + 1
        if len(self.tokens) <= self.length:
            raise DataError(f"{self.where} has {len(self.tokens)} tokens; passages of {length} and "
                            f"what follows need {length + 1} at least")
        super().__init__(count, batch_size, seed)

    def _found(self, content: Any, most: int | None) -> list[Any]:
        """All tokens of a text: letters in their order, words by how often they are used."""
        if self.tokenizer == "bytes":
            return [bytes([k]) for k in range(256)]
        if self.tokenizer == "chars":
            return sorted(set(content))
        counted = Counter(_WORD.findall(content))
        words = sorted(counted, key=lambda word: (-counted[word], word))
        return [UNKNOWN, *words[:None if most is None else positive("vocab_size", most)]]

    def encode(self, content: str | bytes) -> np.ndarray:
        """The numbers of a text, as int32."""
        if self.tokenizer == "bytes":
            raw = content.encode() if isinstance(content, str) else content
            return np.frombuffer(raw, np.uint8).astype(np.int32)
        if not isinstance(content, str):
            raise DataError(f"encode takes a text, not {type(content).__name__}")
        if self.tokenizer == "words":
            unknown = self._places.get(UNKNOWN)
            pieces: Sequence[str] = _WORD.findall(content)
            found = [self._places.get(word, unknown) for word in pieces]
        else:
            pieces, found = content, list(map(self._places.get, content))
        if None in found:
            at = found.index(None)
            raise DataError(f"{pieces[at]!r} (token {at}) is not in the vocabulary; leave it out, "
                            "or make one vocabulary of all texts")
        return np.array(found, np.int32)

    def decode(self, numbers: Any) -> str:
        """The text of numbers, also of those that `generate` gives one by one; words are joined by
        spaces."""
        given = np.asarray(numbers if hasattr(numbers, "__len__") else list(numbers)).reshape(-1)
        if given.size and not 0 <= given.min() <= given.max() < len(self.vocab):
            raise DataError(f"decode takes numbers from 0 to {len(self.vocab) - 1}")
        tokens = [self.vocab[int(k)] for k in given]
        if self.tokenizer == "bytes":
            return b"".join(tokens).decode("utf-8", "replace")
        return (" " if self.tokenizer == "words" else "").join(tokens)

    def read(self, rows: np.ndarray) -> Pair:
        at = rows[:, None] * self.stride + np.arange(self.length)
        return self.tokens[at], self.tokens[at + 1]

    def split(self, share: float) -> tuple[Batches, Batches]:
        """Passages for training, and the last share of the text for validation; no token is to be
        predicted in both."""
        count = int(len(self._rows) * fraction("split(...)", share))
        apart = -(-self.length // self.stride)  # where passages overlap
        kept = len(self._rows) - count - apart + 1
        if count < 1 or kept < 1:
            raise ConfigError(f"a share of {share} of {len(self._rows)} passages leaves one side "
                              "empty")
        return (self._part(self._rows[:kept], self.seed),
                self._part(self._rows[-count:], None))
