"""One input or target of a program: turns users' data into rows, and checks every number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
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
from ztorch.feed.grids import Grids
from ztorch.feed.sequences import Ragged, Sequences
from ztorch.feed.sources import is_column
from ztorch.feed.texts import TextReader
from ztorch.real_sizes import OpenAxis


class InputPort(NamedTuple):
    """An input of a program."""

    port: str  # x, or x/NAME
    shape: tuple[int, ...]  # of a row
    dtype: DType
    range: tuple[int, int, str] | None = None  # least and greatest number, and the layer that asks
    axes: Mapping[int, str] = MappingProxyType({})  # of a row whose size varies, by number: names
    reader: TextReader | None = None  # of texts

    @property
    def name(self) -> str:
        """The users' name for it; empty where it is the only one."""
        return self.port[2:]

    def rows(self, value: Any, name: str) -> np.ndarray | Ragged:
        """The user's data, as rows of the input's shape. Errors call it `name`."""
        value = read(value)
        if self.reader is not None:
            value = self.reader.numbers(value, name)
        if list(self.axes) == [0]:
            steps = self._replace(shape=self.shape[1:])
            return sequences(value, name, self.shape, self.axes[0], steps.array_of_rows)
        if self.axes:
            return grids(value, name, self.shape, self.axes, lambda row, label: self._replace(
                shape=row.shape).array_of_rows(row[None], label)[0])
        return self.array_of_rows(value, name)

    def array_of_rows(self, value: Any, name: str) -> np.ndarray:
        """Rows of a fixed shape."""
        array = as_array(value, name)
        rows = fitted_rows(array, self.shape)
        if rows is None:
            raise DataError(f"{name} has shape {array.shape}, but the model takes "
                            f"{spell(self.shape)}; {shape_hint(array, self.shape, name)}")
        need_rows(rows, name)
        if self.dtype.is_int or self.range is not None:
            check_whole(rows, self.dtype, self.range, name)
        return convert(rows, self.dtype)


class TargetPort(NamedTuple):
    """A target of a program, towards which an output is trained."""

    port: str  # y, or y/NAME
    shape: tuple[int, ...]  # of a row
    dtype: DType
    classes: int | None = None  # it holds class numbers, all below this
    loss: str = ""  # the name of its loss
    probabilities: bool = False  # it holds numbers from 0 to 1
    axes: Mapping[int, OpenAxis] = MappingProxyType({})  # of a row whose size varies, by number

    @property
    def name(self) -> str:
        """The users' name for it; empty where it is the only one."""
        return self.port.partition("/")[2]

    def rows(self, value: Any, rows: int, name: str, first_row: int = 0) -> np.ndarray | Ragged:
        """The user's data, as rows of the target's shape; every label is checked. Errors call
        it `name`, and count rows from `first_row`."""
        value = read(value)
        if self.axes and value is not None:
            port = self._replace(shape=self.shape[1:])
            targets: Ragged = sequences(
                value, name, self.shape, str(self.axes[0]),
                lambda steps, label: port.array_of_rows(steps, len(steps), label)) if (
                list(self.axes) == [0]) else grids(
                value, name, self.shape, {k: str(axis) for k, axis in self.axes.items()},
                lambda row, label: self._replace(
                    shape=row.shape).array_of_rows(row[None], 1, label)[0])
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


def read(value: Any) -> Any:
    """The user's data; of a column that reads from disk, its rows."""
    return value[:] if type(value) is not np.ndarray and is_column(value) else value


def _is_empty(row: Any) -> bool:
    """Whether a row of steps has none."""
    if isinstance(row, (list, tuple)):
        return not row
    return getattr(row, "shape", ())[:1] == (0,)


def sequences(value: Any, name: str, row: tuple[int, ...], axis: str,
              checked: Callable[[Any, str], np.ndarray]) -> Sequences:
    """Rows whose first axis may differ in size: an array, or a list of arrays.

    Args:
        value: The user's argument.
        name: The port's name in errors.
        row: The shape of the longest row.
        axis: The name of the axis.
        checked: Makes an array of steps of a value, or raises an error that calls it by a name.
    """
    if isinstance(value, (list, tuple)) or getattr(value, "dtype", None) == np.object_:
        for k, item in enumerate(value):
            if _is_empty(item):
                raise DataError(f"{name}[{k}] is empty along axis {axis!r}: rows have at least one "
                                "step; omit it")
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


def grids(value: Any, name: str, row: tuple[int, ...], axes: Mapping[int, str],
          checked: Callable[[np.ndarray, str], np.ndarray]) -> Grids:
    """Rows that may differ in size along some axes: an array, or a list of arrays.

    Args:
        value: The user's argument.
        name: The port's name in errors.
        row: The shape of the largest row.
        axes: The names of the axes, by number.
        checked: Makes a row of an array, or raises an error that calls it by a name.
    """
    several = isinstance(value, (list, tuple)) or getattr(value, "dtype", None) == np.object_
    rows = []
    for k, item in enumerate(value if several else as_array(value, name)):
        array = as_array(item, f"{name}[{k}]")
        if array.ndim != len(row) or not array.size or any(
                n != m for axis, (n, m) in enumerate(zip(array.shape, row, strict=True))
                if axis not in axes):
            sizes = ", ".join(str(axes.get(axis, n)) for axis, n in enumerate(row))
            raise DataError(f"{name}[{k}] has shape {array.shape}, but the model takes rows of "
                            f"({sizes})")
        rows.append(checked(array, f"{name}[{k}]"))
    if not rows:
        raise DataError(f"{name} is empty; pass at least one row")
    return Grids(rows, list(axes))
