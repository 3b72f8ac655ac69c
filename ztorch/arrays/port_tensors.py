"""Tensors as inputs and targets of a program: which part belongs to which port, and whether its
numbers are valid. Nothing but the answers crosses to the host."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ztorch.arrays.promotion import integer_range
from ztorch.arrays.tensor import Tensor, compute

TOLERANCE = 1e-5  # rounding error allowed for probabilities below 0 or above 1


def parts_by_port(ports: Sequence[Any], value: Any) -> dict[str, Any]:
    """The parts of x or y by port, unchanged. Empty if there are more or fewer parts than ports.

    Args:
        ports: The inputs or the targets of a program.
        value: What the user passed for them.
    """
    names = {p.port: p.name for p in ports}
    if isinstance(value, Mapping):
        return {port: value[name] for port, name in names.items()} if (
            value.keys() == {*names.values()}) else {}
    if isinstance(value, (list, tuple)):
        return dict(zip(names, value, strict=True)) if len(value) == len(names) else {}
    return dict.fromkeys(names, value) if len(names) == 1 else {}


def fitted_tensor(t: Any, row: tuple[int, ...], open_axes: Collection[int] = ()) -> Tensor | None:
    """The tensor with rows of this shape; a last axis of size 1 is added or dropped. None if its
    rows do not fit, or if it is no tensor.

    Args:
        t: What the user passed for a port.
        row: The shape of a row.
        open_axes: The axes of a row, by number, whose size varies. Default: `()`.
    """
    if not isinstance(t, Tensor) or not t.size or not t.shape:
        return None
    if open_axes:
        fits = len(t.shape) == 1 + len(row) and all(
            n == m or axis in open_axes
            for axis, (n, m) in enumerate(zip(t.shape[1:], row, strict=True)))
        return t if fits else None
    if t.shape[1:] == row:
        return t
    fits = t.shape[1:] == (*row, 1) or (*t.shape[1:], 1) == row
    return t.reshape(len(t), *row) if fits else None


def conditions(port: Any, t: Tensor) -> list[Tensor]:
    """Conditions that hold for valid data of an input or a target, each a tensor of one bool."""
    bounds: tuple[float, float] | None = None
    is_int = port.dtype.is_int
    if getattr(port, "range", None) is not None:
        bounds, is_int = port.range[:2], True
    elif getattr(port, "classes", None) is not None:
        bounds, is_int = (0, port.classes - 1), True
    elif getattr(port, "probabilities", False):
        bounds = (-TOLERANCE, 1 + TOLERANCE)
    elif is_int and t.dtype is not port.dtype:
        bounds = integer_range(port.dtype)
    good = [] if bounds is None else [_within(t, *bounds, is_int)]
    if t.dtype.is_float and is_int:
        good.append((t == compute("floor", (t,), {})).all())
    if t.dtype.is_float and hasattr(port, "loss"):  # a target
        good.append(compute("isfinite", (t,), {}).all())
    return good


def _within(t: Tensor, low: float, high: float, is_int: bool) -> Tensor:
    """Whether all numbers are from `low` to `high`; a NaN is not."""
    if not t.dtype.is_float:  # bounds beyond its dtype hold for all its numbers
        least, most = integer_range(t.dtype) if t.dtype.is_int else (0, 1)
        return ((t >= max(low, least)) & (t <= min(high, most))).all()
    # A float dtype may round the greatest integer up.
    below = t < float(high) + 1.0 if is_int else t <= high
    return ((t >= low) & below).all()
