"""Windows of signals and series of numbers, which are constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.dtypes import DType, dtype
from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, constant
from ztorch.graph.value import Value

_dtype = dtype  # an argument hides it


def _window(numbers: np.ndarray) -> Value:
    return constant(numbers, "float32")


@composition(Sample((), {"x": 5}))
def bartlett(x: int) -> Value:
    """The window of Bartlett, a triangle that is 0 at its ends.

    Args:
        x: Number of elements.

    Returns:
        A float32 vector.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.bartlett(5).tolist()
        [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return _window(np.bartlett(int(x)))


@composition(Sample((), {"x": 5}))
def blackman(x: int) -> Value:
    """The window of Blackman.

    Args:
        x: Number of elements.

    Returns:
        A float32 vector.

    Examples:
        >>> import ztorch as zt
        >>> float(zt.ops.blackman(3)[1])
        1.0
    """
    return _window(np.blackman(int(x)))


@composition(Sample((), {"x": 5}))
def hamming(x: int) -> Value:
    """The window of Hamming.

    Args:
        x: Number of elements.

    Returns:
        A float32 vector.

    Examples:
        >>> import ztorch as zt
        >>> float(zt.ops.hamming(3)[1])
        1.0
    """
    return _window(np.hamming(int(x)))


@composition(Sample((), {"x": 5}))
def hanning(x: int) -> Value:
    """The window of Hann, half a cosine that is 0 at its ends.

    Args:
        x: Number of elements.

    Returns:
        A float32 vector.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.hanning(5).tolist()
        [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return _window(np.hanning(int(x)))


@composition(Sample((), {"x": 5, "beta": 8.0}))
def kaiser(x: int, beta: float) -> Value:
    """The window of Kaiser.

    Args:
        x: Number of elements.
        beta: How narrow it is.

    Returns:
        A float32 vector.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.kaiser(5, 8.0).shape
        (5,)
    """
    return _window(np.kaiser(int(x), float(beta)))


@composition(Sample((), {"start": 0.0, "stop": 2.0, "num": 4}))
def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: float = 10,
             dtype: DType | str | None = None, axis: int = 0) -> Value:
    """Numbers whose logarithms are evenly spaced.

    Args:
        start: The first exponent, or an array of such.
        stop: The last exponent.
        num: Number of numbers. Default: `50`.
        endpoint: Whether the last exponent is one of them. Default: `True`.
        base: The base of the exponents. Default: `10`.
        dtype: Dtype of the result. `None` means float32. Default: `None`.
        axis: Where the numbers lie, for arrays. Default: `0`.

    Returns:
        A tensor of constants.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.logspace(0, 2, 3).tolist()
        [1.0, 10.0, 100.0]
    """
    numbers = np.logspace(start, stop, num, endpoint, base, axis=axis)
    return OPS.cast(constant(numbers), _dtype(dtype or "float32"))


@composition(Sample((), {"start": 1.0, "stop": 8.0, "num": 4}))
def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True,
              dtype: DType | str | None = None, axis: int = 0) -> Value:
    """Numbers of which each is the same number of times as large as the one before.

    Args:
        start: The first number, or an array of such.
        stop: The last number.
        num: Number of numbers. Default: `50`.
        endpoint: Whether the last number is one of them. Default: `True`.
        dtype: Dtype of the result. `None` means float32. Default: `None`.
        axis: Where the numbers lie, for arrays. Default: `0`.

    Returns:
        A tensor of constants.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.geomspace(1, 4, 3).tolist()
        [1.0, 2.0, 4.0]
    """
    numbers = np.geomspace(start, stop, num, endpoint, axis=axis)
    return OPS.cast(constant(numbers), _dtype(dtype or "float32"))
