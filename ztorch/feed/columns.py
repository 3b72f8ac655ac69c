"""One input or target of a program: turns what users pass into rows, and checks every number."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ztorch.dtypes import DType, need_no_mask, to_storage
from ztorch.errors import DataError
from ztorch.feed.sequences import Sequences

CONVERT_AT_ONCE = 256 << 20  # bytes; larger arrays are converted batch by batch, to save memory
_TOLERANCE = 1e-5  # how far rounding may take a probability below 0 or above 1


def as_array(value: Any, name: str) -> np.ndarray:
    """Numbers of any origin (lists, tensors of other frameworks) as a C-contiguous NumPy array.
    Errors call them `name`.

    >>> as_array([[1, 2], [3, 4]], "x").shape
    (2, 2)
    """
    if value is None:
        raise DataError(f"{name} is None; pass an array")
    array = value if type(value) is np.ndarray else _foreign(value, name)
    if array.dtype.isbuiltin != 1 or array.dtype.kind not in "fiub":
        array = _plain(array, name)
    return np.ascontiguousarray(array) if array.ndim else array


def _foreign(value: Any, name: str) -> np.ndarray:
    need_no_mask(name, value)
    if inspect.isroutine(value):
        raise DataError(f"{name} is a function; call it, and pass what it returns")
    try:
        if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as error:  # foreign __array__ methods raise what they like
        raise DataError(f"{name} cannot be read as an array: {_reason(value, error)}") from error


def _plain(array: np.ndarray, name: str) -> np.ndarray:
    """The array in a dtype of NumPy's own, in this machine's byte order."""
    if array.dtype.name == "bfloat16":  # NumPy knows it only as an extension
        return array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} holds {array.dtype} values, not numbers; "
                        f"{_repair(array)}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _reason(value: Any, error: Exception) -> str:
    if getattr(value, "requires_grad", False):
        return "it is a tensor that requires gradients; pass x.detach()"
    if "bfloat16" in str(getattr(value, "dtype", "")):
        return "NumPy has no bfloat16; pass x.float()"
    if "cpu" not in str(getattr(value, "device", "cpu")):
        return f"it lies on {value.device}; pass x.cpu()"
    if isinstance(value, (list, tuple)) and "inhomogeneous" in str(error):
        return "its rows differ in length; pad them to one length"
    return str(error)


def _repair(array: np.ndarray) -> str:
    if array.dtype.kind in "USO":
        return "encode text and categories as numbers first (rows of unequal length end here too)"
    if array.dtype.kind == "c":
        return "split it into real and imaginary parts"
    return "convert it with .astype('float32')"


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
        rows = _rows(array, self.shape)
        if rows is None:
            raise DataError(f"{name} has shape {array.shape}, but the model takes "
                            f"{_spell(self.shape)}; {_shape_hint(array, self.shape, name)}")
        _need_rows(rows, name)
        if self.dtype.is_int:
            _check_whole(rows, self.dtype, self.range, name)
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
            found = sequences(value, name, self.shape, self.axis,
                              lambda steps, label: port.array_of_rows(steps, len(steps), label))
            if len(found) != rows:
                raise DataError(f"x has {rows} rows but {name} has {len(found)}; each row of x "
                                "needs one target")
            return found
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
        fitted = _rows(array, self.shape)
        if fitted is None:
            raise DataError(f"{name} has shape {array.shape}, but the loss {self.loss} takes "
                            f"{_spell(self.shape)}; {self._hint(array)}")
        if fitted.dtype.kind == "f" and np.count_nonzero(np.isfinite(fitted)) < fitted.size:
            row = int(np.argwhere(~np.isfinite(fitted))[0][0])
            bad = fitted[row][~np.isfinite(fitted[row])].flat[0]
            raise DataError(f"{name} holds {bad} in row {row + first_row}; drop such rows or fill "
                            "in a value")
        if self.classes is not None:
            _check_labels(fitted, self.classes, name, first_row)
        if self.probabilities:
            _check_probabilities(fitted, self.loss, name, first_row)
        return convert(fitted, self.dtype)

    def _hint(self, array: np.ndarray) -> str:
        row, expected = array.shape[1:], self.shape
        if self.classes is not None and row == (*expected, self.classes):
            return ("these look one-hot: pass y.argmax(-1), or compile with "
                    "loss='categorical_crossentropy'")
        if self.classes is None and expected and row in (expected[:-1], (*expected[:-1], 1)):
            return (f"for class numbers compile with loss='sparse_categorical_crossentropy', or "
                    f"pass numpy.eye({expected[-1]})[y]")
        return _shape_hint(array, expected, "y")


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
    if array.ndim < 2 or (array.ndim != len(row) + 1 and _rows(array, (array.shape[1:2] + row[1:]))
                          is None):
        raise DataError(f"{name} has shape {array.shape}, but the model takes "
                        f"{_spell((axis, *row[1:]))}; its axis {axis!r} may have any size up to "
                        f"{row[0]}")
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


# -- checks --------------------------------------------------------------------------------------


def convert(array: np.ndarray, d: DType) -> np.ndarray:
    """The array in the dtype of staging buffers; unchanged where that would take much memory."""
    if not d.in_numpy or array.dtype == d.numpy:
        return array
    return array.astype(d.numpy) if array.size * d.bytes <= CONVERT_AT_ONCE else array


def _rows(array: np.ndarray, row: tuple[int, ...]) -> np.ndarray | None:
    """The array with rows of this shape; a last axis of 1 is added or dropped. None if no such
    rows are in it."""
    if array.ndim == 0:
        return None
    array_row = array.shape[1:]
    if array_row != row and array_row != (*row, 1) and (*array_row, 1) != row:
        return None
    return array if array_row == row else array.reshape(len(array), *row)


def one_per_row(array: np.ndarray) -> np.ndarray | None:
    """The array if it holds one number per row."""
    return _rows(array, ())


def _need_rows(array: np.ndarray, name: str) -> None:
    if len(array) == 0:
        raise DataError(f"{name} is empty: its shape is {array.shape}; pass at least one row")


def _spell(row: tuple[Any, ...]) -> str:
    return f"({', '.join(['N', *map(str, row)])}{',' if not row else ''}): rows of shape {row}"


def _shape_hint(array: np.ndarray, row: tuple[int, ...], name: str) -> str:
    shape = array.shape
    if shape == row:
        return f"for a single row pass {name}[None]"
    if shape and math.prod(shape[1:]) == math.prod(row) and len(shape) > 1:
        if len(shape) == len(row) + 1 and sorted(shape[1:]) == sorted(row):
            return f"the axes are in another order: use {name}.transpose(...)"
        return f"{name}.reshape(-1, {', '.join(map(str, row))}) has that shape"
    if len(shape) == len(row) + 1:
        axis = next(k for k in range(len(row)) if shape[k + 1] != row[k])
        return f"axis {axis + 1} is {shape[axis + 1]} and should be {row[axis]}"
    return f"it has {len(shape)} axes and should have {len(row) + 1}, the first one counting rows"


def _check_whole(x: np.ndarray, d: DType, bounds: tuple[int, int, str] | None, name: str,
                 ) -> None:
    """Raises where numbers for an integer input are not whole, or not within the bounds of its
    dtype or of its layer."""
    if x.dtype == d.numpy and bounds is None:
        return
    limits = np.iinfo(d.numpy)
    low, high, taker = bounds or (int(limits.min), int(limits.max), f"an input of {d}")
    # Most data is good. These two passes need no memory. (Comparisons with NaN are False.)
    if x.dtype.kind != "f" and int(x.min()) >= low and int(x.max()) <= high:
        return
    good = (x >= low) & (x <= high)
    if x.dtype.kind == "f":
        good &= x == np.floor(x)
    if good.all():
        return
    row = int(np.argwhere(~good)[0][0])
    raise DataError(f"{name} holds {x[row][~good[row]].flat[0]} in row {row}; {taker} takes "
                    f"integers from {low} to {high}")


def _check_labels(y: np.ndarray, classes: int, name: str, first_row: int) -> None:
    whole = y.dtype.kind != "f" or not np.count_nonzero(y != np.floor(y))
    if whole and y.min() >= 0 and y.max() < classes:  # most data is good; needs no memory
        return
    bad = (y < 0) | (y >= classes)
    if not whole:
        bad |= y != np.floor(y)
    row = int(np.argwhere(bad)[0][0])
    bad_label = y[row][bad[row]].flat[0]
    hint = f"the model has {classes} outputs, so labels are integers in 0..{classes - 1}"
    if bad_label == classes and y.min() >= 1:
        hint += "; these start at 1: pass y - 1"
    raise DataError(f"label {bad_label} in row {row + first_row} of {name} is out of range; "
                    f"{hint}")


def _check_probabilities(y: np.ndarray, loss: str, name: str, first_row: int) -> None:
    if y.min() >= -_TOLERANCE and y.max() <= 1 + _TOLERANCE:
        return
    bad = (y < -_TOLERANCE) | (y > 1 + _TOLERANCE)
    row = int(np.argwhere(bad)[0][0])
    raise DataError(f"{name} holds {y[row][bad[row]].flat[0]} in row {row + first_row}; the loss "
                    f"{loss} takes numbers from 0 to 1: scale y, or for class numbers compile with "
                    "loss='sparse_categorical_crossentropy' and an output for each class")


def check_weights(weights: np.ndarray, name: str) -> np.ndarray:
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise DataError(f"{name} {weights[at]} at {at} must be finite and not negative")
    return weights


# -- staging -----------------------------------------------------------------------------------


def store(target: np.ndarray, d: DType, values: np.ndarray) -> None:
    """Writes values of any numeric dtype into a staging buffer of dtype d."""
    if not d.in_numpy:
        values = to_storage(d, values.astype(np.float32, copy=False))
    target[...] = values  # converts to the buffer's dtype


def pad(staging: Mapping[str, np.ndarray], real: int) -> None:
    """Fills up a batch of `real` rows with these rows again, at weight 0."""
    for name, array in staging.items():
        if name in ("w", "real"):
            array[real:] = 0
        else:
            array[real:] = array[np.arange(len(array) - real) % real]
