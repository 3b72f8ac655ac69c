"""`keras.utils.PyDataset`: the base of data sets that are indexed by batch."""

from __future__ import annotations

from typing import Any

from ztorch.config import positive


class PyDataset:
    """Base of data sets whose items are batches, like `keras.utils.PyDataset`.

    A subclass implements `__len__`, the number of batches, and `__getitem__`, which returns
    (x, y) or (x, y, sample_weight) of a batch. It may implement `on_epoch_end`. `fit`, `evaluate`
    and `predict` take any object with these methods; this class is for code written for Keras.

    Args:
        workers: Has no effect; in Keras, the number of threads that read batches. Default: `1`.
        use_multiprocessing: Has no effect. Default: `False`.
        max_queue_size: Has no effect; in Keras, how many batches are read ahead. Default: `10`.

    Examples:
        >>> import numpy as np
        >>> class Squares(PyDataset):
        ...     def __len__(self):
        ...         return 3
        ...     def __getitem__(self, index):
        ...         x = np.arange(4.0)[:, None] + 4 * index
        ...         return x, x ** 2
        >>> Squares(workers=2).num_batches
        3
    """

    def __init__(self, workers: int = 1, use_multiprocessing: bool = False,
                 max_queue_size: int = 10):
        self.workers = positive("PyDataset(workers=...)", workers)
        self.use_multiprocessing = use_multiprocessing
        self.max_queue_size = positive("PyDataset(max_queue_size=...)", max_queue_size)

    @property
    def num_batches(self) -> int:
        """The number of batches."""
        return len(self)

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must implement __len__, the number of "
                                  "batches")

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must implement __getitem__, which "
                                  "returns a batch by its number")

    def on_epoch_begin(self) -> None:
        """Called before each epoch."""

    def on_epoch_end(self) -> None:
        """Called after each epoch."""
