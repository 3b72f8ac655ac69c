"""Weights of rows in the loss."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ztorch.config import number
from ztorch.errors import DataError
from ztorch.feed.columns import check_weights
from ztorch.feed.ports import TargetPort
from ztorch.feed.sequences import Ragged


def class_weights(class_weight: Mapping[int, float], port: TargetPort,
                  y: np.ndarray | Ragged) -> np.ndarray:
    """The weight of each row, by its class."""
    if isinstance(y, Ragged):
        raise DataError("class_weight needs one label a row; weigh rows with sample_weight")
    if not isinstance(class_weight, Mapping):
        raise DataError("class_weight takes a dict from class number to weight, such as "
                        "{0: 1.0, 1: 5.0}")
    labels = y.argmax(-1) if port.classes is None and y.ndim > 1 and y.shape[-1] > 1 else y
    labels = labels.reshape(len(labels), -1)
    if labels.shape[1] != 1:
        raise DataError("class_weight needs one label a row; weigh rows with sample_weight")
    whole = labels[:, 0].astype(np.int64)
    if (whole != labels[:, 0]).any() or np.min(whole) < 0:
        raise DataError("class_weight needs labels that are class numbers; weigh rows of a "
                        "regression with sample_weight")
    count = port.classes or (y.shape[-1] if y.ndim > 1 and y.shape[-1] > 1 else
                             max(2, int(np.max(whole)) + 1))
    table = np.ones(count, np.float32)
    for label, weight in class_weight.items():
        if not isinstance(label, (int, np.integer)) or not 0 <= label < count:
            raise DataError(f"class_weight names class {label!r}; classes are 0..{count - 1}")
        table[label] = number(f"class_weight[{label}]", weight, least=0)
    return check_weights(table, "class_weight")[whole]
