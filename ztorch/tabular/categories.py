"""Numbers and values as categories: bins, hashes, one-hot vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.config import number, positive, whole_numbers
from ztorch.errors import ConfigError, DataError
from ztorch.tabular.host_layer import HostLayer, as_category_counts, batches
from ztorch.tabular.text_hashes import fingerprint, siphash


class CategoryEncoding(HostLayer):
    """Numbers of categories as vectors, as in Keras; it runs on the host.

    Args:
        num_tokens: How many categories there are: inputs are below it.
        output_mode: "one_hot", "multi_hot" or "count". Default: `"multi_hot"`.
        sparse: Must be False. Default: `False`.

    Examples:
        >>> CategoryEncoding(4, output_mode="one_hot")([3, 0]).tolist()
        [[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]]
        >>> CategoryEncoding(3, output_mode="count")([[0, 2, 2]], count_weights=[[1, 0.5, 2]])
        array([[1. , 0. , 2.5]], dtype=float32)
    """

    def __init__(self, num_tokens: int, output_mode: str = "multi_hot", sparse: bool = False):
        self.num_tokens = positive("CategoryEncoding(num_tokens=...)", num_tokens)
        self.output_mode = self.need_mode(output_mode, ("one_hot", "multi_hot", "count"))
        self.need_no_sparse(sparse)
        self.sparse = sparse

    def call(self, inputs: np.ndarray, count_weights: Any = None) -> np.ndarray:
        if count_weights is not None and self.output_mode != "count":
            raise ConfigError("CategoryEncoding: count_weights belong to output_mode='count'")
        if inputs.dtype.kind not in "iub":
            raise DataError(f"CategoryEncoding takes integers, not {inputs.dtype}")
        if inputs.size and not 0 <= inputs.min() <= inputs.max() < self.num_tokens:
            raise DataError(f"CategoryEncoding takes numbers from 0 to {self.num_tokens - 1}, and "
                            f"these are from {inputs.min()} to {inputs.max()}")
        weights = None if count_weights is None else np.asarray(count_weights, np.float32)
        return as_category_counts(inputs.astype(np.int64), self.output_mode, self.num_tokens,
                                  weights)


class Discretization(HostLayer):
    """Numbers as the numbers of bins, as in Keras; it runs on the host.

    Args:
        bin_boundaries: Where bins end, in ascending order: [0, 1] makes (-inf, 0), [0, 1) and
            [1, inf). None: `adapt` finds them. Default: `None`.
        num_bins: How many bins `adapt` makes, with as many numbers in each. Default: `None`.
        epsilon: Is kept for Keras, where quantiles are approximate; here they are exact. Default:
            `0.01`.
        output_mode: "int", "one_hot", "multi_hot" or "count". Default: `"int"`.
        sparse: Must be False. Default: `False`.

    Examples:
        >>> Discretization([0.0, 1.0, 2.0])([[-1.5, 1.0], [0.2, 4.0]]).tolist()
        [[0, 2], [1, 3]]
        >>> layer = Discretization(num_bins=4)
        >>> layer.adapt([1.0, 2.0, 3.0, 4.0, 5.0])
        >>> layer.bin_boundaries
        [2.0, 3.0, 4.0]
    """

    def __init__(self, bin_boundaries: Sequence[float] | None = None, num_bins: int | None = None,
                 epsilon: float = 0.01, output_mode: str = "int", sparse: bool = False):
        if bin_boundaries is None and num_bins is None:
            raise ConfigError("Discretization needs bin_boundaries, or num_bins and adapt(data)")
        self.num_bins = None if num_bins is None else positive("Discretization(num_bins=...)",
                                                               num_bins)
        self.epsilon = number("Discretization(epsilon=...)", epsilon, least=0)
        self.output_mode = self.need_mode(output_mode, ("int", "one_hot", "multi_hot", "count"))
        self.need_no_sparse(sparse)
        self.sparse = sparse
        self.bin_boundaries: list[float] | None = None
        if bin_boundaries is not None:
            self.bin_boundaries = [number("Discretization(bin_boundaries=...)", b)
                                   for b in bin_boundaries]
            if sorted(self.bin_boundaries) != self.bin_boundaries or not self.bin_boundaries:
                raise ConfigError(f"Discretization(bin_boundaries={bin_boundaries!r}) must ascend")

    def adapt(self, data: Any) -> None:
        """Finds boundaries with as many numbers between any two.

        Args:
            data: An array, a list, or an iterable of batches.
        """
        if self.num_bins is None:
            raise ConfigError("Discretization was given its bin_boundaries; make it with num_bins "
                              "to adapt it")
        numbers = np.concatenate([np.asarray(b, np.float64).reshape(-1) for b in batches(data)])
        if not len(numbers) or not np.isfinite(numbers).all():
            raise DataError("adapt() of Discretization needs finite numbers")
        shares = np.arange(1, self.num_bins) / self.num_bins
        self.bin_boundaries = np.quantile(numbers, shares).tolist()

    def call(self, inputs: np.ndarray) -> np.ndarray:
        if self.bin_boundaries is None:
            raise ConfigError("Discretization has no bin_boundaries; call adapt(data) first")
        if inputs.dtype.kind not in "fiub":
            raise DataError(f"Discretization takes numbers, not {inputs.dtype}")
        bins = np.digitize(inputs, self.bin_boundaries).astype(np.int64)
        if self.output_mode == "int":
            return bins
        return as_category_counts(bins, self.output_mode, len(self.bin_boundaries) + 1)


class Hashing(HostLayer):
    """Values as numbers by their hash, with no vocabulary, as in Keras; it runs on the host. The
    numbers are those of Keras.

    Args:
        num_bins: Number of bins.
        mask_value: The value that gets the number 0, which no other value gets then. Default:
            `None`.
        salt: A number, or two: the key of another hash. Default: `None`.
        output_mode: "int", "one_hot", "multi_hot" or "count". Default: `"int"`.
        sparse: Must be False. Default: `False`.

    Examples:
        >>> layer = Hashing(num_bins=4, mask_value="")
        >>> numbers = layer(["a", "", "b", "a"])
        >>> int(numbers[1]), bool(numbers[0] == numbers[3]), bool(numbers.min() >= 0)
        (0, True, True)
    """

    reads_text = True

    def __init__(self, num_bins: int, mask_value: Any = None,
                 salt: int | Sequence[int] | None = None, output_mode: str = "int",
                 sparse: bool = False):
        self.num_bins = positive("Hashing(num_bins=...)", num_bins)
        if mask_value is not None and self.num_bins < 2:
            raise ConfigError("Hashing(mask_value=...) needs num_bins of at least 2: one is that "
                              "of the mask")
        pair = [salt] * 2 if isinstance(salt, int) else salt
        self.mask_value, self.salt = mask_value, salt
        key = None if pair is None else whole_numbers("Hashing(salt=...)", pair)
        if key is not None and len(key) != 2:
            raise ConfigError(f"Hashing(salt={salt!r}) must be a number, or two")
        self._key = None if key is None else (key[0], key[1])
        self.output_mode = self.need_mode(output_mode, ("int", "one_hot", "multi_hot", "count"))
        self.need_no_sparse(sparse)
        self.sparse = sparse

    def call(self, inputs: np.ndarray) -> np.ndarray:
        masked = self.mask_value is not None
        numbers = [0 if masked and value == self.mask_value else
                   self._hash(value) % (self.num_bins - masked) + masked
                   for value in inputs.reshape(-1).tolist()]
        bins = np.array(numbers, np.int64).reshape(inputs.shape)
        if self.output_mode == "int":
            return bins
        return as_category_counts(bins, self.output_mode, self.num_bins)

    def _hash(self, value: Any) -> int:
        data = str(int(value) if isinstance(value, float) else value).encode()
        return fingerprint(data) if self._key is None else siphash(data, self._key)
