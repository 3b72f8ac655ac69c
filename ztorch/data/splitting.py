"""Data in two parts."""

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
        dataset: An array, a tuple or list of arrays with as many rows, or batches of `zt.data`,
            which are split by `split`.
        left_size: The rows of the first part: a share from 0 to 1, or a count. Default: `None`.
        right_size: Those of the second; None: the remaining ones. Default: `None`.
        shuffle: Whether to shuffle the rows first. Default: `False`.
        seed: The seed of that; None: 0. Default: `None`.

    Returns:
        Two parts of the type of `dataset`.

    Raises:
        ConfigError: No size is given, or one side would be empty.
        DataError: Arrays differ in their rows.

    Examples:
        >>> left, right = split_dataset((np.arange(5), np.arange(5) * 2), left_size=0.6)
        >>> left[1].tolist(), right[0].tolist()
        ([0, 2, 4], [3, 4])
    """
    arrays = dataset if isinstance(dataset, (tuple, list)) else (dataset,)
    is_batches = isinstance(dataset, Batches)
    columns = [] if is_batches else [np.asarray(a) for a in arrays]
    if len({len(c) for c in columns}) > 1:
        raise DataError("split_dataset takes arrays with as many rows, not "
                        f"{', '.join(str(len(c)) for c in columns)}")
    rows = dataset.rows if isinstance(dataset, Batches) else len(columns[0])
    left = _count("left_size", left_size, rows)
    right = _count("right_size", right_size, rows)
    if left is None and right is None:
        raise ConfigError("split_dataset needs left_size or right_size, a share or a count")
    left = rows - (right or 0) if left is None else left
    right = rows - left if right is None else right
    if min(left, right) < 1 or left + right > rows:
        raise ConfigError(f"split_dataset: {rows} rows do not make parts of {left} and {right}")
    if isinstance(dataset, Batches):
        return dataset.split(right / rows)
    order = shuffled(whole_seed(seed), 0, rows) if shuffle else np.arange(rows)
    parts = [[c[order[:left]] for c in columns], [c[order[left:left + right]] for c in columns]]
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
