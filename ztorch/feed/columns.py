"""One input or one target of a program: arrays of any origin as its rows, every number checked."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ztorch.dtypes import DType, need_no_mask, to_storage
from ztorch.errors import DataError

# Converted once when the result is at most this large, else batch by batch as it is needed.
CONVERT_AT_ONCE = 256 << 20
_SLACK = 1e-5  # how far rounding may take a probability beyond 0 and 1


def as_array(value: Any, what: str) -> np.ndarray:
    """Numbers of any origin as a C-contiguous NumPy array; `what` names them in errors.

    >>> as_array([[1, 2], [3, 4]], "x").shape
    (2, 2)
    """
    if value is None:
        raise DataError(f"{what} is None; pass an array")
    array = value if type(value) is np.ndarray else _foreign(value, what)
    if array.dtype.isbuiltin != 1 or array.dtype.kind not in "fiub":
        array = _plain(array, what)
    return np.ascontiguousarray(array) if array.ndim else array


def _foreign(value: Any, what: str) -> np.ndarray:
    need_no_mask(what, value)
    if inspect.isroutine(value):
        raise DataError(f"{what} is a function; call it, and pass what it gives")
    try:
        if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as error:  # foreign __array__ methods raise what they like
        raise DataError(f"{what} cannot be read as an array: {_reason(value, error)}") from error


def _plain(array: np.ndarray, what: str) -> np.ndarray:
    """An array of a dtype that is not NumPy's own, or not this machine's, as one that is."""
    if array.dtype.name == "bfloat16":  # NumPy knows it only as an extension
        return array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{what} holds {array.dtype} values, not numbers; "
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


class Input(NamedTuple):
    """What rows of an input are."""

    port: str  # what functions call it: x, or x/name
    shape: tuple[int, ...]
    dtype: DType
    range: tuple[int, int, str] | None = None  # lowest and highest number, and what takes them

    @property
    def name(self) -> str:
        return self.port[2:]

    def rows(self, value: Any, what: str) -> np.ndarray:
        """An array of rows of the input's shape; `what` names it in errors."""
        array = as_array(value, what)
        rows = _rows(array, self.shape)
        if rows is None:
            raise DataError(f"{what} has shape {array.shape}, but the model takes "
                            f"{_spell(self.shape)}; {_shape_hint(array, self.shape, what)}")
        _some(rows, what)
        if self.dtype.is_int:
            _check_whole(rows, self.dtype, self.range, what)
        return convert(rows, self.dtype)


class Target(NamedTuple):
    """What rows of a target are, and the meaning of labels."""

    port: str  # y, or y/name
    shape: tuple[int, ...]
    dtype: DType
    classes: int | None = None  # it holds class numbers below this
    loss: str = ""
    probabilities: bool = False  # it holds numbers from 0 to 1 alone

    @property
    def name(self) -> str:
        return self.port[2:]

    def rows(self, value: Any, rows: int, what: str, first_row: int = 0) -> np.ndarray:
        """An array of rows of the target's shape, every label checked."""
        if value is None:
            raise DataError(f"{what} is missing: the loss {self.loss} compares predictions with "
                            f"targets; pass one for each row of x")
        array = as_array(value, what)
        if array.ndim == 0 or len(array) != rows:
            count = len(array) if array.ndim else "no"
            raise DataError(f"x has {rows} rows but {what} has {count}; each row of x needs one "
                            "target")
        fitted = _rows(array, self.shape)
        if fitted is None:
            raise DataError(f"{what} has shape {array.shape}, but the loss {self.loss} takes "
                            f"{_spell(self.shape)}; {self._hint(array)}")
        if fitted.dtype.kind == "f" and np.count_nonzero(np.isfinite(fitted)) < fitted.size:
            row = int(np.argwhere(~np.isfinite(fitted))[0][0])
            bad = fitted[row][~np.isfinite(fitted[row])].flat[0]
            raise DataError(f"{what} holds {bad} in row {row + first_row}; drop such rows or fill "
                            "in a value")
        if self.classes is not None:
            _check_labels(fitted, self.classes, what, first_row)
        if self.probabilities:
            _check_probabilities(fitted, self.loss, what, first_row)
        return convert(fitted, self.dtype)

    def _hint(self, array: np.ndarray) -> str:
        row, wanted = array.shape[1:], self.shape
        if self.classes is not None and row == (*wanted, self.classes):
            return ("these look one-hot: pass y.argmax(-1), or compile with "
                    "loss='categorical_crossentropy'")
        if self.classes is None and wanted and row in (wanted[:-1], (*wanted[:-1], 1)):
            return (f"for class numbers compile with loss='sparse_categorical_crossentropy', or "
                    f"pass numpy.eye({wanted[-1]})[y]")
        return _shape_hint(array, wanted, "y")


# -- checks --------------------------------------------------------------------------------------


