"""Pads sequences to one length, and cuts a series into windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import positive, whole
from ztorch.data.batches import Batches
from ztorch.errors import ConfigError, DataError


@checked
def pad_sequences(sequences: Sequence[Any], maxlen: int | None = None, dtype: Any = "int32",
                  padding: str = "pre", truncating: str = "pre", value: Any = 0.0) -> np.ndarray:
    """Pads and truncates lists to one length.

    Args:
        sequences: Lists or arrays of numbers, or of vectors of one shape.
        maxlen: The length; None: that of the longest. Default: `None`.
        dtype: The dtype of the array. Default: `"int32"`.
        padding: "pre" pads at the start, "post" at the end. Default: `"pre"`.
        truncating: "pre" cuts long sequences at the beginning, "post" at the end. Default:
            `"pre"`.
        value: The padding value. Default: `0.0`.

    Returns:
        An array of shape (sequences, maxlen, ...).

    Raises:
        DataError: An item is not a sequence, or the steps differ in shape.

    Examples:
        >>> pad_sequences([[1], [2, 3, 4]], maxlen=2).tolist()
        [[0, 1], [3, 4]]
    """
    for argument, choice in (("padding", padding), ("truncating", truncating)):
        if choice not in ("pre", "post"):
            raise ConfigError(f"pad_sequences({argument}={choice!r}) must be 'pre' or 'post'")
    for k, sequence in enumerate(sequences):
        if not hasattr(sequence, "__len__"):
            raise DataError(f"sequence {k} is {sequence!r}, not a list of numbers")
    longest = max(map(len, sequences), default=0)
    length = longest if maxlen is None else positive("pad_sequences(maxlen=...)", maxlen)
    step = next((np.shape(s)[1:] for s in sequences if len(s)), ())
    padded = np.full((len(sequences), length, *step), value, dtype)
    for k, sequence in enumerate(sequences):
        steps = np.asarray(sequence[-length:] if truncating == "pre" else sequence[:length], dtype)
        if len(steps) and steps.shape[1:] != step:
            raise DataError(f"the steps of sequence {k} have shape {steps.shape[1:]}, those before "
                            f"it have {step}")
        if len(steps):
            at = slice(len(steps)) if padding == "post" else slice(length - len(steps), length)
            padded[k, at] = steps
    return padded


class Windows(Batches):
    """The batches of windows of a series, as `timeseries_dataset_from_array` returns them."""

    def __init__(self, data: np.ndarray, targets: np.ndarray | None, starts: np.ndarray,
                 offsets: np.ndarray, batch_size: int, seed: int | None):
        super().__init__(len(starts), batch_size, seed)
        self._data, self._targets = data, targets
        self._starts, self._offsets = starts, offsets

    def read(self, rows: np.ndarray) -> Any:
        """The windows of these numbers, with their targets, if there are any."""
        starts = self._starts[rows]
        x = self._data[starts[:, None] + self._offsets]
        return x if self._targets is None else (x, self._targets[starts])


@checked
def timeseries_dataset_from_array(data: Any, targets: Any, sequence_length: int,
                                  sequence_stride: int = 1, sampling_rate: int = 1,
                                  batch_size: int = 128, shuffle: bool = False,
                                  seed: int | None = None, start_index: int | None = None,
                                  end_index: int | None = None) -> Windows:
    """Windows of a series, in batches. Windows are copied only when their batch is read.

    Args:
        data: The series: an array with a step in each row.
        targets: An array with the target of the window that starts at each row; None: no targets.
        sequence_length: The steps of a window.
        sequence_stride: The distance between the starts of windows, in rows. Default: `1`.
        sampling_rate: The distance between the steps of a window, in rows. Default: `1`.
        batch_size: The windows of a batch. Default: `128`.
        shuffle: Whether each epoch uses a different order. Default: `False`.
        seed: The seed for shuffling; None: 0. Default: `None`.
        start_index: The first row to use; None: 0. Default: `None`.
        end_index: The row after the last one to use; None: the end. Default: `None`.

    Returns:
        Batches (x, y), or x if there are no targets; `split(0.2)` splits off validation data.

    Raises:
        ConfigError: There is no window of this length, or an argument is invalid.

    Examples:
        >>> windows = timeseries_dataset_from_array(range(6), range(3, 9), sequence_length=3)
        >>> [part.tolist() for part in next(iter(windows))]
        [[[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]], [3, 4, 5, 6]]
    """
    name = "timeseries_dataset_from_array"
    series = np.asarray(data)
    rows = slice(None if start_index is None else whole(f"{name}(start_index=...)", start_index),
                 None if end_index is None else positive(f"{name}(end_index=...)", end_index))
    series, goals = series[rows], None if targets is None else np.asarray(targets)[rows]
    length = positive(f"{name}(sequence_length=...)", sequence_length)
    stride = positive(f"{name}(sequence_stride=...)", sequence_stride)
    rate = positive(f"{name}(sampling_rate=...)", sampling_rate)
    count = len(series) - (length - 1) * rate
    if goals is not None:
        count = min(count, len(goals))
    if count < 1:
        raise ConfigError(f"{name}: {len(series)} rows hold no window of {length} steps that are "
                          f"{rate} rows apart; make sequence_length smaller")
    return Windows(series, goals, np.arange(0, count, stride), np.arange(length) * rate,
                   batch_size, (seed or 0) if shuffle else None)
