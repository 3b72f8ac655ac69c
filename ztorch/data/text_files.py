"""Text files as sequences of tokens, for models that predict the next token."""

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
from ztorch.data.batches import Batches
from ztorch.data.numpy_files import need_file
from ztorch.data.registry import Pair
from ztorch.errors import ConfigError, DataError

TOKENIZERS = ("chars", "bytes", "words")
UNKNOWN = "<unknown>"  # the token of words that the vocabulary lacks
_WORD = re.compile(r"\w+|[^\w\s]")


@checked
def text(path: str | os.PathLike[str], length: int = 64, tokenizer: str = "chars", *,
         stride: int | None = None, vocab: Sequence[Any] | None = None,
         vocab_size: int | None = None, batch_size: int = 32, seed: int | None = None) -> Text:
    """Reads a text file as passages of tokens, for models that predict the next token.

    Args:
        path: The file, in UTF-8.
        length: The number of tokens in a passage. Default: `64`.
        tokenizer: What a token is: "chars", a character; "bytes", a byte; "words", a word or a
            punctuation mark, without spaces. Default: `"chars"`.
        stride: The distance between the starts of passages, in tokens; None: `length`. Default:
            `None`.
        vocab: The vocabulary of another Text, so that tokens have the same numbers; None: the
            tokens of this file. Default: `None`.
        vocab_size: For "words": how many of the most frequent words are in the vocabulary; None:
            all. Default: `None`.
        batch_size: The passages of a batch. Default: `32`.
        seed: Shuffles the passages in each epoch; None keeps their order. Default: `None`.

    Returns:
        A Text: iterates over (x, y), both int32 of shape (batch_size, length). y has the token
        that follows each token of x.

    Raises:
        DataError: The file is not text in UTF-8, or shorter than a passage.
        ConfigError: An argument is invalid.

    Examples:
        ```python
        verse = zt.data.text("shakespeare.txt", length=64, seed=0)
        train, validation = verse.split(0.1)
        program.fit(train, validation_data=validation)  # Embedding(len(verse.vocab), ...) first
        ```
    """
    return Text(path, length, tokenizer, stride, vocab, vocab_size, batch_size, seed)


class Text(Batches):
    """The passages of a text file, as `text` returns them.

    `vocab` is the list of tokens, in the order of their numbers; `tokens` is the text as numbers.
    """

    def __init__(self, path: str | os.PathLike[str], length: int, tokenizer: str,
                 stride: int | None, vocab: Sequence[Any] | None, vocab_size: int | None,
                 batch_size: int, seed: int | None):
        self.path = os.fspath(path)
        self.length = positive("text(length=...)", length)
        self.stride = self.length if stride is None else positive("text(stride=...)", stride)
        if tokenizer not in TOKENIZERS:
            raise ConfigError(f"text(tokenizer={tokenizer!r}) must be 'chars', 'bytes' or 'words'")
        self.tokenizer = tokenizer
        if vocab_size is not None and (tokenizer != "words" or vocab is not None):
            raise ConfigError("text(vocab_size=...) limits a new vocabulary of words: use it with "
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
                raise DataError(f"{self.path} is not text in UTF-8 (at byte {error.start}); save "
                                "it as UTF-8, or use tokenizer='bytes'") from None
        self.vocab = tuple(self._find_tokens(content, vocab_size) if vocab is None else vocab)
        self._numbers = {token: k for k, token in enumerate(self.vocab)}
        if len(self._numbers) != len(self.vocab):
            raise ConfigError("text(vocab=...) has a token twice")
        self.tokens = self.encode(content)
        count = (len(self.tokens) - self.length - 1) // self.stride + 1
        if len(self.tokens) <= self.length:
            raise DataError(f"{self.path} has {len(self.tokens)} tokens; a passage of {length} and "
                            f"the token after it need at least {length + 1}")
        super().__init__(count, batch_size, seed)

    def _find_tokens(self, content: Any, vocab_size: int | None) -> list[Any]:
        """The vocabulary of a text: sorted characters, or words by descending frequency."""
        if self.tokenizer == "bytes":
            return [bytes([k]) for k in range(256)]
        if self.tokenizer == "chars":
            return sorted(set(content))
        counts = Counter(_WORD.findall(content))
        words = sorted(counts, key=lambda word: (-counts[word], word))
        size = None if vocab_size is None else positive("vocab_size", vocab_size)
        return [UNKNOWN, *words[:size]]

    def encode(self, content: str | bytes) -> np.ndarray:
        """The numbers of a text.

        Args:
            content: A string; bytes too, for the tokenizer "bytes".

        Returns:
            An int32 array of shape (tokens,).

        Raises:
            DataError: A token is not in the vocabulary.
        """
        if self.tokenizer == "bytes":
            raw = content.encode() if isinstance(content, str) else content
            return np.frombuffer(raw, np.uint8).astype(np.int32)
        if not isinstance(content, str):
            raise DataError(f"encode takes a string, not {type(content).__name__}")
        if self.tokenizer == "words":
            unknown = self._numbers.get(UNKNOWN)
            pieces: Sequence[str] = _WORD.findall(content)
            numbers = [self._numbers.get(word, unknown) for word in pieces]
        else:
            pieces, numbers = content, list(map(self._numbers.get, content))
        if None in numbers:
            at = numbers.index(None)
            raise DataError(f"{pieces[at]!r} (token {at}) is not in the vocabulary; omit it, "
                            "or make a vocabulary of all files")
        return np.array(numbers, np.int32)

    def decode(self, numbers: Any) -> str:
        """The text of numbers.

        Args:
            numbers: An array, or the result of `program.generate`.

        Returns:
            The text; words are joined by spaces.

        Raises:
            DataError: A number is not in the vocabulary.
        """
        array = np.asarray(numbers if hasattr(numbers, "__len__") else list(numbers)).reshape(-1)
        if array.size and not 0 <= array.min() <= array.max() < len(self.vocab):
            raise DataError(f"decode takes numbers from 0 to {len(self.vocab) - 1}")
        tokens = [self.vocab[int(k)] for k in array]
        if self.tokenizer == "bytes":
            return b"".join(tokens).decode("utf-8", "replace")
        return (" " if self.tokenizer == "words" else "").join(tokens)

    def read(self, rows: np.ndarray) -> Pair:
        at = rows[:, None] * self.stride + np.arange(self.length)
        return self.tokens[at], self.tokens[at + 1]

    def split(self, share: float) -> tuple[Batches, Batches]:
        """Splits the passages into training and validation, which predict different tokens.

        Args:
            share: The fraction for validation, at the end of the text, between 0 and 1.

        Returns:
            Training passages and validation passages.
        """
        count = int(len(self._rows) * fraction("split(...)", share))
        overlap = -(-self.length // self.stride)  # passages that predict tokens of the next one too
        train_count = len(self._rows) - count - overlap + 1
        if count < 1 or train_count < 1:
            raise ConfigError(f"a fraction of {share} of {len(self._rows)} passages leaves one "
                              "side empty")
        return (self._part(self._rows[:train_count], self.seed),
                self._part(self._rows[-count:], None))