def convert(array: np.ndarray, d: DType) -> np.ndarray:
    """The array as it lies in staging buffers, or itself where that would take much memory."""
    if d.name == "bf16" or array.dtype == d.numpy:
        return array
    return array.astype(d.numpy) if array.size * d.bytes <= CONVERT_AT_ONCE else array


def _rows(array: np.ndarray, row: tuple[int, ...]) -> np.ndarray | None:
    """The array if its rows have this shape, give or take a last axis of 1; else None."""
    if array.ndim == 0:
        return None
    own = array.shape[1:]
    if own != row and own != (*row, 1) and (*own, 1) != row:
        return None
    return array if own == row else array.reshape(len(array), *row)


def one_a_row(array: np.ndarray) -> np.ndarray | None:
    """The array if it holds one number a row."""
    return _rows(array, ())


def _some(array: np.ndarray, what: str) -> None:
    if len(array) == 0:
        raise DataError(f"{what} is empty: its shape is {array.shape}; pass at least one row")


def _spell(row: tuple[int, ...]) -> str:
    return f"({', '.join(['N', *map(str, row)])}{',' if not row else ''}): rows of shape {row}"


def _shape_hint(array: np.ndarray, row: tuple[int, ...], what: str) -> str:
    own = array.shape
    if own == row:
        return f"for a single row pass {what}[None]"
    if own and math.prod(own[1:]) == math.prod(row) and len(own) > 1:
        if len(own) == len(row) + 1 and sorted(own[1:]) == sorted(row):
            return f"the axes are in another order: use {what}.transpose(...)"
        return f"{what}.reshape(-1, {', '.join(map(str, row))}) has that shape"
    if len(own) == len(row) + 1:
        axis = next(k for k in range(len(row)) if own[k + 1] != row[k])
        return f"axis {axis + 1} is {own[axis + 1]} and should be {row[axis]}"
    return f"it has {len(own)} axes and should have {len(row) + 1}, the first one counting rows"


def _check_whole(x: np.ndarray, d: DType, given: tuple[int, int, str] | None, what: str) -> None:
    """Numbers for an integer input are whole, fit its dtype, and are ones that its layer takes."""
    if x.dtype == d.numpy and given is None:
        return
    bounds = np.iinfo(d.numpy)
    low, high, taker = given or (int(bounds.min), int(bounds.max), f"an input of {d}")
    # most data is good: these two passes need no memory (comparisons fail for NaN)
    if x.dtype.kind != "f" and int(x.min()) >= low and int(x.max()) <= high:
        return
    good = (x >= low) & (x <= high)
    if x.dtype.kind == "f":
        good &= x == np.floor(x)
    if good.all():
        return
    row = int(np.argwhere(~good)[0][0])
    raise DataError(f"{what} holds {x[row][~good[row]].flat[0]} in row {row}; {taker} takes whole "
                    f"numbers from {low} to {high}")


def _check_labels(y: np.ndarray, classes: int, what: str, first_row: int) -> None:
    whole = y.dtype.kind != "f" or not np.count_nonzero(y != np.floor(y))
    if whole and y.min() >= 0 and y.max() < classes:  # so is most data, and this needs no memory
        return
    bad = (y < 0) | (y >= classes)
    if not whole:
        bad |= y != np.floor(y)
    row = int(np.argwhere(bad)[0][0])
    label = y[row][bad[row]].flat[0]
    hint = f"the model has {classes} outputs, so labels are whole numbers in 0..{classes - 1}"
    if label == classes and y.min() >= 1:
        hint += "; these start at 1: pass y - 1"
    raise DataError(f"label {label} in row {row + first_row} of {what} is out of range; {hint}")


def _check_probabilities(y: np.ndarray, loss: str, what: str, first_row: int) -> None:
    if y.min() >= -_SLACK and y.max() <= 1 + _SLACK:
        return
    bad = (y < -_SLACK) | (y > 1 + _SLACK)
    row = int(np.argwhere(bad)[0][0])
    raise DataError(f"{what} holds {y[row][bad[row]].flat[0]} in row {row + first_row}; the loss "
                    f"{loss} takes numbers from 0 to 1: scale y, or for class numbers compile with "
                    "loss='sparse_categorical_crossentropy' and an output for each class")


def check_weights(weights: np.ndarray, what: str) -> np.ndarray:
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise DataError(f"{what} {weights[at]} at {at} must be finite and not negative")
    return weights


# -- staging -----------------------------------------------------------------------------------


def store(target: np.ndarray, d: DType, values: np.ndarray) -> None:
    """Values of any numeric dtype written into a staging buffer of dtype d."""
    if d.name == "bf16":
        values = to_storage(d, values.astype(np.float32, copy=False))
    target[...] = values  # casts whatever it is given


def pad(staging: Mapping[str, np.ndarray], real: int) -> None:
    """Fills a batch up with its own rows, at weight 0."""
    for name, array in staging.items():
        if name == "w":
            array[real:] = 0.0
        else:
            array[real:] = array[np.arange(len(array) - real) % real]
