"""The samples of a page: a few rows of data to try a model on."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.errors import DataError

MOST = 12  # samples
MOST_BYTES = 1 << 20  # of all samples


@dataclass(frozen=True)
class Samples:
    """Rows of a model's only input."""

    x: np.ndarray  # in the dtype of the input
    labels: tuple[int, ...] = ()  # the classes of rows, if there are any
    texts: tuple[dict[str, str], ...] = ()  # the cells of rows of a table

    def to_json(self) -> dict[str, Any]:
        """The data for the page: the numbers as bytes, and the values of black and white."""
        low, high = float(self.x.min(initial=0)), float(self.x.max(initial=0))
        return {"rows": len(self.x), "labels": list(self.labels), "texts": list(self.texts),
                "x": base64.b64encode(self.x.tobytes()).decode(),
                "black": -1 if low < 0 else 0, "white": 255 if high > 1.5 else 1}


def choose(x: Any, y: Any, shape: tuple[int, ...], dtype: DType,
           texts: Sequence[dict[str, str]] = ()) -> Samples:
    """Chooses a few of many rows; with labels, rows of all classes in turn.

    >>> from ztorch.dtypes import f32
    >>> choose(np.eye(4), [1, 1, 0, 1], (4,), f32).labels
    (0, 1, 1, 1)
    """
    x = np.asarray(x)
    if x.shape[1:] != shape:
        raise DataError(f"samples have rows of shape {x.shape[1:]}, but the model takes {shape}; "
                        "pass samples in the shape of its input")
    y = None if y is None else np.asarray(y)
    if y is None or y.dtype.kind not in "iu" or y.size != len(x):
        order, labels = np.arange(len(x)), None
    else:
        labels = y.reshape(-1)
        turn = np.zeros(len(x), int)  # the number of earlier rows of the same class
        for label in np.unique(labels):
            turn[labels == label] = np.arange(np.count_nonzero(labels == label))
        order = np.lexsort((labels, turn))
    each = max(1, int(np.prod(shape)) * dtype.bytes)
    rows = order[:max(1, min(MOST, MOST_BYTES // each))]
    return Samples(np.ascontiguousarray(x[rows], dtype.numpy),
                   () if labels is None else tuple(int(label) for label in labels[rows]),
                   tuple(texts[k] for k in rows) if texts else ())
