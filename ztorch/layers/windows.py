"""Windows that move along variable axes: convolutions and pooling.

Rows of a batch end at different positions. Beyond its end, a row is filled with the padding value
of an axis of fixed size, so results are those of the exact size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.padded_axes import Mask
from ztorch.layers.real_positions import spread


@dataclass(frozen=True)
class Window:
    """The movement of a window along an axis."""

    size: int  # elements from its first to its last one
    stride: int
    padding: Any  # "valid", "same", "causal", or a pair (before, after)

    def pair(self, n: int) -> tuple[int, int]:
        """The number of elements that windows read before an axis of n elements, and after it.

        >>> Window(4, 2, "same").pair(5), Window(3, 1, "causal").pair(5)
        ((1, 2), (2, 0))
        """
        if self.padding == "valid":
            return 0, 0
        if self.padding == "causal":
            return self.size - 1, 0
        if self.padding != "same":
            return int(self.padding[0]), int(self.padding[1])
        total = max((-(-n // self.stride) - 1) * self.stride + self.size - n, 0)
        return total // 2, total - total // 2

    def more(self) -> int:
        """The constant of the number of windows, `(n + more) // stride` for n elements."""
        if self.padding in ("same", "causal"):
            return self.stride - 1
        return sum(self.pair(0)) - self.size + self.stride


def framed(x: Value, first: int, windows: Sequence[Window], fill: Any,
           context: Context) -> tuple[Value, dict[int, Mask]]:
    """A tensor extended by everything that windows read beyond its ends, so they need no padding.

    Args:
        x: The tensor.
        first: The first axis along which a window moves; the others follow.
        windows: The movement along each axis.
        fill: The value beyond the ends.
        context: Context of the trace.

    Returns:
        The tensor, and the padded axes of the results.
    """
    padding = context.padding
    padded = padding.of(x)
    results = dict(padded)
    for axis, window in enumerate(windows, first):
        n, mask = x.shape[axis], padded.get(axis)
        before, after = window.pair(n)
        if mask is None:
            x = _between(x, axis, before, after, fill)
            continue
        if window.padding != "valid":  # "valid" windows read nothing beyond the ends
            x = OPS.where(spread(mask.value, x.rank, axis), x, OPS.full(x.shape, fill, x.dtype))
        size = before + n + after
        # For centered windows, the padding before the first element depends on the row's size.
        begins = {r: window.pair(r + window.size * window.stride)[0] for r in range(window.stride)}
        parts = {b: _between(x, axis, b, size - n - b, fill) for b in {*begins.values(), before}
                 } if window.padding == "same" else {before: _between(x, axis, before, after, fill)}
        x = parts[before]
        for r, begin in begins.items():
            if len(parts) > 1 and begin != before:
                rows = _size_modulo(mask, r + window.size * window.stride, window.stride)
                x = OPS.where(spread(rows, x.rank, axis), parts[begin], x)
        count = (size - window.size) // window.stride + 1
        padding.resize(results, axis, (1, window.more(), window.stride), count)
    return x, results


def _size_modulo(mask: Mask, remainder: int, modulus: int) -> Value:
    """A bool tensor (batch, 1): whether a row's size has this remainder."""
    size = OPS.sum(OPS.cast(mask.value, "int32"), 1, True)
    quotient = OPS.cast(OPS.floor(OPS.cast(size, "float32") / float(modulus)), "int32")
    return OPS.equal(size - quotient * modulus, remainder % modulus)


def _between(x: Value, axis: int, before: int, after: int, fill: Any) -> Value:
    """x with elements added before and after it along an axis; negative counts remove elements."""
    if after < 0:
        part = [slice(None)] * axis
        x = x[tuple(part) + (slice(0, x.shape[axis] + after),)]  # noqa: RUF005
    if not before and after <= 0:
        return x
    low, high = [0] * x.rank, [0] * x.rank
    low[axis], high[axis] = before, max(after, 0)
    return OPS.pad(x, low=tuple(low), high=tuple(high), value=fill)
