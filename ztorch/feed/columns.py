"""Checks of the numbers that users pass, and copies into the buffers of a program."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.arguments import need_no_mask
from ztorch.dtypes import DType, to_storage
from ztorch.errors import DataError
from ztorch.feed.frames import category_codes, column_array, frame_array, is_frame

if TYPE_CHECKING:
    from ztorch.runtime.loaded_program import BoundCall

CONVERT_AT_ONCE = 256 << 20  # bytes; larger arrays are converted batch by batch, to save memory
DIRECT_BYTES = 1 << 14  # from which on arrays are used in place; copying less takes no longer
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
        raise DataError(f"{name} is a function; call it, and pass its result")
    if callable(getattr(type(value), "collect", None)):  # a lazy frame
        raise DataError(f"{name} is a {type(value).__name__}, no table yet; pass its .collect()")
    try:
        if is_frame(value):
            return frame_array(value, name)
        if category_codes(value) is not None:
            return column_array(value, name)
        if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except DataError:
        raise
    except Exception as error:  # foreign __array__ methods raise anything
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
        return f"it is on {value.device}; pass x.cpu()"
    if isinstance(value, (list, tuple)) and "inhomogeneous" in str(error):
        return "its rows differ in length; pad them to one length"
    return str(error)


def _repair(array: np.ndarray) -> str:
    if array.dtype.kind in "USO":
        other = ("; replace None by a number, and pad rows of unequal length"
                 if array.dtype.kind == "O" else "")
        return ("encode texts as numbers, such as np.unique(y, return_inverse=True)[1] for labels, "
                "or make them categories (Series.astype('category'), an Enum in polars, "
                f"dataset.class_encode_column(name)){other}")
    if array.dtype.kind == "c":
        return "split it into real and imaginary parts"
    return "convert it with .astype('float32')"


# -- checks --------------------------------------------------------------------------------------


def convert(array: np.ndarray, d: DType) -> np.ndarray:
    """The array in the dtype of staging buffers; unchanged where that would take much memory."""
    if not d.in_numpy or array.dtype == d.numpy:
        return array
    return array.astype(d.numpy) if array.size * d.bytes <= CONVERT_AT_ONCE else array


def fitted_rows(array: np.ndarray, row: tuple[int, ...]) -> np.ndarray | None:
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
    return fitted_rows(array, ())


def need_rows(array: np.ndarray, name: str) -> None:
    if len(array) == 0:
        raise DataError(f"{name} is empty: its shape is {array.shape}; pass at least one row")


def spell(row: tuple[int, ...]) -> str:
    return f"({', '.join(['N', *map(str, row)])}{',' if not row else ''}): rows of shape {row}"


def shape_hint(array: np.ndarray, row: tuple[int, ...], name: str) -> str:
    shape = array.shape
    if shape == row and " of batch " in name:
        return ("an iterator gives batches; batch its rows first, as "
                "torch.utils.data.DataLoader(dataset, batch_size=32) does")
    if shape == row:
        return f"for a single row pass {name}[None]"
    if shape and math.prod(shape[1:]) == math.prod(row) and len(shape) > 1:
        if len(shape) == len(row) + 1 and sorted(shape[1:]) == sorted(row):
            return f"the axes are in another order: use {name}.transpose(...)"
        return f"{name}.reshape(-1, {', '.join(map(str, row))}) has that shape"
    if len(shape) == len(row) + 1:
        axis = next(k for k in range(len(row)) if shape[k + 1] != row[k])
        return f"axis {axis + 1} is {shape[axis + 1]} and should be {row[axis]}"
    flatter = ("; for one label per row, give the model a Flatten or a global pooling layer before "
               "its last one" if name.startswith("y") and len(shape) == 1 and len(row) > 1 else "")
    return (f"it has {len(shape)} axes and should have {len(row) + 1}, the first one counting "
            f"rows{flatter}")


def check_whole(x: np.ndarray, d: DType, bounds: tuple[int, int, str] | None, name: str,
                 ) -> None:
    """Raises where numbers for an input of integers are not whole, or not within the bounds of its
    layer or, without these, of its dtype."""
    if bounds is None:
        if x.dtype == d.numpy:
            return
        limits = np.iinfo(d.numpy)
        bounds = int(limits.min), int(limits.max), f"an input of {d}"
    low, high, taker = bounds
    # Most data is good. These two passes need no memory. (Comparisons with NaN are False.)
    if x.dtype.kind != "f" and int(x.min()) >= low and int(x.max()) <= high:
        return
    if x.dtype.kind == "f":
        x = x.astype(np.float32) if x.dtype == np.float16 else x  # which lacks large bounds
        # As a float, the highest integer may be rounded up.
        good = (x >= low) & (x < float(high) + 1.0) & (x == np.floor(x))
    else:
        good = (x >= low) & (x <= high)
    if good.all():
        return
    row = int(np.argwhere(~good)[0][0])
    raise DataError(f"{name} holds {x[row][~good[row]].flat[0]} in row {row}; {taker} takes "
                    f"integers from {low} to {high}")


def check_labels(y: np.ndarray, classes: int, name: str, first_row: int) -> None:
    integers = y.dtype.kind != "f" or not np.count_nonzero(y != np.floor(y))
    if integers and y.min() >= 0 and y.max() < classes:  # most data is good; needs no memory
        return
    bad = (y < 0) | (y >= classes)
    if not integers:
        bad |= y != np.floor(y)
    row = int(np.argwhere(bad)[0][0])
    bad_label = y[row][bad[row]].flat[0]
    hint = f"the model has {classes} outputs, so labels are integers in 0..{classes - 1}"
    if bad_label == classes and y.min() >= 1:
        hint += "; these start at 1: pass y - 1"
    raise DataError(f"label {bad_label} in row {row + first_row} of {name} is out of range; "
                    f"{hint}")


def check_probabilities(y: np.ndarray, loss: str, name: str, first_row: int) -> None:
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


def reads_in_place(call: BoundCall, name: str, array: np.ndarray, d: DType) -> bool:
    """Has a call read a full batch of an input of dtype d in place, if that can be and pays.
    """
    return array.nbytes >= DIRECT_BYTES and d.in_numpy and call.read_from(name, array)


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
