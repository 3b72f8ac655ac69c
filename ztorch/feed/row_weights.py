"""Weights in the loss: of rows, by their class, of steps, and of each output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.config import number
from ztorch.dispatch import is_tensor
from ztorch.errors import DataError, unknown
from ztorch.feed.columns import as_array, check_weights
from ztorch.feed.ports import TargetPort
from ztorch.feed.row_shapes import listed_part
from ztorch.feed.sequences import Ragged


def axes_of_weights(model: Any, *data: Any) -> dict[str, int]:
    """How many axes of steps weights have, for each output that has separate weights. Empty where
    all rows have one weight, the same for all outputs, or none.

    Args:
        model: A model or program, which knows the names of its outputs.
        *data: (x, y, sample_weight), or an iterable of batches of these; None: nothing.

    Examples:
        >>> import ztorch as zt
        >>> model = zt.Sequential([zt.layers.Input((3, 2)), zt.layers.Dense(2)])
        >>> axes_of_weights(model, ([], [], np.ones(4)))
        {}
        >>> axes_of_weights(model, ([], [], np.ones((4, 3))))
        {'': 1}
    """
    axes: dict[str, int] = {}
    for source in data:
        parts = source if isinstance(source, (tuple, list)) and len(source) in (2, 3) else (source,)
        x, weights = parts[0], parts[2] if len(parts) == 3 else None
        if is_tensor(x):
            continue
        weights = listed_part(x, 2) if weights is None and len(parts) != 2 else weights
        if weights is None:
            continue
        outputs = model.output_names
        by_output = _by_output(weights, outputs)
        if isinstance(by_output, Mapping):
            parts_given = {name: part for name, part in by_output.items() if part is not None}
        else:
            parts_given = dict.fromkeys(outputs, by_output) if _axes(by_output) > 0 else {}
        for name, part in parts_given.items():
            axes[name] = max(axes.get(name, 0), _axes(part))
    return axes


def _axes(weights: Any) -> int:
    """How many axes of steps weights have."""
    shape = weights.shape if hasattr(weights, "shape") else np.shape(weights)
    return 0 if tuple(shape[1:]) == (1,) else len(shape) - 1


def _by_output(weights: Any, outputs: Sequence[str]) -> Any:
    """Weights by output where they are a dict, or a list with a part for each; else as they are."""
    if isinstance(weights, Mapping):
        for name in weights:
            if name not in outputs:
                raise DataError(f"sample_weight: {unknown('output', name, outputs)}")
        return weights
    if len(outputs) > 1 and isinstance(weights, (list, tuple)) and len(weights) == len(
            outputs) and all(part is None or hasattr(part, "__len__") for part in weights):
        return dict(zip(outputs, weights, strict=True))
    return weights


def output_weights(ports: Sequence[TargetPort], outputs: Sequence[str], sample_weight: Any,
                   rows: int) -> dict[str, np.ndarray]:
    """The weights for each port: 1 where nothing is said.

    Args:
        ports: The ports.
        outputs: The names of the outputs that have a loss.
        sample_weight: The user's argument.
        rows: Number of rows.
    """
    by_output = _by_output(sample_weight, outputs)
    columns = {}
    for p in ports:
        part = by_output.get(p.name) if isinstance(by_output, Mapping) else by_output
        name = f"sample_weight[{p.name!r}]" if p.name else "sample_weight"
        weights = as_array(np.ones(rows) if part is None else part, name)
        if weights.ndim == 0 or len(weights) != rows:
            raise DataError(f"{name} has shape {weights.shape}; it takes one weight per row: "
                            f"({rows},)")
        if weights.shape[1:] == (1,) != p.shape:
            weights = weights[:, 0]
        if weights.shape[1:] != p.shape[:weights.ndim - 1]:
            raise DataError(f"{name} has shape {weights.shape}; it takes one weight for each step: "
                            f"{(rows, *p.shape)}")
        spread = weights.reshape(*weights.shape, *(1,) * (1 + len(p.shape) - weights.ndim))
        columns[p.port] = np.ascontiguousarray(np.broadcast_to(check_weights(
            spread.astype(np.float32), name), (rows, *p.shape)))
    return columns


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
    numbers = labels[:, 0].astype(np.int64)
    if (numbers != labels[:, 0]).any() or np.min(numbers) < 0:
        raise DataError("class_weight needs labels that are class numbers; weigh rows of a "
                        "regression with sample_weight")
    count = port.classes or (y.shape[-1] if y.ndim > 1 and y.shape[-1] > 1 else
                             max(2, int(np.max(numbers)) + 1))
    table = np.ones(count, np.float32)
    for label, weight in class_weight.items():
        if not isinstance(label, (int, np.integer)) or not 0 <= label < count:
            raise DataError(f"class_weight names class {label!r}; classes are 0..{count - 1}")
        table[label] = number(f"class_weight[{label}]", weight, least=0)
    return check_weights(table, "class_weight")[numbers]
