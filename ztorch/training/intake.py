"""What users hand to a program, brought to what the program takes, or refused with a reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ztorch.config import number
from ztorch.dtypes import DType, to_storage
from ztorch.errors import ConfigError, DataError

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


def is_stream(x: Any, y: Any) -> bool:
    """Whether x brings batches rather than rows: an iterator, a loader, or a list of tuples."""
    if hasattr(x, "__array__") or hasattr(x, "__dlpack__") or isinstance(x, (str, bytes, tuple)):
        return False
    if isinstance(x, Mapping):
        raise DataError("x is a mapping; a Sequential model has one input: pass its array")
    if isinstance(x, list):
        return y is None and bool(x) and all(isinstance(item, tuple) for item in x)
    return hasattr(x, "__iter__")


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


def store(target: np.ndarray, d: DType, values: np.ndarray) -> None:
    """Values of any numeric dtype written into a staging buffer of dtype d."""
    if d.name == "bf16":
        values = to_storage(d, values.astype(np.float32, copy=False))
    target[...] = values  # casts whatever it is given


def convert(array: np.ndarray, d: DType) -> np.ndarray:
    """The array as it lies in staging buffers, or itself where that would take much memory."""
    if d.name == "bf16" or array.dtype == d.numpy:
        return array
    return array.astype(d.numpy) if array.size * d.bytes <= CONVERT_AT_ONCE else array


def batch_agrees(given: int | None, compiled: int) -> None:
    """A batch size may be repeated after compile, not changed."""
    if given is None or given == compiled:
        return
    if not isinstance(given, (int, np.integer)) or given < 1:
        raise ConfigError(f"batch_size={given!r} must be a whole number, one or more")
    raise ConfigError(f"batch_size={given}, but this program is compiled for {compiled} rows at a "
                      f"time; leave batch_size out, or compile with batch_size={given}")


def pad(staging: Mapping[str, np.ndarray], real: int) -> None:
    """Fills a batch up with its own rows, at weight 0."""
    for name, array in staging.items():
        if name == "w":
            array[real:] = 0.0
        else:
            array[real:] = array[np.arange(len(array) - real) % real]


class Intake(NamedTuple):
    """What one program takes: row shapes and dtypes of x and y, and the meaning of labels."""

    x_shape: tuple[int, ...]
    x_dtype: DType
    y_shape: tuple[int, ...] | None = None
    y_dtype: DType | None = None
    classes: int | None = None  # y holds class numbers below this
    loss: str = ""
    x_range: tuple[int, int, str] | None = None  # lowest and highest number, and what takes them
    probabilities: bool = False  # y holds numbers from 0 to 1 alone

    # -- inputs -----------------------------------------------------------------------------------

    def inputs(self, value: Any, what: str = "x") -> np.ndarray:
        """x as an array of rows of the input's shape."""
        if isinstance(value, tuple):
            raise DataError(f"{what} is a tuple of {len(value)}; pass its parts one by one, "
                            "such as fit(*data)")
        array = as_array(value, what)
        rows = _rows(array, self.x_shape)
        if rows is None:
            raise DataError(f"{what} has shape {array.shape}, but the model takes "
                            f"{_spell(self.x_shape)}; {_shape_hint(array, self.x_shape, what)}")
        _some(rows, what)
        if self.x_dtype.is_int:
            _check_whole(rows, self.x_dtype, self.x_range, what)
        return convert(rows, self.x_dtype)

    # -- targets ----------------------------------------------------------------------------------

    def targets(self, value: Any, rows: int, what: str = "y", first_row: int = 0) -> np.ndarray:
        """y as an array of rows of the target's shape, every label checked."""
        assert self.y_shape is not None and self.y_dtype is not None
        if value is None:
            raise DataError(f"{what} is missing: the loss {self.loss} compares predictions with "
                            "targets")
        array = as_array(value, what)
        if array.ndim == 0 or len(array) != rows:
            count = len(array) if array.ndim else "no"
            raise DataError(f"x has {rows} rows but {what} has {count}; each row of x needs one "
                            "target")
        fitted = _rows(array, self.y_shape)
        if fitted is None:
            raise DataError(f"{what} has shape {array.shape}, but the loss {self.loss} takes "
                            f"{_spell(self.y_shape)}; {self._target_hint(array)}")
        if fitted.dtype.kind == "f" and np.count_nonzero(np.isfinite(fitted)) < fitted.size:
            row = int(np.argwhere(~np.isfinite(fitted))[0][0])
            bad = fitted[row][~np.isfinite(fitted[row])].flat[0]
            raise DataError(f"{what} holds {bad} in row {row + first_row}; drop such rows or fill "
                            "in a value")
        if self.classes is not None:
            _check_labels(fitted, self.classes, what, first_row)
        if self.probabilities:
            _check_probabilities(fitted, self.loss, what, first_row)
        return convert(fitted, self.y_dtype)

    def _target_hint(self, array: np.ndarray) -> str:
        row, wanted = array.shape[1:], self.y_shape
        assert wanted is not None
        if self.classes is not None and row == (*wanted, self.classes):
            return ("these look one-hot: pass y.argmax(-1), or compile with "
                    "loss='categorical_crossentropy'")
        if self.classes is None and wanted and row in (wanted[:-1], (*wanted[:-1], 1)):
            return (f"for class numbers compile with loss='sparse_categorical_crossentropy', or "
                    f"pass numpy.eye({wanted[-1]})[y]")
        return _shape_hint(array, wanted, "y")

    # -- weights of rows --------------------------------------------------------------------------

    def weights(self, sample_weight: Any, class_weight: Mapping[int, float] | None,
                y: np.ndarray | None, rows: int) -> np.ndarray | None:
        """One float32 weight a row; None where all weigh the same."""
        if sample_weight is None and class_weight is None:
            return None
        found: np.ndarray | None = None
        if sample_weight is not None:
            array = as_array(sample_weight, "sample_weight")
            fitted = _rows(array, ())
            if fitted is None or len(fitted) != rows:
                raise DataError(f"sample_weight has shape {array.shape}; it takes one weight a "
                                f"row: ({rows},)")
            found = _check_weights(fitted.astype(np.float32), "sample_weight")
        if class_weight is not None:
            assert y is not None
            by_class = self._class_weights(class_weight, y)
            found = by_class if found is None else found * by_class
        return found

    def _class_weights(self, class_weight: Mapping[int, float], y: np.ndarray) -> np.ndarray:
        if not isinstance(class_weight, Mapping):
            raise DataError("class_weight takes a dict from class number to weight, such as "
                            "{0: 1.0, 1: 5.0}")
        labels = y.argmax(-1) if self.classes is None and y.ndim > 1 and y.shape[-1] > 1 else y
        labels = labels.reshape(len(labels), -1)
        if labels.shape[1] != 1:
            raise DataError("class_weight needs one label a row; weigh rows with sample_weight")
        whole = labels[:, 0].astype(np.int64)
        if (whole != labels[:, 0]).any() or np.min(whole) < 0:
            raise DataError("class_weight needs labels that are class numbers; weigh rows of "
                            "a regression with sample_weight")
        count = self.classes or (y.shape[-1] if y.ndim > 1 and y.shape[-1] > 1 else
                                 max(2, int(np.max(whole)) + 1))
        table = np.ones(count, np.float32)
        for label, weight in class_weight.items():
            if not isinstance(label, (int, np.integer)) or not 0 <= label < count:
                raise DataError(f"class_weight names class {label!r}; classes are 0..{count - 1}")
            table[label] = number(f"class_weight[{label}]", weight, least=0)
        return _check_weights(table, "class_weight")[whole]


    # -- one batch --------------------------------------------------------------------------------

    def stage(self, staging: Mapping[str, np.ndarray], x: np.ndarray, y: np.ndarray,
              w: np.ndarray | None) -> float:
        """Puts at most a batch of rows into the staging buffers; gives the sum of their weights."""
        assert self.y_dtype is not None
        rows, weights = len(x), staging["w"]
        store(staging["x"][:rows], self.x_dtype, x)
        store(staging["y"][:rows], self.y_dtype, y)
        weights[:rows] = 1.0 if w is None else w
        if rows < len(weights):
            pad(staging, rows)
        return float(rows if w is None else w.sum(dtype=np.float64))


# -- checks --------------------------------------------------------------------------------------


def _rows(array: np.ndarray, row: tuple[int, ...]) -> np.ndarray | None:
    """The array if its rows have this shape, give or take a last axis of 1; else None."""
    if array.ndim == 0:
        return None
    own = array.shape[1:]
    if own != row and own != (*row, 1) and (*own, 1) != row:
        return None
    return array if own == row else array.reshape(len(array), *row)


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


def _check_weights(weights: np.ndarray, what: str) -> np.ndarray:
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise DataError(f"{what} {weights[at]} at {at} must be finite and not negative")
    return weights
