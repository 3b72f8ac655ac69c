"""The base of data sets whose rows are read from files batch by batch, in every epoch."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.config import fraction, positive, whole, whole_seed
from ztorch.data.registry import Pair
from ztorch.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self


def shuffled(seed: int, epoch: int, rows: int) -> np.ndarray:
    """The order of rows in an epoch: a function of seed and epoch.

    >>> bool((np.sort(shuffled(7, 0, 50)) == np.arange(50)).all())
    True
    """
    key = np.array([seed, epoch], np.uint64)  # raw numbers are the same in every version of NumPy
    return np.argsort(np.random.Philox(key=key).random_raw(rows), kind="stable")


class Chained:
    """Batches that follow one another, with what may be done to them one after the other."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def take(self, count: int) -> SomeBatches:
        """The first batches.

        Args:
            count: How many; -1, or more than there are: all.
        """
        return SomeBatches(self, 0, len(self) if count == -1 else whole("take(count)", count))

    def skip(self, count: int) -> SomeBatches:
        """The batches after the first ones.

        Args:
            count: How many to skip.
        """
        return SomeBatches(self, whole("skip(count)", count), len(self))

    def map(self, function: Callable[..., Any]) -> Mapped:
        """Applies a function to each batch when it is read.

        Args:
            function: Takes the arrays of a batch, such as x and y, and returns a batch.
        """
        return Mapped(self, function)

    def prefetch(self, buffer_size: int = 0) -> Self:
        """Returns these batches unchanged, because `fit` always reads ahead.

        Args:
            buffer_size: Has no effect. Default: `0`.
        """
        return self

    def cache(self) -> Self:
        """Returns these batches unchanged; `arrays` of batches of files reads all rows into
        memory."""
        return self


class Batches(Chained):
    """Base of data sets that yield batches (x, y) from files; one iteration is an epoch.

    With a seed, each epoch has a different order, which depends on the seed and on `epoch`, the
    number of the next epoch; set `epoch` to continue an earlier run. Files must not change while
    they are in use.

    Args:
        rows: Number of rows.
        batch_size: The rows of a batch.
        seed: Shuffles the rows; None keeps their order.
    """

    def __init__(self, rows: int, batch_size: int, seed: int | None):
        self.batch_size = positive(f"{type(self).__name__}: batch_size", batch_size)
        self.seed = None if seed is None else whole_seed(seed)
        self.epoch = 0
        self._rows = np.arange(rows)  # numbers of the rows in these batches

    @property
    def rows(self) -> int:
        """The number of rows in all batches."""
        return len(self._rows)

    def __len__(self) -> int:
        return -(-len(self._rows) // self.batch_size)

    def __iter__(self) -> Iterator[Pair]:
        order = self._rows
        if self.seed is not None:
            order = order[shuffled(self.seed, whole("epoch", self.epoch), len(order))]
        self.epoch += 1
        for k in range(0, len(order), self.batch_size):
            yield self.read(order[k:k + self.batch_size])

    def read(self, rows: np.ndarray) -> Pair:
        """Reads x and y of some rows, by their numbers."""
        raise NotImplementedError

    def arrays(self) -> Any:
        """Reads all rows into memory.

        Returns:
            x and y, in the order of the files; only x if there are no labels.
        """
        parts = [self.read(self._rows[k:k + self.batch_size])
                 for k in range(0, len(self._rows), self.batch_size)]
        if not isinstance(parts[0], tuple):
            return np.concatenate(parts)
        x, y = zip(*parts, strict=True)
        return np.concatenate(x), np.concatenate(y)

    def split(self, share: float) -> tuple[Batches, Batches]:
        """Splits the rows into training and validation, always in the same way.

        Args:
            share: The fraction of rows for validation, between 0 and 1.

        Returns:
            Training batches and validation batches.

        Raises:
            ConfigError: One side would be empty.

        Examples:
            ```python
            train, validation = zt.data.image_folder("photos", size=(64, 64), seed=0).split(0.2)
            program.fit(train, validation_data=validation)
            ```
        """
        count = int(len(self._rows) * fraction("split(...)", share))
        if not 0 < count < len(self._rows):
            raise ConfigError(f"a fraction of {share} of {len(self._rows)} rows leaves one side "
                              "empty; use more rows, or another fraction, such as 0.5")
        order = shuffled(0, 0, len(self._rows))
        return (self._part(np.sort(self._rows[order[count:]]), self.seed),
                self._part(np.sort(self._rows[order[:count]]), None))

    def _part(self, rows: np.ndarray, seed: int | None) -> Batches:
        part = copy.copy(self)
        part._rows, part.seed, part.epoch = rows, seed, 0
        return part


class SomeBatches(Chained):
    """A range of batches.

    Args:
        batches: The batches.
        start: The number of the first batch.
        stop: The number after the last batch.
    """

    def __init__(self, batches: Any, start: int, stop: int):
        self._batches = batches
        self._start, self._stop = start, min(stop, len(batches))

    def __len__(self) -> int:
        return max(self._stop - self._start, 0)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._batches), self._start, max(self._start, self._stop))


class Mapped(Chained):
    """Batches to which a function is applied when they are read.

    Args:
        batches: The batches.
        function: Takes the arrays of a batch, such as x and y, and returns a batch.

    Examples:
        >>> from ztorch.data.sequences import timeseries_dataset_from_array
        >>> pairs = timeseries_dataset_from_array(np.arange(6.0), np.arange(6.0), 2, batch_size=2)
        >>> [float(y.max()) for x, y in pairs.map(lambda x, y: (x, -y)).take(2)]
        [-0.0, -2.0]
    """

    def __init__(self, batches: Any, function: Callable[..., Any]):
        self._batches, self._function = batches, function

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            yield self._function(*batch) if isinstance(batch, tuple) else self._function(batch)
