"""Fourier transforms of short overlapping frames of a signal, with the conventions of Keras."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, Sample, constant, op, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.fourier import PAIR, irfft, like, pair, rfft
from ztorch.ops.reduction import widened

_LEAST = 1e-10  # least sum of squared windows that elements are divided by


def _window(name: str, window: Any, n: int, length: int) -> np.ndarray:
    """The numbers that a frame is multiplied by, in the middle of a transform's length."""
    if not 1 <= n <= length:
        raise shape_error(f"ops.{name} cannot put frames of {n} elements into a transform of "
                          f"{length}", fix="fft_length must be sequence_length or more")
    if window is None:
        numbers = np.ones(n)
    elif isinstance(window, str):
        share = {"hann": 0.5, "hamming": 0.54}.get(window)
        if share is None:
            raise shape_error(f"ops.{name}(window={window!r}) is neither 'hann' nor 'hamming'",
                              fix="give the numbers themselves, or None")
        numbers = share - (1 - share) * np.cos(2 * math.pi / n * np.arange(n))
    else:
        numbers = np.asarray(window, float)
        if numbers.shape != (n,):
            raise shape_error(f"ops.{name} needs a window of {n} numbers, not of shape",
                              numbers.shape)
    before = (length - n) // 2
    return np.pad(numbers, (before, length - n - before))


def _reflected(x: Value, n: int) -> Value:
    """x with n more elements at each end of its last axis, mirrored at the ends."""
    if n >= x.shape[-1]:
        raise shape_error(f"ops.stft(center=True) mirrors {n} elements at both ends, and there "
                          "are too few in", x.shape, fix="use center=False or a shorter fft_length")
    if not n:
        return x
    return OPS.concat(OPS.flip(x[..., 1:n + 1], -1), x, OPS.flip(x[..., -n - 1:-1], -1), axis=-1)


