"""The sizes of rows along axes that a model leaves open, before it is compiled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from ztorch.feed.columns import as_array
from ztorch.feed.row_shapes import batches_inputs, first_inputs
from ztorch.feed.sources import is_stream


def sizes_seen(x: Any, open_axes: Mapping[str, Mapping[int, str]], inputs: Collection[str]
               ) -> dict[str, set[int]]:
    """The sizes that rows have along each open axis. Batches of a list or of a dataset that is read
    by index are read for it; of a generator only the first is, as it can be read once.

    Args:
        x: The argument of `fit` or `predict`.
        open_axes: For each input that has some, the name of each open axis of a row by its number.
        inputs: The names of all inputs, in order.

    Examples:
        >>> rows = [np.zeros((3, 4)), np.zeros((9, 4))]
        >>> sizes_seen(rows, {"x": {0: "time"}}, ["x"])
        {'time': {9, 3}}
        >>> sizes_seen([np.zeros((0, 4)), rows[0]], {"x": {0: "time"}}, ["x"])
        {'time': {3}}
    """
    by_axis: dict[str, set[int]] = {}
    batches = batches_inputs(x)
    if batches is not None:
        for batch in batches:
            for label, sizes in sizes_seen(batch, open_axes, inputs).items():
                by_axis[label] = by_axis.get(label, set()) | sizes
        return by_axis
    if is_stream(x, None):
        first = first_inputs(x)
        return {} if first is None else sizes_seen(first, open_axes, inputs)
    names = list(inputs)
    if len(names) == 1:
        parts = {names[0]: next(iter(x.values())) if isinstance(x, Mapping) else x}
    else:
        parts = dict(x) if isinstance(x, Mapping) else dict(zip(names, x, strict=False))
    for name, axes in open_axes.items():
        for axis, label in axes.items():
            if sizes := set(_sizes(parts.get(name, ()), axis)):
                by_axis[label] = by_axis.get(label, set()) | sizes
    return by_axis


def _sizes(rows: Any, axis: int) -> Iterator[int]:
    """The sizes of rows along an axis. A row without it is an error of the data, later."""
    if not hasattr(rows, "shape") and not isinstance(rows, (list, tuple)):
        rows = as_array(rows, "x")
    shapes = ([rows.shape[1:]] if hasattr(rows, "shape") and len(rows) else
              [np.shape(row) for row in rows])
    return (shape[axis] for shape in shapes if len(shape) > axis and shape[axis] > 0)
