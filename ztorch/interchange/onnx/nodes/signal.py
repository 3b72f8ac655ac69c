"""Fourier transforms of signals, and mel filter banks."""

from __future__ import annotations

import numpy as np

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.interchange.onnx.node import Node, Result, node


def _resized(x: Value, axis: int, length: int) -> Value:
    """x cut or padded with zeros to a length."""
    x = x[(slice(None),) * axis + (slice(0, length),)]
    missing = length - x.shape[axis]
    if not missing:
        return x
    return OPS.pad(x, (0,) * x.rank, tuple(missing if k == axis else 0 for k in range(x.rank)))


def _transform(x: Value, inverse: bool, onesided: bool, length: int) -> Value:
    """The transform of x, (..., signal, parts), along a signal of this length."""
    imag = x[..., 1] if x.shape[-1] == 2 else OPS.zeros_like(x[..., 0])
    real = x[..., 0]
    if inverse and onesided:  # real signals from half of their spectrum
        half = length // 2 + 1
        return OPS.expand_dims(OPS.irfft((_resized(real, real.rank - 1, half),
                                          _resized(imag, imag.rank - 1, half)), length), -1)
    pair = (_resized(real, real.rank - 1, length), _resized(imag, imag.rank - 1, length))
    y = OPS.stack(*(OPS.ifft(pair) if inverse else OPS.fft(pair)), axis=-1)
    return y[..., :length // 2 + 1, :] if onesided else y


@node("DFT")
def _dft(n: Node) -> Result:
    x = n.value(0)
    axis = (n.number(2) if n.has(2) else -2) if n.opset >= 20 else n.attr("axis", 1)
    axis = range(x.rank)[int(axis)]
    inverse, onesided = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    length = x.shape[axis]
    if n.has(1):
        length = int(n.number(1))
    elif inverse and onesided:
        length = 2 * (length - 1)
    x = OPS.moveaxis(x, axis, -2)
    return OPS.moveaxis(_transform(x, inverse, onesided, length), -2, axis)


@node("STFT")
def _stft(n: Node) -> Result:
    signal, step = n.value(0), int(n.number(1))
    window = n.value(2) if n.has(2) else None
    length = int(n.number(3)) if n.has(3) else window.shape[0] if window is not None else 0
    signal = signal if signal.rank == 3 else OPS.expand_dims(signal, -1)
    frames = OPS.windows(signal, (1,), length, step)  # (batch, frames, parts, length)
    frames = OPS.swapaxes(frames, 2, 3)
    if window is not None:
        frames = frames * OPS.reshape(window, (-1, 1))
    onesided = bool(n.attr("onesided", 1)) and signal.shape[-1] == 1
    return _transform(frames, False, onesided, length)


@node("MelWeightMatrix")
def _mel_weights(n: Node) -> Result:
    bands, length, rate = (int(n.number(k)) for k in range(3))
    low, high = (2595 * np.log10(1 + n.number(k) / 700) for k in (3, 4))
    edges = low + np.arange(bands + 2) * ((high - low) / (bands + 2))
    at = np.floor((length + 1) * (700 * (10 ** (edges / 2595) - 1)) / rate).astype(int)
    matrix = np.zeros((length // 2 + 1, bands))
    for k, (first, middle, last) in enumerate(zip(at, at[1:], at[2:], strict=False)):
        if middle == first:
            matrix[middle, k] = 1
        else:
            rows = np.arange(first, middle + 1)
            matrix[rows, k] = (rows - first) / (middle - first)
        if last > middle:
            rows = np.arange(middle, last)
            matrix[rows, k] = (last - rows) / (last - middle)
    kind = n.dtype_of(n.attr("output_datatype", 1))
    return matrix.astype(kind.working)
