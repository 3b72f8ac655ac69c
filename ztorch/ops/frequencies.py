"""The frequencies of the elements of a Fourier transform, and their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.dtypes import DType
from ztorch.graph.op import OPS, Sample, normal_axes, op
from ztorch.graph.value import Value
from ztorch.ops.fourier import need_length

Axes = int | tuple[int, ...] | None


def _freq_numpy(function: Any) -> Any:
    return lambda n, d=1.0, dtype=None: function(n, d)


@op(Sample((), {"n": 5, "d": 0.5}), Sample((), {"n": 4}), numpy=_freq_numpy(np.fft.fftfreq))
def fftfreq(n: int, d: float = 1.0, dtype: DType | str = "float32") -> Value:
    """The frequency of each element of `fft`: 0 and positive ones first, then negative ones.

    Args:
        n: Length of the transform.
        d: Distance between samples of the signal. Default: `1.0`.
        dtype: Dtype of the result, a float. Default: `"float32"`.

    Returns:
        A vector of n numbers, in cycles per unit of d.

    Examples:
        >>> fftfreq(4)
        <mul f32[4]>
    """
    k = OPS.iota((need_length("fftfreq", n),), 0)
    k = OPS.where(k < (n + 1) // 2, k, k - n)
    return OPS.cast(k, dtypes.dtype(dtype)) * (1 / (n * d))


@op(Sample((), {"n": 5, "d": 0.5}), Sample((), {"n": 4}), numpy=_freq_numpy(np.fft.rfftfreq))
def rfftfreq(n: int, d: float = 1.0, dtype: DType | str = "float32") -> Value:
    """The frequency of each element of `rfft`.

    Args:
        n: Length of the transform.
        d: Distance between samples of the signal. Default: `1.0`.
        dtype: Dtype of the result, a float. Default: `"float32"`.

    Returns:
        A vector of `n // 2 + 1` numbers, in cycles per unit of d.

    Examples:
        >>> rfftfreq(4)
        <mul f32[3]>
    """
    return OPS.iota((need_length("rfftfreq", n) // 2 + 1,), 0, dtypes.dtype(dtype)) * (1 / (n * d))


@op(Sample(((2, 5),), dtypes="fs"), Sample(((3, 4),), {"axes": 1}), numpy=np.fft.fftshift)
def fftshift(x: Value, axes: Axes = None) -> Value:
    """Moves the frequency 0 from the start to the middle.

    Args:
        x: Tensor of any dtype.
        axes: Axis, tuple of axes, or `None` for all. Default: `None`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.fftshift(np.array([0, 1, 2, -2, -1]))
        array([-2, -1,  0,  1,  2])
    """
    along = normal_axes(axes, x.rank)
    return OPS.roll(x, tuple(x.shape[a] // 2 for a in along), along) if along else x


@op(Sample(((2, 5),), dtypes="fs"), Sample(((3, 4),), {"axes": 1}), numpy=np.fft.ifftshift)
def ifftshift(x: Value, axes: Axes = None) -> Value:
    """The inverse of `fftshift`.

    Args:
        x: Tensor of any dtype.
        axes: Axis, tuple of axes, or `None` for all. Default: `None`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.ifftshift(np.array([-2, -1, 0, 1, 2]))
        array([ 0,  1,  2, -2, -1])
    """
    along = normal_axes(axes, x.rank)
    return OPS.roll(x, tuple(-(x.shape[a] // 2) for a in along), along) if along else x
