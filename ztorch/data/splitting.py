"""`split_dataset` of `keras.utils`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import fraction, whole, whole_seed
from ztorch.data.batches import Batches, shuffled
from ztorch.errors import ConfigError, DataError


@checked
def split_dataset(dataset: Any, left_size: float | None = None, right_size: float | None = None,
                  shuffle: bool = False, seed: int | None = None) -> tuple[Any, Any]:
    """Splits data into two parts.

    Args:
        dataset: An array, a tuple or list of arrays with the same number of rows, or batches of
            `zt.data`, which are split by their own `split`.
        left_size: The rows of the first part: a fraction from 0 to 1, or a number. Default: `None`.
        right_size: The rows of the second part; None: all others. Default: `None`.
        shuffle: Whether to shuffle the rows first. Default: `False`.
        seed: The seed for shuffling; None: 0. Default: `None`.

    Returns:
        Two parts of the type of `dataset`.

    Raises:
        ConfigError: Neither size is set, or a part would be empty.
        DataError: Arrays differ in their number of rows.

    Examples:
        >>> left, right = split_dataset((np.arange(5), np.arange(5) * 2), left_size=0.6)
        >>> left[1].tolist(), right[0].tolist()
        ([0, 2, 4], [3, 4])
    """
    arrays = dataset if isinstance(dataset, (tuple, list)) else (dataset,)
    is_batches = isinstance(dataset, Batches)
    columns = [] if is_batches else [np.asarray(a) for a in arrays]
    if any(c.ndim == 0 for c in columns):
        raise DataError("split_dataset takes an array, or a tuple or list of arrays; make an array "
                        "of a list of numbers: numpy.array(dataset)")
    if len({len(c) for c in columns}) > 1:
        raise DataError("split_dataset takes arrays with the same number of rows, not "
                        f"{', '.join(str(len(c)) for c in columns)}")
    rows = dataset.rows if isinstance(dataset, Batches) else len(columns[0])
    left_count = _count("left_size", left_size, rows)
    right_count = _count("right_size", right_size, rows)
    if left_count is None and right_count is None:
        raise ConfigError("split_dataset needs left_size or right_size, a fraction or a number")
    left_count = rows - (right_count or 0) if left_count is None else left_count
    right_count = rows - left_count if right_count is None else right_count
    if min(left_count, right_count) < 1 or left_count + right_count > rows:
        raise ConfigError(f"split_dataset cannot split {rows} rows into parts of {left_count} "
                          f"and {right_count}")
    if isinstance(dataset, Batches):
        return dataset.split(right_count / rows)
    order = shuffled(whole_seed(seed), 0, rows) if shuffle else np.arange(rows)
    parts = [[c[rows] for c in columns]
             for rows in (order[:left_count], order[left_count:left_count + right_count])]
    if not isinstance(dataset, (tuple, list)):
        return parts[0][0], parts[1][0]
    return type(dataset)(parts[0]), type(dataset)(parts[1])


def _count(name: str, size: Any, rows: int) -> int | None:
    """A size as a number of rows."""
    if size is None:
        return None
    if isinstance(size, float):
        return round(fraction(f"split_dataset({name}=...)", size) * rows)
    return whole(f"split_dataset({name}=...)", size, least=1)