def _stft_numpy(x: Any, sequence_length: int, sequence_stride: int, fft_length: int,
                window: Any = "hann", center: bool = True) -> Any:
    if center:
        x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(fft_length // 2,) * 2], "reflect")
    frames = np.lib.stride_tricks.sliding_window_view(x, fft_length, -1)[..., ::sequence_stride, :]
    y = np.fft.rfft(frames * _window("stft", window, sequence_length, fft_length))
    return y.real, y.imag


_FRAMES = {"sequence_length": 5, "sequence_stride": 2, "fft_length": 6}


@op(Sample(((2, 11),), _FRAMES), Sample(((9,),), {**_FRAMES, "window": "hamming", "center": False}),
    results=PAIR, numpy=_stft_numpy)
def stft(x: Value, sequence_length: int, sequence_stride: int, fft_length: int,
         window: str | tuple[float, ...] | None = "hann",
         center: bool = True) -> tuple[Value, Value]:
    """The Fourier transform of short overlapping frames along the last axis.

    Args:
        x: Float tensor.
        sequence_length: Elements of a frame.
        sequence_stride: Distance between the beginnings of two frames.
        fft_length: Length of the transform, `sequence_length` or more.
        window: The factors of a frame: `"hann"`, `"hamming"`, as many numbers as a frame
            has elements, or `None` for ones. Default: `"hann"`.
        center: Whether frame t is centered at element `t * sequence_stride`, with x mirrored at its
            ends, and does not begin there. Default: `True`.

    Returns:
        `(real, imag)`: tensors `(..., frames, fft_length // 2 + 1)` of the dtype of `x`.

    Examples:
        >>> import ztorch as zt
        >>> real, imag = zt.ops.stft(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), 3, 2, 3)
        >>> np.round(real, 9).tolist()
        [[0.75, -0.375], [3.75, -1.875], [5.25, -2.625]]
    """
    if sequence_stride < 1:
        raise shape_error(f"ops.stft(sequence_stride={sequence_stride}) is not positive")
    numbers = _window("stft", window, sequence_length, fft_length)
    [signal] = as_floats(x)
    signal = widened(signal)
    if not signal.rank:
        raise shape_error("ops.stft transforms the last axis, which is missing in", x.shape)
    signal = _reflected(signal, fft_length // 2) if center else signal
    if signal.shape[-1] < fft_length:
        raise shape_error(f"ops.stft finds no frame of {fft_length} elements in", x.shape)
    frames = OPS.windows(signal, (-1,), fft_length, sequence_stride)
    real, imag = rfft(frames * constant(numbers, signal.dtype))
    return like(real, x), like(imag, x)


def _istft_numpy(x: Any, sequence_length: int, sequence_stride: int, fft_length: int,
                 length: int | None = None, window: Any = "hann", center: bool = True) -> Any:
    weights = _window("istft", window, sequence_length, fft_length)
    frames = np.fft.irfft(x[0] + 1j * x[1], fft_length) * weights
    total = np.zeros((*frames.shape[:-2], fft_length + sequence_stride * (frames.shape[-2] - 1)))
    squares = np.zeros(total.shape[-1])
    for k in range(frames.shape[-2]):
        at = slice(k * sequence_stride, k * sequence_stride + fft_length)
        total[..., at] += frames[..., k, :]
        squares[at] += weights**2
    start, stop = _signal_bounds(total.shape[-1], fft_length, length, center)
    return (total / np.where(squares > _LEAST, squares, 1))[..., start:stop]


def _signal_bounds(n: int, fft_length: int, length: int | None, center: bool) -> tuple[int, int]:
    """Where the signal begins and ends in the frames that were added up."""
    start = fft_length // 2 if center else 0
    return start, min(n, start + length) if length is not None else n - start


@op(Sample(((2, 4, 4), (2, 4, 4)), _FRAMES),
    Sample(((3, 4), (3, 4)), {**_FRAMES, "length": 7, "window": None, "center": False}),
    numpy=_istft_numpy)
def istft(x: tuple[Value, Value], sequence_length: int, sequence_stride: int, fft_length: int,
          length: int | None = None, window: str | tuple[float, ...] | None = "hann",
          center: bool = True) -> Value:
    """The signal of which `stft` with the same arguments gives x, by least squares.

    Args:
        x: Pair `(real, imag)` of float tensors `(..., frames, fft_length // 2 + 1)`.
        sequence_length: Elements of a frame.
        sequence_stride: Distance between the beginnings of two frames.
        fft_length: Length of the transform.
        length: Elements of the result, fewer if the frames reach less far. `None` for all that the
            frames reach, without the mirrored part of `center`. Default: `None`.
        window: The factors of the frames, as in `stft`. Default: `"hann"`.
        center: Whether frames were centered at their elements, as in `stft`. Default: `True`.

    Returns:
        A tensor of the dtype of `x`, with the signal as its last axis. Elements that no window
        covers are 0.

    Examples:
        >>> import ztorch as zt
        >>> frames = zt.ops.stft(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 4, 1, 4)
        >>> np.round(zt.ops.istft(frames, 4, 1, 4), 9).tolist()
        [1.0, 2.0, 3.0, 4.0, 5.0]
    """
    if sequence_stride < 1:
        raise shape_error(f"ops.istft(sequence_stride={sequence_stride}) is not positive")
    weights = _window("istft", window, sequence_length, fft_length)
    parts = pair("istft", x, 2)
    count, bins = parts[0].shape[-2:]
    if bins != fft_length // 2 + 1:
        raise shape_error(f"ops.istft(fft_length={fft_length}) takes {fft_length // 2 + 1} "
                          "elements of each frame, not", parts[0].shape)
    frames = irfft(parts, fft_length)
    samples = fft_length + sequence_stride * (count - 1)
    squares = np.zeros(samples)
    for k in range(count):
        squares[k * sequence_stride:k * sequence_stride + fft_length] += weights**2
    frames = frames * constant(weights, frames.dtype)
    total = OPS.overlap_add(frames, (frames.rank - 2,), (samples,), sequence_stride)
    total = total * constant(1 / np.where(squares > _LEAST, squares, 1), frames.dtype)
    start, stop = _signal_bounds(samples, fft_length, length, center)
    return like(total[..., start:stop], x[0])
