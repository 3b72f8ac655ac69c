"""Converts arrays of NumPy and other libraries on the way into tensors and out of them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ztorch.arguments import need_no_mask
from ztorch.dtypes import DType, bf16, dtype, f32, f64, to_storage
from ztorch.errors import DataError, UnknownName, Unsupported

dtype_of = functools.lru_cache(dtype)


def as_host_array(label: str, x: Any, kind: DType | None = None,
                  complex_too: bool = False) -> np.ndarray:
    """A NumPy array: x itself, or the data that x exposes.

    Args:
        label: The array's name in errors.
        x: An array of any framework, a number, or nested lists of numbers.
        kind: The target dtype; if it is an integer dtype, the numbers must fit. Default: `None`.
        complex_too: Whether the numbers may be complex. Default: `False`.

    Raises:
        DataError: x is not an array of numbers.
    """
    if type(x) is not np.ndarray and str(getattr(x, "dtype", "")) == "torch.bfloat16":
        # NumPy and DLPack cannot read it
        return _bits_of_torch(x).view(_of_ml_dtypes(bf16))
    if not hasattr(x, "__array__") and hasattr(x, "__dlpack__"):
        return np.from_dlpack(x)
    need_no_mask(label, x)
    try:
        array = np.asarray(x)
    except ValueError as error:  # nested lists of different lengths
        raise DataError(f"{label} is not an array: {error}") from None
    except (TypeError, RuntimeError) as error:  # it is on a device, or requires a gradient
        raise DataError(f"{label} cannot be read as an array: {error}") from None
    if complex_too and array.dtype.kind == "c":
        return array
    try:
        dtype_of(array.dtype)
    except UnknownName:
        if array.dtype.kind == "c":
            raise DataError(f"{label} is an array of {array.dtype}, and real numbers are needed "
                            "there; give its real and imaginary parts") from None
        raise DataError(f"{label} is an array of {array.dtype}; use numbers of a dtype such as "
                        "float32, int64 or bool") from None
    if kind is not None and kind.is_int and not hasattr(x, "dtype") and array.dtype.kind in "iuf":
        try:
            return np.asarray(x, kind.numpy)
        except (OverflowError, ValueError):  # ValueError: NaN
            raise DataError(f"{label} has numbers that {kind} cannot hold") from None
    return array


def _bits_of_torch(x: Any) -> np.ndarray:
    import sys

    bits: np.ndarray = x.detach().view(sys.modules["torch"].int16).numpy()
    return bits


def stored(array: np.ndarray, d: DType) -> np.ndarray:
    """An array's elements in their storage dtype, in native byte order."""
    if not d.in_numpy:
        if dtype_of(array.dtype) is d:
            return array.view(d.numpy)
        return to_storage(d, array.astype(d.working))
    return array.astype(d.numpy, copy=False)


def shown(array: np.ndarray, d: DType) -> np.ndarray:
    """A stored array as users see it; a dtype that NumPy lacks gets that of ml_dtypes."""
    return array if d.in_numpy else array.view(_of_ml_dtypes(d))


def default_dtype(x: Any, array: np.ndarray) -> DType:
    """The dtype of a tensor created from x: the dtype of an array; float32 for Python floats."""
    own = dtype_of(array.dtype)
    return f32 if own is f64 and not hasattr(x, "dtype") else own


def _of_ml_dtypes(d: DType) -> np.dtype:
    try:
        import ml_dtypes
    except ImportError:
        raise Unsupported(f"NumPy has no {d}; pip install ml_dtypes, or use zt.ops.cast to "
                          "give a result another dtype") from None
    return np.dtype(getattr(ml_dtypes, d.long))
