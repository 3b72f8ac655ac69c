"""Checks of shapes and axes in arguments of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from ztorch.config import whole_numbers
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.op import shape_error
from ztorch.initializers import Shape

T = TypeVar("T")

# Sizes for tracing open axes: as large as common windows and as small as short tables, or else as
# large as any window.
TRACED = (4, 64)


def checked_shape(label: str, shape: Any) -> Shape:
    """A shape without the batch as a tuple, or a ConfigError that starts with the label."""
    if isinstance(shape, (int, np.integer)):
        raise ConfigError(f"{label} is {shape!r}; a shape is a tuple: ({shape},)")
    try:
        dims = tuple(shape)
    except TypeError:
        raise ConfigError(f"{label} is {shape!r}; a shape is a tuple such as (28, 28, 1)") from None
    for n in dims:
        if isinstance(n, bool) or not hasattr(n, "__index__") or n.__index__() < 1:
            raise ConfigError(f"{label} is {dims}: every axis must be a positive integer; "
                              "shapes are fixed when the model is compiled, and do not include the "
                              "batch")
    return tuple(n.__index__() for n in dims)


class OpenSize(int):
    """The size of an axis that is chosen when a model is compiled. It has a name, and a number that
    represents it in traces until then.

    >>> OpenSize("time"), OpenSize(None) + 1
    (time, 5)
    """

    name: str | None

    def __new__(cls, name: str | None, traced: int = TRACED[0]) -> OpenSize:
        size = super().__new__(cls, traced)
        size.name = name
        return size

    def __getnewargs__(self) -> Any:  # for copies
        return self.name, int(self)

    def __repr__(self) -> str:
        return str(self.name)

    __str__ = __repr__


OpenSizes = dict[str, OpenSize]  # by the name of the axis


def traced_with_open_axes(names: Iterable[str], trace: Callable[[OpenSizes], tuple[T, bool]]
                          ) -> tuple[OpenSizes, T]:
    """Sizes of open axes with which a function can be traced, and the trace. `trace` also returns
    whether all axes that it created have more than one element."""
    short, long = ({name: OpenSize(name, n) for name in names} for n in TRACED)
    result: T | None = None
    error: ShapeError | None = None
    try:
        result, complete = trace(short)
        if complete:
            return short, result
    except ShapeError as caught:
        error = caught
    try:
        return long, trace(long)[0]
    except ShapeError:
        if error is None and result is not None:
            return short, result
        assert error is not None
        raise error from None


def declared_shape(label: str, shape: Any) -> Shape:
    """The shape of an Input. Its axes may be open: None or a name instead of a size."""
    if not isinstance(shape, (list, tuple)):
        return checked_shape(label, shape)
    return tuple(_open_size(label, n) if n is None or isinstance(n, (str, OpenSize)) else
                 checked_shape(label, (n,))[0] for n in shape)


def _open_size(label: str, size: Any) -> OpenSize:
    name = size.name if isinstance(size, OpenSize) else size
    if name is not None and (not name.isprintable() or {*name} & {*"/@,"}
                             or name in ("", "batch")):
        raise ConfigError(f"{label} names an axis {name!r}; a name must be printable, without '/', "
                          "'@' and ',', and must not be 'batch'")
    return OpenSize(name)


def named_axes(shape: Shape, owner: str) -> dict[int, str]:
    """The names of the open axes of an input, by number. An axis without a name is named by its
    position, after the name of the input if there are several.

    >>> named_axes((OpenSize("time"), 4), ""), named_axes((OpenSize(None), 4), "left")
    ({0: 'time'}, {0: 'left.axis1'})
    """
    return {k: n.name or f"{owner}.axis{k + 1}".removeprefix(".")
            for k, n in enumerate(shape) if isinstance(n, OpenSize)}


def whole_axes(model: Any) -> tuple[str, ...]:
    """The open axes of a model along which rows are never padded to a larger size: all of them, if
    a layer mixes positions along them."""
    return tuple(model.axis_names) if whole_axes_reasons(model) else ()


def whole_axes_reasons(model: Any) -> list[str]:
    """Why layers mix positions along open axes."""
    return [layer.mixes_open_axes for _, layer in model.walk() if layer.mixes_open_axes]


def checked_axes(label: str, axis: Any) -> int | tuple[int, ...]:
    """An integer or a tuple of integers, or a ConfigError that starts with the label."""
    axes = whole_numbers(label, axis if isinstance(axis, (list, tuple)) else (axis,))
    return axes if isinstance(axis, (list, tuple)) else axes[0]


def example_axes(axis: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Axes as sorted positive integers, for tensors whose axis 0 is the batch.

    >>> example_axes(-1, 3), example_axes((2, 1), 3)
    ((2,), (1, 2))
    """
    axes = (axis,) if isinstance(axis, int) else axis
    for a in axes:
        if rank < 2:
            raise shape_error(f"axis {a} needs inputs with an axis besides the batch, not of shape "
                              f"({'batch,' if rank else ''})", fix="in a model, give rows at least "
                              "one axis; of a vector, use the function in zt.ops")
        if not -rank < a < rank or a == 0:
            raise shape_error(f"axis {a} is out of range for inputs of {rank - 1} axes besides "
                              "the batch", fix=f"use 1 to {rank - 1}, or -1 to {1 - rank}")
    return tuple(sorted({a % rank for a in axes}))


def differing(a: Shape, b: Shape) -> set[int]:
    """The axes along which two shapes differ; {-1} if they have different ranks."""
    return {-1} if len(a) != len(b) else {k for k in range(len(a)) if a[k] != b[k]}


def nonempty_axes(label: str, axis: Any) -> int | tuple[int, ...]:
    """An axis or a tuple of axes, but not an empty tuple."""
    if isinstance(axis, (list, tuple)) and not axis:
        raise ConfigError(f"{label} is empty; give an axis, such as -1 for the last")
    return checked_axes(label, axis)
