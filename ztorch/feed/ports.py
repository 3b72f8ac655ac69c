"""One input or target of a program: turns what users pass into rows, and checks every number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ztorch.dtypes import DType
from ztorch.errors import DataError
from ztorch.feed.columns import (
    as_array,
    check_labels,
    check_probabilities,
    check_whole,
    convert,
    fitted_rows,
    need_rows,
    shape_hint,
    spell,
)
from ztorch.feed.sequences import Sequences


class InputPort(NamedTuple):
    """An input of a program."""

    port: str  # x, or x/NAME
    shape: tuple[int, ...]  # of a row
    dtype: DType
    range: tuple[int, int, str] | None = None  # least and greatest number, and the layer that asks
    axis: str = ""  # the name of its first axis, if the size of that varies

    @property
    def name(self) -> str:
        """What users call it; empty where it is the only one."""
        return self.port[2:]

    def rows(self, value: Any, name: str) -> np.ndarray | Sequences:
        """What a user passed, as rows of the input's shape. Errors call it `name`."""
        if self.axis:
            steps = self._replace(shape=self.shape[1:], axis="")
            return sequences(value, name, self.shape, self.axis, steps.array_of_rows)
        return self.array_of_rows(value, name)

    def array_of_rows(self, value: Any, name: str) -> np.ndarray:
        """Rows of a fixed shape."""
        array = as_array(value, name)
        rows = fitted_rows(array, self.shape)
        if rows is None:
            raise DataError(f"{name} has shape {array.shape}, but the model takes "
                            f"{spell(self.shape)}; {shape_hint(array, self.shape, name)}")
        need_rows(rows, name)
        if self.dtype.is_int:
            check_whole(rows, self.dtype, self.range, name)
        return convert(rows, self.dtype)


class TargetPort(NamedTuple):
    """A target of a program: what an output is trained towards."""

    port: str  # y, or y/NAME
    shape: tuple[int, ...]  # of a row
    dtype: DType
    classes: int | None = None  # it holds class numbers, all below this
    loss: str = ""  # the name of its loss
    probabilities: bool = False  # it holds numbers from 0 to 1
    axis: str = ""  # the name of its first axis, if the size of that varies

    @property
    def name(self) -> str:
        """What users call it; empty where it is the only one."""
        return self.port[2:]

    def rows(self, value: Any, rows: int, name: str, first_row: int = 0) -> np.ndarray | Sequences:
        """What a user passed, as rows of the target's shape; every label is checked. Errors call
        it `name`, and count rows from `first_row`."""
        if self.axis and value is not None:
            port = self._replace(shape=self.shape[1:], axis="")
            targets = sequences(value, name, self.shape, self.axis,
                              lambda steps, label: port.array_of_rows(steps, len(steps), label))
            if len(targets) != rows:
                raise DataError(f"x has {rows} rows but {name} has {len(targets)}; each row of x "
                                "needs one target")
            return targets
        return self.array_of_rows(value, rows, name, first_row)

    def array_of_rows(self, value: Any, rows: int, name: str, first_row: int = 0) -> np.ndarray:
        """Targets of a fixed shape."""
        if value is None:
            raise DataError(f"{name} is missing: the loss {self.loss} compares predictions with "
                            f"targets; pass one for each row of x")
        array = as_array(value, name)
        if array.ndim == 0 or len(array) != rows:
            count = len(array) if array.ndim else "no"
            raise DataError(f"x has {rows} rows but {name} has {count}; each row of x needs one "
                            "target")
        fitted = fitted_rows(array, self.shape)
        if fitted is None:
            raise DataError(f"{name} has shape {array.shape}, but the loss {self.loss} takes "
                            f"{spell(self.shape)}; {self._hint(array)}")
        if fitted.dtype.kind == "f" and np.count_nonzero(np.isfinite(fitted)) < fitted.size:
            row = int(np.argwhere(~np.isfinite(fitted))[0][0])
            bad = fitted[row][~np.isfinite(fitted[row])].flat[0]
            raise DataError(f"{name} holds {bad} in row {row + first_row}; drop such rows or fill "
                            "in a value")
        if self.classes is not None:
            check_labels(fitted, self.classes, name, first_row)
        if self.probabilities:
            check_probabilities(fitted, self.loss, name, first_row)
        return convert(fitted, self.dtype)

    def _hint(self, array: np.ndarray) -> str:
        row, expected = array.shape[1:], self.shape
        if self.classes is not None and row == (*expected, self.classes):
            return ("these look one-hot: pass y.argmax(-1), or compile with "
                    "loss='categorical_crossentropy'")
        if self.classes is None and expected and row in (expected[:-1], (*expected[:-1], 1)):
            return (f"for class numbers compile with loss='sparse_categorical_crossentropy', or "
                    f"pass numpy.eye({expected[-1]})[y]")
        return shape_hint(array, expected, "y")


def sequences(value: Any, name: str, row: tuple[int, ...], axis: str,
              checked: Callable[[Any, str], np.ndarray]) -> Sequences:
    """Rows whose first axis may differ in size: an array, or a list of arrays.

    Args:
        value: What a user passed.
        name: What errors call it.
        row: The shape of the longest row.
        axis: The name of the axis.
        checked: Makes an array of steps of a value, or raises an error that calls it by a name.
    """
    if isinstance(value, (list, tuple)) or getattr(value, "dtype", None) == np.object_:
        rows = [checked(item, f"{name}[{k}]") for k, item in enumerate(value)]
        if not rows:
            raise DataError(f"{name} is empty; pass at least one row")
        return Sequences.of(rows)
    array = as_array(value, name)
    if array.ndim < 2 or fitted_rows(array, (array.shape[1], *row[1:])) is None:
        sizes = ", ".join(map(str, ("N", axis, *row[1:])))
        raise DataError(f"{name} has shape {array.shape}, but the model takes ({sizes}): rows "
                        f"whose axis {axis!r} may have any size up to {row[0]}")
    if not array.size:
        raise DataError(f"{name} is empty: its shape is {array.shape}; pass at least one row of "
                        "one step")
    count, length = array.shape[:2]
    steps = array.reshape(count * length, *array.shape[2:])
    try:
        return Sequences(checked(steps, name), np.full(count, length))
    except DataError:  # say in which row
        for k in range(count):
            checked(array[k], f"{name}[{k}]")
        raise
