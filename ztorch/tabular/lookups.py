"""Values as their places in a vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from ztorch.config import positive, whole
from ztorch.errors import ConfigError, DataError
from ztorch.tabular.host_layer import MODES, HostLayer, as_category_counts, as_texts, batches
from ztorch.tabular.text_hashes import fingerprint


class _Lookup(HostLayer):
    """The base of StringLookup and IntegerLookup."""

    max_tokens: int | None
    num_oov_indices: int
    mask_token: Any
    oov_token: Any
    vocabulary: list[Any] | None
    idf_weights: list[float] | None
    invert: bool
    output_mode: str
    pad_to_max_tokens: bool

    def _set_up(self, max_tokens: int | None, num_oov_indices: int, vocabulary: Any,
                idf_weights: Any, invert: bool, output_mode: str, pad_to_max_tokens: bool,
                sparse: bool) -> None:
        name = type(self).__name__
        self.need_no_sparse(sparse)
        self.sparse = sparse
        self.max_tokens = None if max_tokens is None else positive(f"{name}(max_tokens=...)",
                                                                   max_tokens)
        self.num_oov_indices = whole(f"{name}(num_oov_indices=...)", num_oov_indices)
        self.output_mode = self.need_mode(output_mode, MODES)
        if invert and output_mode != "int":
            raise ConfigError(f"{name}(invert=True) turns numbers into values, so output_mode must "
                              f"be 'int', not {output_mode!r}")
        if pad_to_max_tokens and max_tokens is None:
            raise ConfigError(f"{name}(pad_to_max_tokens=True) needs max_tokens")
        self.invert, self.pad_to_max_tokens = invert, pad_to_max_tokens
        self.vocabulary, self.idf_weights = None, None
        if vocabulary is not None:
            self.set_vocabulary(vocabulary, idf_weights)

    def _token(self, value: Any) -> Hashable:
        raise NotImplementedError

    def _values(self, inputs: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    @property
    def _special(self) -> list[Any]:
        """The tokens before the vocabulary: that of the mask, and those for unknown values."""
        masked = self.mask_token is not None and self.output_mode == "int"
        return [self.mask_token] * masked + [self.oov_token] * self.num_oov_indices

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Sets the vocabulary.

        Args:
            vocabulary: The values in order, or the path of a file with a value in each line. The
                tokens for masks and unknown values may precede them.
            idf_weights: For `output_mode="tf_idf"`: the weight of each. Default: `None`.
        """
        if isinstance(vocabulary, str):
            from ztorch.data.numpy_files import need_file

            need_file(vocabulary)
            with open(vocabulary, encoding="utf-8-sig") as file:
                vocabulary = [line.removesuffix("\n") for line in file]
        tokens = [self._token(v) for v in np.asarray(vocabulary, object).reshape(-1).tolist()]
        special = self._special
        name = type(self).__name__
        with_special = bool(special) and tokens[:len(special)] == special
        tokens = tokens[len(special):] if with_special else tokens
        if not tokens:
            raise ConfigError(f"{name}: the vocabulary is empty")
        if repeated := [t for t, n in Counter(tokens).items() if n > 1]:
            raise ConfigError(f"{name}: the vocabulary has {repeated[0]!r} twice")
        if self.max_tokens is not None and len(special) + len(tokens) > self.max_tokens:
            raise ConfigError(f"{name}: the vocabulary has {len(special) + len(tokens)} tokens, "
                              f"more than max_tokens={self.max_tokens}")
        if (idf_weights is not None) != (self.output_mode == "tf_idf"):
            raise ConfigError(f"{name}: idf_weights belong to output_mode='tf_idf', and it needs "
                              "them with a vocabulary")
        if idf_weights is not None:
            weights = [float(w) for w in np.asarray(idf_weights).reshape(-1)]
            weights = weights[len(special):] if with_special else weights
            if len(weights) != len(tokens):
                raise ConfigError(f"{name}: {len(weights)} idf_weights for {len(tokens)} tokens")
            self.idf_weights = weights
        self.vocabulary = tokens
        self._places: dict[Hashable, int] = {t: k + len(special) for k, t in enumerate(tokens)}

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """The vocabulary.

        Args:
            include_special_tokens: Whether to start with the tokens for masks and unknown values,
                so that the index of each value is its number. Default: `True`.
        """
        return [*self._special * include_special_tokens, *(self.vocabulary or [])]

    def vocabulary_size(self) -> int:
        """Size of the vocabulary, including masks and unknown values."""
        return len(self._special) + len(self.vocabulary or [])

    def adapt(self, data: Any) -> None:
        """Makes the vocabulary of the values in data, the most frequent first; of two that are as
        frequent, the later in the alphabet.

        Args:
            data: An array, a list, or an iterable of batches.
        """
        counts: Counter[Any] = Counter()
        documents: Counter[Any] = Counter()
        examples = 0
        for batch in batches(data):
            values = self._values(batch)
            rows = values.reshape(len(values), -1) if values.ndim > 1 else values.reshape(-1, 1)
            examples += len(rows)
            for row in rows.tolist():
                counts.update(row)
                documents.update(set(row))
        for token in (self.mask_token, self.oov_token):
            counts.pop(token, None)
        if not counts:
            raise DataError(f"adapt() of {type(self).__name__} got no values")
        self.learn(counts, documents, examples)

    def learn(self, counts: Counter[Any], documents: Counter[Any], examples: int) -> None:
        """Takes the vocabulary from how often values occur, and in how many examples."""
        most = None if self.max_tokens is None else max(self.max_tokens - len(self._special), 1)
        tokens = sorted(sorted(counts, reverse=True), key=lambda t: -counts[t])[:most]
        idf = [float(np.log1p(examples / (1 + documents[t]))) for t in tokens]
        self.set_vocabulary(tokens, idf if self.output_mode == "tf_idf" else None)

    def numbers(self, values: Iterable[Any]) -> np.ndarray:
        """The number of each value."""
        if self.vocabulary is None:
            raise ConfigError(f"{type(self).__name__} has no vocabulary; call adapt(data) first, "
                              "or give vocabulary=")
        masked = self.mask_token is not None and self.output_mode == "int"
        first = int(masked)
        pairs = ((value, self._places.get(value)) for value in values)
        return np.array([self._unknown(value, first, masked) if number is None else number
                         for value, number in pairs], np.int64)

    def _unknown(self, value: Any, first: int, masked: bool) -> int:
        if self.mask_token is not None and value == self.mask_token:
            return 0 if masked else -1
        if not self.num_oov_indices:
            raise DataError(f"{type(self).__name__}: {value!r} is not in the vocabulary; with "
                            "num_oov_indices=1 such values get a separate number")
        number = value if isinstance(value, int) else fingerprint(str(value).encode())
        return first + number % self.num_oov_indices  # as in Keras

    def encoded(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers in the output mode."""
        if self.output_mode == "int":
            return numbers
        depth = self.max_tokens if self.pad_to_max_tokens else self.vocabulary_size()
        assert depth is not None
        out = as_category_counts(numbers, "count" if self.output_mode == "tf_idf" else
                                 self.output_mode, depth)
        if self.output_mode == "tf_idf":
            idf = self.idf_weights or []
            weights = np.zeros(depth, np.float32)
            weights[:len(self._special)] = np.mean(idf)
            weights[len(self._special):self.vocabulary_size()] = idf
            out *= weights
        return out

    def any_text(self) -> str:
        if self.invert:
            raise ConfigError(f"{type(self).__name__}(invert=True) takes numbers, not texts")
        if self.vocabulary is None and self.output_mode != "int":
            raise ConfigError(f"{type(self).__name__} has no vocabulary, which says how many "
                              "numbers a row has; call adapt(data) first, or give vocabulary=")
        return "" if self.num_oov_indices else str((self.vocabulary or [""])[0])

    def call(self, inputs: np.ndarray) -> np.ndarray:
        if self.invert:
            tokens = np.array(self.get_vocabulary(), object if self.reads_text else np.int64)
            numbers = inputs.astype(np.int64)
            in_vocabulary = (numbers >= 0) & (numbers < len(tokens))
            values = tokens[np.where(in_vocabulary, numbers, 0)]
            return np.where(in_vocabulary, values, self.oov_token)
        values = self._values(inputs)
        return self.encoded(self.numbers(values.reshape(-1).tolist()).reshape(values.shape))


class StringLookup(_Lookup):
    """Texts as their places in a vocabulary, as in Keras; it runs on the host.

    Args:
        max_tokens: The most numbers, with those for masks and unknown texts; None: no limit.
            Default: `None`.
        num_oov_indices: How many numbers stand for unknown texts; with 0 they are an error.
            Default: `1`.
        mask_token: The text that gets the number 0; None: there is none. Default: `None`.
        oov_token: The text for unknown texts in the vocabulary. Default: `"[UNK]"`.
        vocabulary: The texts in order, or the path of a file with one in each line; None: `adapt`
            finds them. Default: `None`.
        idf_weights: For `output_mode="tf_idf"`: the weight of each text. Default: `None`.
        invert: Whether to turn numbers into texts. Default: `False`.
        output_mode: "int", "one_hot", "multi_hot", "count" or "tf_idf". Default: `"int"`.
        pad_to_max_tokens: Whether outputs other than "int" have `max_tokens` columns. Default:
            `False`.
        sparse: Must be False. Default: `False`.
        encoding: Must be "utf-8". Default: `"utf-8"`.

    Examples:
        >>> layer = StringLookup()
        >>> layer.adapt(["b", "a", "b"])
        >>> layer.get_vocabulary(), layer(["a", "b", "c"])
        (['[UNK]', 'b', 'a'], array([2, 1, 0]))
        >>> StringLookup(vocabulary=["a", "b"], invert=True)([2, 1, 0]).tolist()
        ['b', 'a', '[UNK]']
    """

    reads_text = True

    def __init__(self, max_tokens: int | None = None, num_oov_indices: int = 1,
                 mask_token: str | None = None, oov_token: str = "[UNK]", vocabulary: Any = None,
                 idf_weights: Any = None, invert: bool = False, output_mode: str = "int",
                 pad_to_max_tokens: bool = False, sparse: bool = False, encoding: str = "utf-8"):
        if encoding != "utf-8":
            raise ConfigError(f"StringLookup(encoding={encoding!r}) must be 'utf-8'")
        self.encoding, self.mask_token, self.oov_token = encoding, mask_token, oov_token
        self._set_up(max_tokens, num_oov_indices, vocabulary, idf_weights, invert, output_mode,
                     pad_to_max_tokens, sparse)

    def _token(self, value: Any) -> Hashable:
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def _values(self, inputs: np.ndarray) -> np.ndarray:
        return as_texts(inputs)


class IntegerLookup(_Lookup):
    """Integers as their places in a vocabulary, as in Keras; it runs on the host.

    Args:
        max_tokens: The most numbers, with those for masks and unknown integers; None: no limit.
            Default: `None`.
        num_oov_indices: How many numbers stand for unknown integers; with 0 they are an error.
            Default: `1`.
        mask_token: The integer that gets the number 0; None: there is none. Default: `None`.
        oov_token: The integer for unknown integers in the vocabulary. Default: `-1`.
        vocabulary: The integers in order, or the path of a file with one in each line; None:
            `adapt` finds them. Default: `None`.
        vocabulary_dtype: Must be "int64". Default: `"int64"`.
        idf_weights: For `output_mode="tf_idf"`: the weight of each integer. Default: `None`.
        invert: Whether to turn places into integers. Default: `False`.
        output_mode: "int", "one_hot", "multi_hot", "count" or "tf_idf". Default: `"int"`.
        sparse: Must be False. Default: `False`.
        pad_to_max_tokens: Whether outputs other than "int" have `max_tokens` columns. Default:
            `False`.

    Examples:
        >>> IntegerLookup(vocabulary=[12, 36, 1138])([[12, 36], [36, 7]]).tolist()
        [[1, 2], [2, 0]]
        >>> IntegerLookup(vocabulary=[12, 36, 1138], invert=True)([1, 3, 0])
        array([  12, 1138,   -1])
    """

    def __init__(self, max_tokens: int | None = None, num_oov_indices: int = 1,
                 mask_token: int | None = None, oov_token: int = -1,
                 vocabulary: Sequence[int] | str | None = None, vocabulary_dtype: str = "int64",
                 idf_weights: Any = None, invert: bool = False, output_mode: str = "int",
                 sparse: bool = False, pad_to_max_tokens: bool = False):
        if vocabulary_dtype != "int64":
            raise ConfigError(f"IntegerLookup(vocabulary_dtype={vocabulary_dtype!r}) must be "
                              "'int64'")
        self.vocabulary_dtype = vocabulary_dtype
        self.mask_token, self.oov_token = mask_token, oov_token
        self._set_up(max_tokens, num_oov_indices, vocabulary, idf_weights, invert, output_mode,
                     pad_to_max_tokens, sparse)

    def _token(self, value: Any) -> Hashable:
        try:
            return int(value)
        except (TypeError, ValueError):
            raise ConfigError(
                f"IntegerLookup: {value!r} in the vocabulary is not an integer") from None

    def _values(self, inputs: np.ndarray) -> np.ndarray:
        if inputs.dtype.kind not in "iub":
            raise DataError(f"IntegerLookup takes integers, not {inputs.dtype}")
        return inputs.astype(np.int64)
