"""Fourier transforms of complex tensors, with the arguments of NumPy and the array API.

They use the transforms of pairs in `fourier.py`, along any axes and for any length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.ops.complex_values import ComplexValue, complex_op
from ztorch.ops.fourier import need_length, resized

_NORMS = ("backward", "ortho", "forward")


def _factor(name: str, n: int, norm: str | None, inverse: bool) -> float:
    """The factor of a sum over n elements."""
    norm = norm or "backward"
    if norm not in _NORMS:
        raise ConfigError(f"ops.{name}(norm={norm!r}) must be one of {', '.join(_NORMS)}")
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if (norm == "backward") == inverse else 1.0


def _axis(name: str, x: ComplexValue, axis: int) -> int:
    if not -x.rank <= axis < x.rank:
        raise shape_error(f"ops.{name} transforms axis {axis}, which does not exist in", x.shape)
    return axis % x.rank


def _length(name: str, x: ComplexValue, axis: int, n: int | None) -> int:
    return need_length(name, x.shape[axis] if n is None else n)


def _last(x: ComplexValue, axis: int, n: int) -> ComplexValue:
    """x with an axis moved last, cut or zero-padded to n elements."""
    moved = x.on_parts("moveaxis", axis, -1)
    return ComplexValue(resized(moved.real, n), resized(moved.imag, n))


def _along(name: str, x: ComplexValue, n: int | None, axis: int, norm: str | None,
           inverse: bool) -> ComplexValue:
    a = _axis(name, x, axis)
    n = _length(name, x, a, n)
    last = _last(x, a, n)
    pair = (OPS.ifft if inverse else OPS.fft)((last.real, last.imag))
    own = 1 / n if inverse else 1.0  # the factor that the op on pairs applies
    factor = _factor(name, n, norm, inverse) / own
    y = ComplexValue(*pair)
    return (y if factor == 1.0 else y * factor).on_parts("moveaxis", -1, a)


@complex_op()
def fft(x: ComplexValue, n: int | None = None, axis: int = -1,
        norm: str = "backward") -> ComplexValue:
    return _along("fft", x, n, axis, norm, inverse=False)


@complex_op()
def ifft(x: ComplexValue, n: int | None = None, axis: int = -1,
         norm: str = "backward") -> ComplexValue:
    return _along("ifft", x, n, axis, norm, inverse=True)


def _axes(name: str, x: ComplexValue, s: Sequence[int] | None, axes: Sequence[int] | None
          ) -> list[tuple[int, int | None]]:
    """Each axis to transform, and its length."""
    if axes is None:
        axes = range(x.rank) if s is None else range(x.rank - len(s), x.rank)
    if s is not None and len(s) != len(axes):
        raise shape_error(f"ops.{name} needs one length per axis of {tuple(axes)}, not",
                          tuple(s))
    sizes: Sequence[int | None] = [None] * len(axes) if s is None else s
    return [(_axis(name, x, a), n) for a, n in zip(axes, sizes, strict=True)]


def _all_along(name: str, x: ComplexValue, s: Sequence[int] | None, axes: Sequence[int] | None,
               norm: str, inverse: bool) -> ComplexValue:
    for a, n in reversed(_axes(name, x, s, axes)):
        x = _along(name, x, n, a, norm, inverse)
    return x


@complex_op()
def fftn(x: ComplexValue, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
         norm: str = "backward") -> ComplexValue:
    return _all_along("fftn", x, s, axes, norm, inverse=False)


@complex_op()
def ifftn(x: ComplexValue, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: str = "backward") -> ComplexValue:
    return _all_along("ifftn", x, s, axes, norm, inverse=True)


@complex_op()
def fft2(x: ComplexValue, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1),
         norm: str = "backward") -> ComplexValue:
    return _all_along("fft2", x, s, axes, norm, inverse=False)


@complex_op()
def ifft2(x: ComplexValue, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1),
          norm: str = "backward") -> ComplexValue:
    return _all_along("ifft2", x, s, axes, norm, inverse=True)


# -- of real numbers -------------------------------------------------------------------------------


@complex_op("rfft_of_real")
def rfft(x: Value, n: int | None = None, axis: int = -1, norm: str = "backward") -> ComplexValue:
    operand = ComplexValue(x, x)
    a = _axis("rfft", operand, axis)
    n = _length("rfft", operand, a, n)
    y = ComplexValue(*OPS.rfft(OPS.moveaxis(x, a, -1), n))
    factor = _factor("rfft", n, norm, inverse=False)
    return (y if factor == 1.0 else y * factor).on_parts("moveaxis", -1, a)


@complex_op()
def irfft(x: ComplexValue, n: int | None = None, axis: int = -1,
          norm: str = "backward") -> Value:
    a = _axis("irfft", x, axis)
    n = need_length("irfft", 2 * (x.shape[a] - 1) if n is None else n)
    last = x.on_parts("moveaxis", a, -1)
    y = OPS.irfft((last.real, last.imag), n)
    factor = _factor("irfft", n, norm, inverse=True) * n
    y = OPS.moveaxis(y if factor == 1.0 else y * factor, -1, a)
    return y


@complex_op("rfftn_of_real")
def rfftn(x: Value, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: str = "backward") -> ComplexValue:
    *others, (a, n) = _axes("rfftn", ComplexValue(x, x), s, axes)
    y = rfft(x, n, a, norm)
    for a, n in reversed(others):
        y = _along("rfftn", y, n, a, norm, inverse=False)
    return y


@complex_op()
def irfftn(x: ComplexValue, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
           norm: str = "backward") -> Value:
    *others, (last, length) = _axes("irfftn", x, s, axes)
    for a, n in others:
        x = _along("irfftn", x, n, a, norm, inverse=True)
    return irfft(x, length, last, norm)


@complex_op()
def hfft(x: ComplexValue, n: int | None = None, axis: int = -1, norm: str = "backward") -> Value:
    """The transform of a signal with Hermitian symmetry: real numbers."""
    a = _axis("hfft", x, axis)
    n = need_length("hfft", 2 * (x.shape[a] - 1) if n is None else n)
    return irfft(ComplexValue(x.real, -x.imag), n, a, _opposite("hfft", norm))


@complex_op("ihfft_of_real")
def ihfft(x: Value, n: int | None = None, axis: int = -1, norm: str = "backward") -> ComplexValue:
    """The inverse of hfft: half of the conjugate transform of real numbers."""
    y = rfft(x, n, axis, _opposite("ihfft", norm))
    return ComplexValue(y.real, -y.imag)


def _opposite(name: str, norm: str | None) -> str:
    """The norm of the transform in the other direction."""
    norm = norm or "backward"
    if norm not in _NORMS:
        raise ConfigError(f"ops.{name}(norm={norm!r}) must be one of {', '.join(_NORMS)}")
    return _NORMS[::-1][_NORMS.index(norm)]
