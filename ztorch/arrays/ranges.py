"""Functions that create tensors like another tensor, ranges, and identity matrices."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.arguments import explained
from ztorch.arrays.creation import full, tensor
from ztorch.arrays.device_dtypes import default_integer
from ztorch.arrays.placement import device as on_device
from ztorch.arrays.tensor import Tensor, compute
from ztorch.dtypes import AnyDType, f64


@explained
def full_like(x: Tensor, fill_value: complex, dtype: AnyDType | str | None = None,
              device: str | None = None) -> Tensor:
    """Creates a tensor of the same shape as another one, filled with one number.

    Args:
        x: The other tensor.
        fill_value: The number.
        dtype: The dtype; `None` means that of `x`. Default: `None`.
        device: The device; `None` means that of `x`. Default: `None`.

    Returns:
        The tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.full_like(zt.tensor([1, 2]), 7).tolist()
        [7, 7]
    """
    return full(x.shape, fill_value, x.dtype if dtype is None else dtype, device or x.device)


@explained
def zeros_like(x: Tensor, dtype: AnyDType | str | None = None, device: str | None = None) -> Tensor:
    """Creates a tensor of zeros with the shape of another tensor.

    Args:
        x: The other tensor.
        dtype: The dtype; `None` means that of `x`. Default: `None`.
        device: The device; `None` means that of `x`. Default: `None`.

    Returns:
        The tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.zeros_like(zt.tensor([1, 2])).tolist()
        [0, 0]
    """
    return full_like(x, 0, dtype, device)


@explained
def ones_like(x: Tensor, dtype: AnyDType | str | None = None, device: str | None = None) -> Tensor:
    """Creates a tensor of ones with the shape of another tensor.

    Args:
        x: The other tensor.
        dtype: The dtype; `None` means that of `x`. Default: `None`.
        device: The device; `None` means that of `x`. Default: `None`.

    Returns:
        The tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.ones_like(zt.tensor([1, 2])).tolist()
        [1, 1]
    """
    return full_like(x, 1, dtype, device)


@explained
def empty_like(x: Tensor, dtype: AnyDType | str | None = None, device: str | None = None) -> Tensor:
    """Creates a tensor with the shape of another one and unspecified elements. They are zeros.

    Args:
        x: The other tensor.
        dtype: The dtype; `None` means that of `x`. Default: `None`.
        device: The device; `None` means that of `x`. Default: `None`.

    Returns:
        The tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.empty_like(zt.tensor([1, 2])).shape
        (2,)
    """
    return zeros_like(x, dtype, device)


@explained
def arange(start: float, stop: float | None = None, step: float = 1,
           dtype: AnyDType | str | None = None, device: str | None = None) -> Tensor:
    """Evenly spaced numbers up to an exclusive end.

    Args:
        start: The first number; the end if `stop` is `None`, which counts from 0.
        stop: The exclusive end. Default: `None`.
        step: The distance between numbers; may be negative. Default: `1`.
        dtype: The dtype; `None` means int64 for integers (int32 on a device without int64), else
            float32. Default: `None`.
        device: The device; `None` means the default one. Default: `None`.

    Returns:
        The tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.arange(3).tolist(), zt.arange(1, 2, 0.5).tolist()
        ([0, 1, 2], [1.0, 1.5])
    """
    numbers = (start, step) if stop is None else (start, stop, step)
    are_ints = all(isinstance(x, (int, np.integer)) for x in numbers)
    kind = dtype or (default_integer(device) if are_ints else "float32")
    return _created(device, "arange", start, stop, step, dtype=kind)


@explained
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True,
             dtype: AnyDType | str = "float32", device: str | None = None, axis: int = 0
             ) -> Tensor:
    """A number of evenly spaced values between two bounds.

    Args:
        start: The first number; or an array or a tensor of such.
        stop: The last number; or an array or a tensor of such.
        num: The number of values. Default: `50`.
        endpoint: Whether `stop` is included. Default: `True`.
        dtype: The dtype. Values are rounded down to integers, as in NumPy. Default: `"float32"`.
        device: The device; `None` means that of the bounds, or the default one. Default: `None`.
        axis: Where the values lie, for arrays. Default: `0`.

    Returns:
        The tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
        >>> zt.linspace(zt.tensor([0.0, 1.0]), 2, 3).tolist()
        [[0.0, 1.0], [1.0, 1.5], [2.0, 2.0]]
    """
    bounds = (start, stop)
    if not any(isinstance(x, Tensor) for x in bounds):
        return _created(device, "linspace", *bounds, num, endpoint, dtype=dtype, axis=axis)
    device = device or next(x for x in bounds if isinstance(x, Tensor)).device
    kind = dtypes.dtype(dtype)
    floats = kind if kind.is_float else f64
    first, last = (x if isinstance(x, Tensor) else tensor(x, floats, device) for x in bounds)
    points = _between(first, last, linspace(0.0, 1.0, num, endpoint, floats, device))
    points = compute("moveaxis", (points, 0, axis), {})
    return (compute("floor", (points,), {}) if kind.is_int else points).astype(kind)


def _between(start: Tensor, stop: Tensor, shares: Tensor) -> Tensor:
    """The points at these shares of the way between two tensors. Both ends are exact."""
    shares = shares.reshape(-1, *(1,) * max(start.ndim, stop.ndim))
    start, stop = start.astype(shares.dtype), stop.astype(shares.dtype)
    span = stop - start
    points: Tensor = compute("where", (shares < 0.5, start + span * shares,
                                       stop - span * (1.0 - shares)), {})
    return points


@explained
def eye(n_rows: int, n_cols: int | None = None, k: int = 0, dtype: AnyDType | str = "float32",
        device: str | None = None) -> Tensor:
    """Creates a matrix with ones on a diagonal and zeros elsewhere.

    Args:
        n_rows: The number of rows.
        n_cols: The number of columns; `None` means `n_rows`. Default: `None`.
        k: The diagonal: 0 for the main one, positive above it, negative below. Default: `0`.
        dtype: The dtype. Default: `"float32"`.
        device: The device; `None` means the default one. Default: `None`.

    Returns:
        The tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return _created(device, "eye", n_rows, n_cols, k, dtype=dtype)


def _created(device: str | None, op: str, *args: Any, **attrs: Any) -> Tensor:
    with placed(device):
        result: Tensor = compute(op, args, attrs)
    return result


def placed(device: str | None) -> AbstractContextManager[Any]:
    """A context with this default device; if it is `None`, one that changes nothing."""
    return contextlib.nullcontext() if device is None else on_device(device)
