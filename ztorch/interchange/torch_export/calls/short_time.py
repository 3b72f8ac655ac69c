"""The short-time Fourier transform, and its inverse."""

from __future__ import annotations

import numpy as np

from ztorch.interchange.torch_export.translation import OperatorCall, Result, call


@call("stft", of_complex=True)
def _short_time(c: OperatorCall) -> Result:
    x, length, window = c.tensor(), c.get("n_fft"), c.get("window")
    size = c.get("win_length", length)
    if c.get("align_to_window") or not c.get("return_complex"):
        c.unsupported("align_to_window, or results that are no complex numbers")
    shape = c.constant(np.ones(size, x.dtype.working)) if window is None else window.name
    if size < length:
        before = (length - size) // 2
        shape = c.node("Pad", shape, c.ints(before, length - size - before))
    signal = c.node("Unsqueeze", x.name if x.rank == 2 else c.node("Unsqueeze", x.name, c.ints(0)),
                    c.ints(-1))
    onesided = c.get("onesided")
    frames = c.node("STFT", signal, c.constant(np.int64(c.get("hop_length", length // 4))), shape,
                    c.constant(np.int64(length)), onesided=int(onesided is None or onesided))
    y = c.node("Transpose", frames, perm=[0, 2, 1, 3])
    y = y if x.rank == 2 else c.node("Squeeze", y, c.ints(0))
    return c.node("Mul", y, c.number(length ** -0.5, x.dtype)) if c.get("normalized") else y


@call("istft", of_complex=True)
def _signal(c: OperatorCall) -> Result:
    """Frames, each times the window, are added where they overlap, and divided by the sum of the
    windows' squares there."""
    x, length, window = c.tensor(), c.get("n_fft"), c.get("window")
    if c.get("return_complex", False):
        c.unsupported("a complex signal")
    size, hop = c.get("win_length", length), c.get("hop_length", length // 4)
    if not isinstance(count := x.dims[-1], int):
        c.unsupported("as many frames as an axis has whose size is open")
    onesided = c.get("onesided")
    onesided = x.dims[-2] != length if onesided is None else onesided
    pairs = x.name if x.rank == 3 else c.node("Unsqueeze", x.name, c.ints(0))
    frames = c.node("DFT", c.node("Transpose", pairs, perm=[0, 2, 1, 3]),
                    c.constant(np.int64(length)), c.constant(np.int64(2)), inverse=1,
                    onesided=int(onesided))
    real = c.node("Gather", frames, c.constant(np.int64(0)), axis=-1)  # (batch, frames, length)
    shape = c.constant(np.ones(size, x.dtype.working)) if window is None else window.name
    if size < length:
        before = (length - size) // 2
        shape = c.node("Pad", shape, c.ints(before, length - size - before))
    if c.get("normalized", False):
        real = c.node("Mul", real, c.number(length ** 0.5, x.dtype))
    whole = (count - 1) * hop + length
    total = _added(c, c.node("Transpose", c.node("Mul", real, shape), perm=[0, 2, 1]),
                   whole, length, hop)
    squares = c.node("Expand", c.node("Reshape", c.node("Mul", shape, shape), c.ints(1, -1, 1)),
                     c.ints(1, length, count))
    start = length // 2 if c.get("center", True) else 0
    asked = c.get("length")
    end = whole - start if asked is None else min(start + asked, whole)
    y = c.node("Div", *(c.node("Slice", part, c.ints(start), c.ints(end), c.ints(1))
                        for part in (total, _added(c, squares, whole, length, hop))))
    if asked is not None and end - start < asked:
        y = c.node("Pad", y, c.ints(0, 0, 0, asked - (end - start)))
    return y if x.rank == 3 else c.node("Squeeze", y, c.ints(0))


def _added(c: OperatorCall, frames: str, whole: int, length: int, hop: int) -> str:
    """Frames, columns of a matrix, added up where they overlap."""
    y = c.node("Col2Im", frames, c.ints(1, whole), c.ints(1, length), strides=[1, hop])
    return c.node("Reshape", y, c.ints(-1, whole))
