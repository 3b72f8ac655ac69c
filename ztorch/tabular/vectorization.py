"""Texts as numbers of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.config import positive
from ztorch.errors import ConfigError, DataError, Unsupported
from ztorch.tabular.host_layer import HostLayer, as_texts, batches, need_memory
from ztorch.tabular.lookups import StringLookup
from ztorch.tabular.words import PUNCTUATION, plain

_STANDARDS: dict[str | None, Callable[[str], str]] = {
    "lower_and_strip_punctuation": plain, "lower": str.lower,
    "strip_punctuation": lambda text: PUNCTUATION.sub("", text), None: str}
_SPLITS: dict[str | None, Callable[[str], list[str]]] = {
    "whitespace": str.split, "character": list, None: lambda text: [text]}


class TextVectorization(HostLayer):
    """Texts as the numbers of their words, or as bags of words, as in Keras; it runs on the host.

    Args:
        max_tokens: The most words, with those for padding and unknown ones; None: no limit.
            Default: `None`.
        standardize: "lower_and_strip_punctuation", "lower", "strip_punctuation" or None. Default:
            `"lower_and_strip_punctuation"`.
        split: "whitespace", "character" or None. Default: `"whitespace"`.
        ngrams: Also takes so many words in a row as one, or the numbers in a tuple alone. Default:
            `None`.
        output_mode: "int" (numbers in order; 0 pads, 1 is unknown), "multi_hot", "count" or
            "tf_idf". Default: `"int"`.
        output_sequence_length: Of "int": how many numbers each text gets; None: as many as the
            longest. Default: `None`.
        pad_to_max_tokens: Whether bags of words have `max_tokens` columns. Default: `False`.
        vocabulary: The words in order, or the path of a file with one in each line; None: `adapt`
            finds them. Default: `None`.
        idf_weights: For "tf_idf": the weight of each word. Default: `None`.
        sparse: Must be False. Default: `False`.
        ragged: Must be False. Default: `False`.
        encoding: Must be "utf-8". Default: `"utf-8"`.

    Examples:
        >>> layer = TextVectorization(output_sequence_length=4)
        >>> layer.adapt(["The cat sat.", "The dog sat!"])
        >>> layer.get_vocabulary()
        ['', '[UNK]', 'the', 'sat', 'dog', 'cat']
        >>> layer(["the dog and the cat"]).tolist()
        [[2, 4, 1, 2]]
    """

    reads_text = begins_models = True

    def __init__(self, max_tokens: int | None = None,
                 standardize: str | None = "lower_and_strip_punctuation",
                 split: str | None = "whitespace", ngrams: int | tuple[int, ...] | None = None,
                 output_mode: str = "int", output_sequence_length: int | None = None,
                 pad_to_max_tokens: bool = False, vocabulary: Any = None, idf_weights: Any = None,
                 sparse: bool = False, ragged: bool = False, encoding: str = "utf-8"):
        for argument, value, names in (("standardize", standardize, _STANDARDS),
                                       ("split", split, _SPLITS)):
            if callable(value) or value not in names:
                raise ConfigError(f"TextVectorization({argument}={value!r}) must be one of "
                                  f"{', '.join(map(repr, names))}; a function cannot be saved: "
                                  "call it on the texts before")
        if ragged:
            raise Unsupported("TextVectorization(ragged=True): there are no ragged arrays; leave "
                              "it out, and 0 pads short texts")
        if output_sequence_length is not None and output_mode != "int":
            raise ConfigError("TextVectorization(output_sequence_length=...) belongs to "
                              "output_mode='int'")
        self.need_mode(output_mode, ("int", "multi_hot", "count", "tf_idf"))
        self.standardize, self.split, self.ragged = standardize, split, ragged
        self.ngrams = tuple(ngrams) if isinstance(ngrams, list) else ngrams
        self.output_sequence_length = (None if output_sequence_length is None else positive(
            "TextVectorization(output_sequence_length=...)", output_sequence_length))
        self._lookup = StringLookup(
            max_tokens, mask_token="" if output_mode == "int" else None, vocabulary=vocabulary,
            idf_weights=idf_weights, output_mode=output_mode, pad_to_max_tokens=pad_to_max_tokens,
            sparse=sparse, encoding=encoding)

    def __getattr__(self, name: str) -> Any:
        if name in ("max_tokens", "output_mode", "pad_to_max_tokens", "vocabulary", "idf_weights",
                    "sparse", "encoding"):
            return getattr(self._lookup, name)
        raise AttributeError(f"TextVectorization has no attribute {name!r}")

    def get_config(self) -> dict[str, Any]:
        lookup = self._lookup.get_config()
        ngrams = list(self.ngrams) if isinstance(self.ngrams, tuple) else self.ngrams
        own = {"standardize": self.standardize, "split": self.split, "ngrams": ngrams,
               "output_sequence_length": self.output_sequence_length, "ragged": self.ragged}
        return own | {name: lookup[name] for name in (
            "max_tokens", "output_mode", "pad_to_max_tokens", "vocabulary", "idf_weights", "sparse",
            "encoding")}

    def tokens(self, text: str) -> list[str]:
        """The words of a text, and where `ngrams` says so, words in a row joined by blanks.

        >>> TextVectorization(ngrams=2).tokens("a big dog")
        ['a', 'big', 'dog', 'a big', 'big dog']
        """
        words = _SPLITS[self.split](_STANDARDS[self.standardize](text))
        if self.ngrams is None:
            return words
        counts = (range(1, self.ngrams + 1) if isinstance(self.ngrams, int) else self.ngrams)
        return [" ".join(words[k:k + n]) for n in counts for k in range(len(words) - n + 1)]

    def adapt(self, data: Any) -> None:
        """Makes the vocabulary of the words in texts, the most frequent first.

        Args:
            data: An array or list of texts, or an iterable of batches.
        """
        counts: Counter[str] = Counter()
        documents: Counter[str] = Counter()
        texts = [text for batch in batches(data) for text in as_texts(batch).reshape(-1)]
        for text in texts:
            words = self.tokens(text)
            counts.update(words)
            documents.update(set(words))
        for token in ("", "[UNK]"):
            counts.pop(token, None)
        if not counts:
            raise DataError("adapt() of TextVectorization got no words")
        self._lookup.learn(counts, documents, len(texts))

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Sets the vocabulary.

        Args:
            vocabulary: The words in order, or the path of a file with one in each line.
            idf_weights: For "tf_idf": the weight of each. Default: `None`.
        """
        self._lookup.set_vocabulary(vocabulary, idf_weights)

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[str]:
        """The vocabulary.

        Args:
            include_special_tokens: Whether to start with the tokens for padding and unknown words.
                Default: `True`.
        """
        return self._lookup.get_vocabulary(include_special_tokens)

    def vocabulary_size(self) -> int:
        """Size of the vocabulary, including padding and unknown words."""
        return self._lookup.vocabulary_size()

    def any_text(self) -> str:
        return self._lookup.any_text()

    def call(self, inputs: np.ndarray) -> np.ndarray:
        texts = as_texts(inputs)
        if texts.ndim > 1 and texts.shape[-1] == 1:  # a column of texts
            texts = texts[..., 0]
        rows = [self._lookup.numbers(self.tokens(text)) for text in texts.reshape(-1)]
        length = self.output_sequence_length or max(map(len, rows), default=0)
        filler = 0 if self.output_mode == "int" else -1
        if self.output_mode != "int":
            length = max(map(len, rows), default=0)
        need_memory(len(rows), length)
        numbers = np.full((len(rows), length), filler, np.int64)
        for row, words in enumerate(rows):
            numbers[row, :len(words)] = words[:length]
        return self._lookup.encoded(numbers.reshape(*texts.shape, length))
