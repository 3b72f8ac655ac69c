"""Texts as words, and words as places in a list."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

# The punctuation that Keras' TextVectorization removes from a text.
PUNCTUATION = re.compile(r"[!\"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']")


def plain(text: str) -> str:
    """A text in lower case without punctuation.

    >>> plain("Braund, Mr. Owen")
    'braund mr owen'
    """
    return PUNCTUATION.sub("", text.lower())


def places(words: Sequence[str], cells: Iterable[str]) -> np.ndarray:
    """The place of each cell in a list of words; -1 where it is none of them.

    >>> places(["a", "b"], ["b", "x", "a"])
    array([ 1, -1,  0])
    """
    index = {word: k for k, word in enumerate(words)}
    return np.array([index.get(cell, -1) for cell in cells], np.int64)


def most_frequent(words: Iterable[str], most: int, least: int = 1) -> tuple[str, ...]:
    """The most frequent words that occur `least` times, the most frequent first.

    >>> most_frequent("to be or not to be".split(), 3)
    ('be', 'to', 'not')
    """
    counts = Counter(words)
    ordered = sorted((w for w, n in counts.items() if n >= least), key=lambda w: (-counts[w], w))
    return tuple(ordered[:most])


def bag_of_words(words: Sequence[str], texts: Iterable[Sequence[str]], rows: int) -> np.ndarray:
    """Whether each text has each word, 0 or 1.

    >>> bag_of_words(["a", "b"], [["b", "b"], ["x"]], 2).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    index = {word: k for k, word in enumerate(words)}
    bag = np.zeros((rows, len(words)), np.float32)
    for row, tokens in enumerate(texts):
        bag[row, [index[token] for token in tokens if token in index]] = 1
    return bag
