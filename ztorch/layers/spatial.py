"""Base class of layers over sequences and images: the data formats, and sizes per axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ztorch.config import whole
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.initializers import Shape
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.padded_axes import Mask

_INPUTS = {1: ("(steps, channels)", "(channels, steps)"),
           2: ("(rows, columns, channels)", "(channels, rows, columns)"),
           3: ("(depth, rows, columns, channels)", "(channels, depth, rows, columns)")}


def checked_format(layer: str, data_format: Any) -> str:
    """A data format, "channels_last" for None, or a ConfigError that names the layer.

    >>> checked_format("Flatten", None)
    'channels_last'
    """
    if data_format is None:
        return "channels_last"
    if not isinstance(data_format, str) or data_format not in ("channels_last", "channels_first"):
        raise ConfigError(f"{layer}(data_format={data_format!r}) must be 'channels_last' or "
                          "'channels_first'")
    return data_format


class SpatialLayer(Layer, abstract=True):
    """Base class of layers over one, two or three axes besides the channels.

    Subclasses implement `last` for the channels-last format. Channels-first inputs are transposed
    before and after, which is free if the next kernel can read the transposed layout.
    """

    axes = 2  # besides batch and channels

    def __init__(self, data_format: str | None = None, **common: Any):
        super().__init__(**common)
        self.data_format = checked_format(type(self).__name__, data_format)

    @property
    def channels_first(self) -> bool:
        return self.data_format == "channels_first"

    def each(self, argument: str, size: Any, least: int = 1) -> Shape:
        """One integer per axis, from a single integer or a tuple."""
        name = f"{type(self).__name__}({argument}=...)"
        sizes = size if isinstance(size, (list, tuple)) else (size,) * self.axes
        if len(sizes) != self.axes:
            raise ConfigError(f"{name} must be one integer or {self.axes}, not {size!r}")
        return tuple(whole(name, n, least) for n in sizes)

    def pairs(self, argument: str, amounts: Any) -> tuple[Shape, ...]:
        """(before, after) for each axis, from a single integer, one per axis, or pairs."""
        name = f"{type(self).__name__}({argument}=...)"
        parts = amounts if isinstance(amounts, (list, tuple)) else (amounts,) * self.axes
        if self.axes == 1 and len(parts) == 2:
            parts = (parts,)
        wide = [p if isinstance(p, (list, tuple)) else (p, p) for p in parts]
        if len(wide) != self.axes or any(len(p) != 2 for p in wide):
            raise ConfigError(f"{name} must be an integer, or a pair for each of {self.axes} "
                              f"axes, not {amounts!r}")
        return tuple((whole(name, a), whole(name, b)) for a, b in wide)

    def choice(self, argument: str, word: Any, allowed: tuple[str, ...]) -> str:
        """The word in lower case if it is allowed, or a ConfigError that names the argument."""
        if isinstance(word, str) and word.lower() in allowed:
            return word.lower()
        raise ConfigError(f"{type(self).__name__}({argument}={word!r}) must be "
                          f"{' or '.join(map(repr, allowed))}")

    def channels(self, shape: Shape) -> int:
        """The number of channels of inputs of this shape, without the batch."""
        self.need_rank(shape, self.axes + 1, _INPUTS[self.axes][self.channels_first],
                       "add a Reshape before it")
        return shape[0] if self.channels_first else shape[-1]

    def call(self, x: Value, context: Context) -> Value:
        self.channels(x.shape[1:])
        try:
            if not self.channels_first:
                return self.last(x, context)
            y = self.last(OPS.transpose(x, (0, *range(2, x.rank), 1)), context)
        except ShapeError as error:
            raise ShapeError(f"{error}{self.turned(x.shape[1:])}") from None
        return OPS.transpose(y, (0, y.rank - 1, *range(1, y.rank - 1)))

    def resized(self, x: Value, context: Context, times: Sequence[int],
                zeroed: bool = False) -> Value:
        """The output, whose size along each axis is `times` the input's size, plus a constant.

        Args:
            x: The input.
            context: Context of the trace.
            times: The factor for each axis.
            zeroed: Whether the output depends on elements beyond the end of a variable axis, which
                must then be zero. Default: `False`.
        """
        padding, first = context.padding, 2 if self.channels_first else 1
        padded = padding.of(x)
        results = dict(padded)
        n = x.shape
        for axis in range(first, min(first + self.axes, x.rank)) if zeroed else ():
            x = padding.zeroed(x, axis)
        y = SpatialLayer.call(self, x, context)
        for axis, factor in enumerate(times, first):
            if axis in padded:
                step = factor, y.shape[axis] - factor * n[axis], 1
                padding.resize(results, axis, step, y.shape[axis])
        return declared(y, results, context) if results or padded else y

    def turned(self, shape: Shape) -> str:
        """A hint for errors, if inputs look like images of the other data format."""
        first, *between, last = shape
        few, many = (last, first) if self.channels_first else (first, last)
        if few not in (1, 3, 4) or few >= min([many, *between]):
            return ""
        other = "last" if self.channels_first else "first"
        return f"; where {shape} has its channels {other}, set data_format='channels_{other}'"

    def last(self, x: Value, context: Context) -> Value:
        """The output for inputs with channels last."""
        raise NotImplementedError


def declared(y: Value, padded: Mapping[int, Mask], context: Context) -> Value:
    """y with these padded axes, which the logits that it was computed from have, too."""
    _, logits = context.probabilities.get(y, ("", y))
    context.padding.declare(logits, padded)
    return context.padding.declare(y, padded)
