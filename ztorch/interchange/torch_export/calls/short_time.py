"""The short-time Fourier transform and its inverse."""

from __future__ import annotations

import numpy as np

from ztorch.dtypes import DType
from ztorch.interchange.torch_export.translation import OperatorCall, Result, call


@call("stft", of_complex=True)
def _short_time(c: OperatorCall) -> Result:
    x, length = c.tensor(), c.get("n_fft")
    size = c.get("win_length", length)
    if c.get("align_to_window") or not c.get("return_complex"):
        c.unsupported("align_to_window=True, or return_complex=False")
    window = _window(c, x.dtype, size, length)
    signal = c.node("Unsqueeze", x.name if x.rank == 2 else c.node("Unsqueeze", x.name, c.ints(0)),
                    c.ints(-1))
    onesided = c.get("onesided")
    frames = c.node("STFT", signal, c.constant(np.int64(c.get("hop_length", length // 4))), window,
                    c.constant(np.int64(length)), onesided=int(onesided is None or onesided))
    y = c.node("Transpose", frames, perm=[0, 2, 1, 3])
    y = y if x.rank == 2 else c.node("Squeeze", y, c.ints(0))
    return c.node("Mul", y, c.number(length ** -0.5, x.dtype)) if c.get("normalized") else y


@call("istft", of_complex=True)
def _signal(c: OperatorCall) -> Result:
    """Adds up overlapping frames times the window, and divides by the sum of squared windows."""
    x, length = c.tensor(), c.get("n_fft")
    if c.get("return_complex", False):
        c.unsupported("a complex signal")
    size, hop = c.get("win_length", length), c.get("hop_length", length // 4)
    if not isinstance(count := x.dims[-1], int):
        c.unsupported("an open number of frames")
    onesided = c.get("onesided")
    onesided = x.dims[-2] != length if onesided is None else onesided
    pairs = x.name if x.rank == 3 else c.node("Unsqueeze", x.name, c.ints(0))
    frames = c.node("DFT", c.node("Transpose", pairs, perm=[0, 2, 1, 3]),
                    c.constant(np.int64(length)), c.constant(np.int64(2)), inverse=1,
                    onesided=int(onesided))
    real = c.node("Gather", frames, c.constant(np.int64(0)), axis=-1)  # (batch, frames, length)
    window = _window(c, x.dtype, size, length)
    if c.get("normalized", False):
        real = c.node("Mul", real, c.number(length ** 0.5, x.dtype))
    full_length = (count - 1) * hop + length
    total = _overlap_add(c, c.node("Transpose", c.node("Mul", real, window), perm=[0, 2, 1]),
                         full_length, length, hop)
    squares = c.node("Expand", c.node("Reshape", c.node("Mul", window, window), c.ints(1, -1, 1)),
                     c.ints(1, length, count))
    start = length // 2 if c.get("center", True) else 0
    requested = c.get("length")
    end = full_length - start if requested is None else min(start + requested, full_length)
    y = c.node("Div", *(c.node("Slice", part, c.ints(start), c.ints(end), c.ints(1))
                        for part in (total, _overlap_add(c, squares, full_length, length, hop))))
    if requested is not None and end - start < requested:
        y = c.node("Pad", y, c.ints(0, 0, 0, requested - (end - start)))
    return y if x.rank == 3 else c.node("Squeeze", y, c.ints(0))


def _window(c: OperatorCall, d: DType, size: int, length: int) -> str:
    """The window of a call, or ones, padded to the length of a frame."""
    argument = c.get("window")
    window: str = c.constant(np.ones(size, d.working)) if argument is None else argument.name
    if size < length:
        before = (length - size) // 2
        window = c.node("Pad", window, c.ints(before, length - size - before))
    return window


def _overlap_add(c: OperatorCall, frames: str, total: int, length: int, hop: int) -> str:
    """Adds up frames, the columns of a matrix, where they overlap."""
    y = c.node("Col2Im", frames, c.ints(1, total), c.ints(1, length), strides=[1, hop])
    return c.node("Reshape", y, c.ints(-1, total))
