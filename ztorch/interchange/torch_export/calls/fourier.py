"""Fourier transforms; complex numbers are pairs of floats along a last axis."""

from __future__ import annotations

import math

import numpy as np

from ztorch.dtypes import i64
from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call

Length = int | CallTensor | None  # of a signal: a number, computed from shapes, or unknown


def _transform(c: OperatorCall, x: str, axis: int, length: Length, inverse: bool,
               onesided: bool = False) -> str:
    """The transform along an axis of pairs, or of real numbers with an axis of one element.
    `length` is that of the whole signal, by which the inverse is divided."""
    length_name = "" if length is None else c.number(length, i64)
    return c.node("DFT", x, length_name, c.constant(np.int64(axis)), inverse=int(inverse),
                  onesided=int(onesided))


def _normalize(c: OperatorCall, y: str, lengths: list[Length], inverse: bool, norm: str) -> str:
    """The transform with the scale that `norm` names."""
    if norm == "backward":
        return y
    sizes = [n for n in lengths if isinstance(n, int)]
    if len(sizes) < len(lengths):
        c.unsupported(f"norm={norm!r} of a transform along an open axis")
    count = math.prod(sizes)
    factors = {"ortho": count ** (0.5 if inverse else -0.5),
               "forward": float(count) if inverse else 1.0 / count}
    if norm not in factors:
        c.unsupported(f"norm={norm!r}")
    return c.node("Mul", y, c.number(factors[norm], c.result.dtype))


_FORMS = ("", "2", "n")  # along one axis, the last two, or several


@call(*(f"fft_{way}fft{form}" for way in ("", "i", "r", "ir") for form in _FORMS), of_complex=True)
def _fourier(c: OperatorCall) -> Result:
    return _along_axes(c)


@call("fft_irfft", "fft_irfft2", "fft_irfftn")
def _real_fourier(c: OperatorCall) -> Result:
    return _along_axes(c)


def _along_axes(c: OperatorCall) -> str:
    x = c.tensor()
    inverse, real = c.op.startswith("fft_i"), "rfft" in c.op
    axes, lengths = _axes(c, x, real and inverse)
    y = x.name if x.is_complex else c.node("Unsqueeze", x.name, c.ints(-1))
    order = list(zip(axes, lengths, strict=True))
    if real and inverse:
        for axis, length in order[:-1]:
            y = _transform(c, y, axis, length, True)
        y = c.node("Squeeze", _transform(c, y, *order[-1], True, onesided=True), c.ints(-1))
    else:
        for k, (axis, length) in enumerate(reversed(order)):
            y = _transform(c, y, axis, length, inverse, onesided=real and k == 0)
    return _normalize(c, y, lengths, inverse, c.get("norm", "backward"))


@call("_fft_r2c", "_fft_c2c", "_fft_c2r", of_complex=True)
def _parts_of_fourier(c: OperatorCall) -> Result:
    """What run_decompositions() makes of transforms: along several axes, a one-sided axis last."""
    x, halved = c.tensor(), c.op == "_fft_c2r" or bool(c.get("onesided", False))
    inverse = c.op == "_fft_c2r" or not c.get("forward", True)
    axes = [axis % x.rank for axis in c.integers("dim")]
    sizes = [x.dims[axis] for axis in axes]
    lengths: list[Length] = [n if isinstance(n, int) else None for n in sizes]
    if c.op == "_fft_c2r":
        lengths[-1] = c.get("last_dim_size")
    order = list(zip(axes, lengths, strict=True))
    y = x.name if x.is_complex else c.node("Unsqueeze", x.name, c.ints(-1))
    for k, (axis, length) in enumerate(order if inverse else reversed(order)):
        last = k == (len(order) - 1 if inverse else 0)
        y = _transform(c, y, axis, length, inverse, halved and last)
    y = c.node("Squeeze", y, c.ints(-1)) if c.op == "_fft_c2r" else y
    norms = ("backward", "ortho", "forward")  # divided by nothing, by the root, by the length
    return _normalize(c, y, lengths, inverse,
                      norms[::-1 if inverse else 1][c.get("normalization")])


def _axes(c: OperatorCall, x: CallTensor, halved: bool) -> tuple[list[int], list[Length]]:
    """The axes that are transformed, and the length of the signal along each."""
    lengths: list[Length]
    if c.op.endswith("fft"):
        axes, lengths = [c.get("dim", -1)], [c.get("n")]
    else:
        lengths = c.get("s") or []
        count = len(lengths) or x.rank
        axes = c.get("dim") or ([-2, -1] if c.op.endswith("2") else list(range(-count, 0)))
        lengths = list(lengths) or [None] * len(axes)
    axes = [axis % x.rank for axis in axes]
    sizes = [x.dims[axis] for axis in axes]
    for k, size in enumerate(sizes):
        if lengths[k] is None and isinstance(size, int):
            lengths[k] = 2 * (size - 1) if halved and k == len(sizes) - 1 else size
    return axes, lengths


def _shift_axes(c: OperatorCall, x: CallTensor) -> str:
    axes = c.get("dim")
    axes = list(range(x.rank)) if axes is None else [a % x.rank for a in axes]
    y = x.name
    for axis in axes:
        size = x.dims[axis]
        if not isinstance(size, int):
            c.unsupported("a shift along an open axis")
        moved = size // 2 if c.op == "fft_fftshift" else -(-size // 2)
        order = np.roll(np.arange(size), moved)
        y = c.node("Gather", y, c.constant(order), axis=axis)
    return y


@call("fft_fftshift", "fft_ifftshift", of_complex=True)
def _shift_pairs(c: OperatorCall) -> Result:
    return _shift_axes(c, c.tensor())


@call("fft_fftshift", "fft_ifftshift")
def _shift(c: OperatorCall) -> Result:
    return _shift_axes(c, c.tensor())
